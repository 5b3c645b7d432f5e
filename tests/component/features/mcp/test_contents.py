"""Results of tools become results of skills, whatever a server sends."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from component.features.mcp.contents import part_of, readable, result_of
from component.features.mcp.errors import plain, reason_of
from component.skills import Output
from component.skills.outputs import JSON, File, Link

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "audio", "resource_link", "resource", "new", 5])},
    optional={
        "text": st.text() | st.integers(),
        "data": st.text() | st.binary().map(lambda data: base64.b64encode(data).decode()),
        "mimeType": st.sampled_from(["image/png", JSON, "", "x", "a/b; c=d", "\0/\n"]) | st.none(),
        "uri": st.sampled_from(["https://a.example/b", "file:///c", "javascript:x", ""]),
        "name": st.text(),
        "title": st.text(),
        "resource": st.fixed_dictionaries({}, optional={"text": st.text(), "blob": st.text()}),
    },
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "content": st.lists(BLOCKS | JSON_VALUES, max_size=5) | JSON_VALUES,
            "structuredContent": JSON_VALUES,
            "isError": JSON_VALUES,
        },
    )
)
def test_any_result_can_be_sent(result: dict[str, Any]) -> None:
    made = result_of(result)
    for part in made.outputs:
        assert isinstance(part, Output | File | Link)
        if isinstance(part, Output) and part.media_type == JSON:
            json.loads(part.text)
    if result.get("structuredContent") is not None:
        first = made.outputs[0]
        assert isinstance(first, Output)
        assert first.media_type == JSON


@given(st.binary(), st.sampled_from(["image/png", "audio/wav"]))
def test_files_keep_their_bytes(data: bytes, media_type: str) -> None:
    block = {
        "type": "image",
        "data": base64.b64encode(data).decode(),
        "mimeType": f"{media_type}; q=1",
    }
    assert part_of(block) == File(data, media_type)


@given(JSON_VALUES.filter(lambda value: value is not None))
def test_a_text_that_repeats_the_structured_content_is_left_out(value: Any) -> None:
    for structured in (value, {"result": value}):
        block = {"type": "text", "text": json.dumps(value)}
        made = result_of({"content": [block], "structuredContent": structured})
        assert len(made.outputs) == 1


def test_other_texts_stay() -> None:
    block = {"type": "text", "text": "Two of them."}
    made = result_of({"content": [block], "structuredContent": {"n": 2}})
    assert made.outputs == (Output('{"n":2}', JSON), Output("Two of them."))


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "resource", "resource": {"uri": "file:///a/b.bin", "blob": "AAAA"}},
            File(b"\0\0\0", "application/octet-stream", "b.bin"),
        ),
        (
            {"type": "resource", "resource": {"uri": "x:y", "text": "{}", "mimeType": JSON}},
            Output("{}", JSON),
        ),
        (
            {"type": "resource", "resource": {"uri": "x:y", "text": "{", "mimeType": JSON}},
            Output("{"),
        ),
        (
            {"type": "resource_link", "uri": "https://a.example/x", "name": "x"},
            Link("https://a.example/x", None, "x"),
        ),
        (
            {"type": "resource_link", "uri": "file:///x", "name": "x", "description": "An x."},
            Output("x <file:///x>: An x."),
        ),
        (
            {"type": "image", "data": "%"},
            Output("A file that is not base64, so it cannot be read."),
        ),
        ({"type": "video"}, Output("A part of an unknown type, video.")),
    ],
)
def test_each_kind_of_content(block: dict[str, Any], part: object) -> None:
    assert part_of(block) == part


def test_the_number_of_parts_is_bounded() -> None:
    made = result_of({"content": [{"type": "text", "text": "x"}] * 1000})
    assert len(made.outputs) == 101


def test_an_error_has_a_text() -> None:
    made = result_of({"content": [], "isError": True})
    assert made.is_error
    assert made.outputs


def read_by_the_sdk(result: Any) -> dict[str, Any]:
    made = readable(result)
    validate_server_result("tools/call", "2025-11-25", made)
    dumped: dict[str, Any] = CallToolResult.model_validate(made, by_name=False).model_dump(
        by_alias=True, mode="json", exclude_none=True
    )
    return dumped


def test_structured_content_alone_is_a_result() -> None:
    for content in ({}, {"content": None}):
        made = result_of(read_by_the_sdk({**content, "structuredContent": {"n": 1}}))
        assert made.outputs == (Output('{"n":1}', JSON),)
        assert not made.is_error


def test_one_part_that_cannot_be_read_costs_itself_alone() -> None:
    blocks = [
        {"type": "text", "text": "one", "annotations": {"priority": "high"}},
        {"type": "image", "mimeType": "image/png"},
        {"type": "chart", "data": {}},
        "loose",
        {"type": "resource", "resource": {"text": "two"}},
    ]
    made = result_of(read_by_the_sdk({"content": blocks, "isError": "no"}))
    assert [one.text for one in made.outputs if isinstance(one, Output)] == [
        "one",
        "A part of an unknown type, image.",
        "A part of an unknown type, chart.",
        "A part that cannot be read.",
        "two",
    ]
    assert not made.is_error


@given(st.fixed_dictionaries({}, optional={"content": st.lists(BLOCKS | JSON_VALUES, max_size=5)}))
def test_the_sdk_reads_any_content_of_a_result(result: dict[str, Any]) -> None:
    read_by_the_sdk(result)


PYDANTIC = (
    "1 validation error for echoArguments\ntext\n  Field required [type=missing, input_value={},"
    " input_type=dict]\n    For further information visit https://errors.pydantic.dev/2.11/v/missing"
)


def test_links_of_libraries_are_not_passed_on() -> None:
    made = result_of({"content": [{"type": "text", "text": PYDANTIC}], "isError": True})
    (only,) = made.outputs
    assert isinstance(only, Output)
    assert "Field required" in only.text
    assert "pydantic.dev" not in only.text
    kept = result_of({"content": [{"type": "text", "text": PYDANTIC}]})
    assert kept.outputs == (Output(PYDANTIC),), "a text that is no error is the tool's own"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "it has no content"),
        ({"content": "x"}, "its content is not what the protocol says"),
        ({"content": [{"type": "text"}]}, "it has no content.0.text"),
        (5, "it is not a message of the protocol"),
    ],
)
def test_an_answer_that_is_not_valid_is_named_by_what_is_wrong(value: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CallToolResult.model_validate(value, by_name=False)
    assert reason_of(caught.value) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Failed to parse JSON response: {PYDANTIC}", "not a message of JSON-RPC 2.0"),
        (f"Failed to parse SSE message: {PYDANTIC}", "not a message of JSON-RPC 2.0"),
        ("Failed to parse JSON response: the response is compressed", "the response is compressed"),
        ("Unexpected content type: text/html", "content type 'text/html' instead of JSON"),
        ("SSE stream ended without a response", "it ended the stream of events without an answer"),
        ("Such a text cannot be used.", "Such a text cannot be used."),
    ],
)
def test_what_the_sdk_says_is_said_plainly(text: str, said: str) -> None:
    assert said in plain(text)
    assert "pydantic" not in plain(text)


@pytest.mark.parametrize(
    ("annotations", "audience"),
    [
        ({"audience": ["user"]}, "person"),
        ({"audience": ["assistant"], "priority": 1}, "model"),
        ({"audience": ["user", "assistant"]}, None),
        ({"audience": "user"}, None),
        ("nothing", None),
        ({}, None),
    ],
)
def test_a_server_says_for_whom_an_image_is(annotations: Any, audience: str | None) -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png", "annotations": annotations}
    made = readable({"content": [image]})
    (part,) = result_of(made).outputs
    assert part == File(b"hi", "image/png", None, audience)  # type: ignore[arg-type]
