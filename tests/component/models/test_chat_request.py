"""Messages that every server accepts: one system message, at the beginning, and nothing lost."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from component.models.adapter import normalize_roles
from component.models.chat import join_adjacent
from component.models.messages import (
    ImagePart,
    ModelMessage,
    TextPart,
    ToolCall,
    call_message,
    result_message,
    text_message,
)

words = st.text(st.characters(codec="ascii", categories=["L"]), min_size=3)
said: Any = st.builds(text_message, st.sampled_from(["system", "user", "assistant"]), words)


def alternating(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    return join_adjacent(normalize_roles(messages))


@given(st.lists(said, max_size=12))
def test_only_the_first_message_is_a_system_message_and_nothing_is_lost(
    messages: list[ModelMessage],
) -> None:
    out = normalize_roles(messages)
    assert "system" not in [message.role for message in out[1:]]
    text = "\n".join(message.text for message in out)
    at = 0
    for message in messages:
        at = text.index(message.text, at) + len(message.text)
    assert normalize_roles(out) == out
    if all(message.role != "system" for message in messages[1:]):
        assert out == tuple(messages)
    roles = [message.role for message in join_adjacent(out)]
    assert all(one != other for one, other in pairwise(roles)), "roles alternate"


@given(st.lists(said, max_size=12), st.data())
def test_additions_change_only_the_end(messages: list[ModelMessage], data: st.DataObject) -> None:
    more = data.draw(st.lists(said, max_size=3))
    before, after = alternating(messages), alternating([*messages, *more])
    if before:
        assert after[: len(before) - 1] == before[:-1]
        last = after[len(before) - 1]
        assert last.role == before[-1].role
        assert last.text.startswith(before[-1].text)


def test_calls_and_their_results_are_not_joined() -> None:
    call = call_message("", (ToolCall("c1", "clock", "{}"),))
    messages = (
        text_message("user", "Time?"),
        call,
        result_message("c1", "12:00"),
        result_message("c2", "13:00"),
        text_message("assistant", "Noon."),
    )
    assert alternating(messages) == messages


def test_images_keep_their_position() -> None:
    image = ImagePart("image/png", b"x")
    one = ModelMessage("user", (TextPart("This?"), image))
    two = ModelMessage("user", (TextPart("Or this?"), image))
    (joined,) = join_adjacent([one, two])
    assert joined.parts == (*one.parts, *two.parts)
