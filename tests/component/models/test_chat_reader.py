"""Building the answer from pieces of any size."""

from collections import deque
from collections.abc import Collection
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.answer_limits import (
    ARGUMENTS_CHARACTERS,
    NAME_CHARACTERS,
    TEXT_CHARACTERS,
    TooMuchError,
)
from component.models.chat_reader import ChatReader, Chunk
from component.models.messages import ToolCall, text_of
from component.models.tool_schemas import ToolNames
from tests.profiles import THOROUGH
from xep.characters import without_forbidden

CALLS = st.lists(
    st.tuples(st.sampled_from("abc"), st.dictionaries(st.text(max_size=3), st.integers())),
    max_size=4,
)


def text_in(reader: ChatReader) -> str:
    return text_of(reader.draft.parts(ToolNames(()), "o", set()))


def calls_of(reader: ChatReader, used: Collection[str] = ()) -> list[ToolCall]:
    found = reader.draft.parts(ToolNames(()), "o", set(used))
    return [part for part in found if isinstance(part, ToolCall)]


def chunk(**delta: Any) -> Chunk:
    return msgspec.convert({"choices": [{"delta": delta}]}, Chunk)


def cut(text: str, data: st.DataObject) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(st.text(), CALLS, st.booleans(), st.booleans(), st.data())
def test_text_and_calls_are_put_together(
    text: str,
    calls: list[tuple[str, dict[str, int]]],
    ids: bool,
    repeated: bool,
    data: st.DataObject,
) -> None:
    told: list[str] = []
    reader = ChatReader(told.append)
    pieces: list[list[Chunk]] = [[chunk(content=piece) for piece in cut(text, data)]]
    for index, (name, arguments) in enumerate(calls):
        head = {"index": index} | ({"id": f"id{index}"} if ids else {})
        parts = cut(msgspec.json.encode(arguments).decode(), data)
        pieces.append(
            [
                chunk(
                    tool_calls=[
                        (head if first or repeated else {"index": index})
                        | {
                            "function": {"arguments": part}
                            | ({"name": name} if first or repeated else {})
                        }
                    ]
                )
                for first, part in zip([True] + [False] * len(parts), parts, strict=False)
            ]
        )
    # Servers may let the pieces of several calls take turns; those of each stay in order.
    while left := [some for some in pieces if some]:
        reader.take(data.draw(st.sampled_from(left)).pop(0))
    assert "".join(told) == text
    assert text_in(reader) == without_forbidden(text)
    assert reader.draft.told == bool(text)
    found = calls_of(reader)
    assert len({call.id for call in found}) == len(calls)
    assert sorted((c.name, msgspec.json.decode(c.arguments).__repr__()) for c in found) == sorted(
        (name, repr(arguments)) for name, arguments in calls
    )


KEYS = ("choices", "delta", "message", "tool_calls", "function", "name", "arguments", "id", "index",
        "content", "text", "finish_reason", "usage", "prompt_tokens")  # fmt: skip
JSON = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON))
def test_any_decoded_chunk_can_be_processed(chunks: list[Any]) -> None:
    reader = ChatReader(None)
    for each in chunks:
        try:
            chunk = msgspec.convert(each, Chunk)
        except msgspec.ValidationError:
            continue
        reader.take(chunk)
    calls = calls_of(reader, {"a"})
    assert len({call.id for call in calls}) == len(calls)
    assert reader.draft.finish_reason in ("stop", "length", "tool_calls", "content_filter")


def test_characters_that_cannot_be_stored_are_replaced() -> None:
    reader = ChatReader(None)
    reader.take(chunk(content="a\x00b\ud800c\x1b"))
    reader.take(
        chunk(
            tool_calls=[
                {"id": "i\x01", "function": {"name": "na\x00me", "arguments": '{"a":"\x02"}'}},
                {"index": 1, "id": "x" * 100_000, "function": {"name": "n" * 100_000}},
            ]
        )
    )
    assert text_in(reader) == "a\ufffdb\ufffdc\ufffd"
    one, other = calls_of(reader)
    assert (one.name, one.arguments) == ("na\ufffdme", '{"a":"\ufffd"}')
    assert one.id.startswith("call_")
    assert other.id.startswith("call_")
    assert len(other.name) == NAME_CHARACTERS


def test_a_character_in_two_halves_is_joined() -> None:
    reader = ChatReader(None)
    for half in "😀".encode("utf-16-be").hex(" ", 2).split():
        reader.take(chunk(content=chr(int(half, 16))))
    assert text_in(reader) == "😀"


def test_only_the_requested_choice_counts() -> None:
    reader = ChatReader(None)
    delta = {"delta": {"content": "x"}}
    reader.take(msgspec.convert({"choices": [delta] * 10_000}, Chunk))
    assert text_in(reader) == "x"


@pytest.mark.parametrize(
    ("delta", "times", "sends"),
    [
        ({"content": "x" * 1000}, TEXT_CHARACTERS // 1000 + 1, "a text of more than"),
        (
            {"tool_calls": [{"index": 0, "function": {"name": "a", "arguments": "1" * 1000}}]},
            ARGUMENTS_CHARACTERS // 1000 + 1,
            "characters of arguments",
        ),
        (
            {"tool_calls": [{"function": {"name": "a", "arguments": {"b": "c" * 1000}}}]},
            ARGUMENTS_CHARACTERS // 1000 + 1,
            "more than 128 tool calls",
        ),
        ({"tool_calls": [{"id": "", "function": {"name": "a", "arguments": "{}"}}] * 3000}, 1,
         "more than 128 tool calls"),
    ],
)  # fmt: skip
def test_an_answer_is_limited(delta: dict[str, Any], times: int, sends: str) -> None:
    reader = ChatReader(None)
    one = chunk(**delta)
    with pytest.raises(TooMuchError, match=sends):
        deque((reader.take(one) for _ in range(times)), maxlen=0)


def test_many_pieces_after_a_whole_call_take_linear_time() -> None:
    """Whether a piece repeats the whole call is asked at each: in quadratic time this takes
    minutes.
    """
    reader = ChatReader(None)
    for piece in ('{"a":"' + "x" * 900_000 + '"}', *[" "] * 20_000):
        function = {"name": "a", "arguments": piece}
        reader.take(chunk(tool_calls=[{"id": "c1", "function": function}]))
    (call,) = calls_of(reader)
    assert len(call.arguments) == 920_008


def test_many_pieces_with_names_take_linear_time() -> None:
    """Whether a call is whole is asked at each piece: in quadratic time this takes minutes."""
    count = 200_000 if THOROUGH else 50_000
    reader = ChatReader(None)
    for piece in ('{"a":"', *["}"] * count, '"}'):
        reader.take(chunk(tool_calls=[{"function": {"name": "a", "arguments": piece}}]))
    (call,) = calls_of(reader)
    assert len(call.arguments) == count + 8
