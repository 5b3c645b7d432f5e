"""The interpretation of errors of many servers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.answer_limits import ERROR_CHARACTERS
from component.models.faults import Fault, Where, read_fault
from component.models.protocol import (
    ContextOverflowError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
)
from tests.component.models.overflows import NO_OVERFLOWS, OVERFLOWS
from xep.characters import without_forbidden

WHERE = Where("m", "http://models.example/v1", "llm", "sk-very-secret")


def said_by(case: tuple[str, int, object]) -> Fault:
    _, status, body = case
    return read_fault(status, json.dumps(body).encode())


@pytest.mark.parametrize("case", OVERFLOWS, ids=lambda case: case[0])
def test_messages_about_a_long_prompt_are_context_overflows(case: tuple[str, int, object]) -> None:
    assert isinstance(WHERE.error(said_by(case)), ContextOverflowError)


@pytest.mark.parametrize("case", NO_OVERFLOWS, ids=lambda case: case[0])
def test_messages_about_other_limits_are_not_context_overflows(
    case: tuple[str, int, object],
) -> None:
    error = WHERE.error(said_by(case))
    assert not isinstance(error, ContextOverflowError)
    assert ("lower llm.max_tokens_per_request" in str(error)) == ("long answer" in case[0])


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(429, "Too many tokens per minute, reduce the length"), ModelUnavailableError),
        (Fault(429, "Rate limit reached for m in context of tokens"), ModelUnavailableError),
        (Fault(400, "max_tokens is too large: 100000. This model supports at most 16384"
               " completion tokens"), ModelRefusedError),
        (Fault(404, "The context window tool was not found"), ModelRefusedError),
        (Fault(529, "Overloaded"), ModelUnavailableError),
        (Fault(0, "upstream"), ModelUnavailableError),
        (Fault(429, "You exceeded your current quota, please check your plan"), ModelRefusedError),
        (Fault(400, "Your credit balance is too low to access the API"), ModelRefusedError),
        (Fault(418, "I'm a teapot"), ModelRefusedError),
    ],
)  # fmt: skip
def test_each_fault_becomes_its_kind_of_error(fault: Fault, kind: type[ModelError]) -> None:
    assert type(WHERE.error(fault)) is kind


@given(st.integers(0, 599), st.binary() | st.text().map(str.encode))
def test_any_body_is_read(status: int, body: bytes) -> None:
    WHERE.error(read_fault(status, body))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "detail", "metadata", "raw"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(st.integers(0, 599), JSON)
def test_any_json_is_read(status: int, body: object) -> None:
    WHERE.error(read_fault(status, json.dumps(body).encode()))


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":' * 50_000,
        b'{"error":{"message":' + b"9" * 5000 + b"}}",
        b'{"error":{"message":' + b"[" * 900 + b"]" * 900 + b"}}",
        b'{"error":{"message":NaN,"code":1e999}}',
    ],
)
def test_an_undecodable_body_is_read(body: bytes) -> None:
    assert isinstance(WHERE.error(read_fault(503, body)), ModelUnavailableError)


@pytest.mark.parametrize("said", [b"\\ud800 \\u0000", b"\xff\x1b[2J\x00"])
def test_a_message_has_no_character_that_cannot_be_stored(said: bytes) -> None:
    fault = read_fault(400, b'{"error":{"message":"' + said + b'"}}')
    assert fault.message == without_forbidden(fault.message)
    assert "\ufffd" in fault.message


def test_only_the_beginning_of_a_long_message_is_searched() -> None:
    fault = read_fault(400, json.dumps({"error": {"message": "x" * 60_000}}).encode())
    assert len(fault.message) == ERROR_CHARACTERS


@given(st.integers(0, 599), st.text(), st.text())
def test_no_message_contains_the_key(status: int, before: str, after: str) -> None:
    error = WHERE.error(Fault(status, f"{before}{WHERE.key}{after}"))
    assert WHERE.key not in str(error)


def test_a_long_message_is_cut_and_on_one_line() -> None:
    said = str(WHERE.error(Fault(400, "what\n" * 500)))
    assert len(said) < 500
    assert "\n" not in said
