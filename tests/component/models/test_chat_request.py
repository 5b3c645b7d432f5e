"""What every server takes: one system message, at the beginning, and nothing lost."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from component.models.chat_request import led
from component.models.protocol import ChatMessage

words = st.text(st.characters(codec="ascii", categories=["L"]), min_size=3)
said: Any = st.builds(ChatMessage, st.sampled_from(["system", "user", "assistant"]), words)


@given(st.lists(said, max_size=12))
def test_the_system_speaks_first_and_nothing_is_lost(messages: list[ChatMessage]) -> None:
    out = led(messages)
    assert "system" not in [message.role for message in out[1:]]
    text = "\n".join(message.content for message in out)
    at = 0
    for message in messages:
        at = text.index(message.content, at) + len(message.content)
    assert led(out) == out
    if all(message.role != "system" for message in messages[1:]):
        assert out == tuple(messages)


def test_what_is_there_already_is_left_as_it_is() -> None:
    two = (ChatMessage("user", "One."), ChatMessage("user", "Two."))
    assert led(two) == two
