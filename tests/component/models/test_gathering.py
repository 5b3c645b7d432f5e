"""From pieces to the whole answer, however a server cuts it."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from component.models.chat_wire import Chunk
from component.models.gathering import Gathering

CALLS = st.lists(
    st.tuples(st.sampled_from("abc"), st.dictionaries(st.text(max_size=3), st.integers())),
    max_size=4,
)


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
    gathering = Gathering(told.append)
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
        gathering.take(data.draw(st.sampled_from(left)).pop(0))
    assert gathering.text == "".join(told) == text
    assert gathering.told == bool(text)
    found = gathering.calls(set())
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
def test_any_chunk_that_can_be_read_can_be_taken(chunks: list[Any]) -> None:
    gathering = Gathering(None)
    for each in chunks:
        try:
            chunk = msgspec.convert(each, Chunk)
        except msgspec.ValidationError:
            continue
        gathering.take(chunk)
    calls = gathering.calls({"a"})
    assert len({call.id for call in calls}) == len(calls)
    assert gathering.finish in ("stop", "length", "tool_calls", "content_filter")
