"""`xmpp_send` writes to whom the settings permit, and not more often."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.config.skills import XmppSend
from component.features.builtins.xmpp_send import xmpp_send_skill
from component.kernel.guarded_messages import GuardedMessages, HourlyLimit, Sending
from component.skills import InvalidParam, Skill
from tests.component.skill_calls import called, text_of
from xep.jid import JID

pytestmark = pytest.mark.anyio


class Messages(Sending):
    """Notes what is sent."""

    def __init__(self, known: str = "romeo@example.com", stopped: str = "") -> None:
        self.known = known
        self.stopped = stopped
        self.sent: list[tuple[str, str, str]] = []

    def refusal(self, agent: str, person: JID) -> str | None:
        return "They do not want it." if str(person) == self.stopped else None

    async def knows(self, agent: str, person: JID) -> bool:
        return str(person) == self.known

    def send(self, agent: str, person: JID, text: str, key: str) -> None:
        self.sent.append((agent, str(person), text))

    def title(self, agent: str) -> str:
        return "Ada"


def sending(messages: Messages, **more: Any) -> Skill:
    settings = XmppSend(**({"recipients": ["*@example.com"]} | more))
    guarded = GuardedMessages(settings, messages)
    return xmpp_send_skill(settings, lambda: guarded)


ROMEO = {"to": "romeo@example.com/balcony", "text": "I am late."}


async def test_a_message_says_on_whose_behalf_it_is() -> None:
    messages = Messages()
    result = await called(sending(messages), ROMEO, agent="assistant/sub-1")
    assert text_of(result) == "Sent to romeo@example.com."
    text = "juliet@example.com asks me to tell you:\nI am late."
    assert messages.sent == [("assistant", "romeo@example.com", text)]


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("tybalt@example.org", "not permitted"),
        ("romeo@example.com.evil.example", "not permitted"),
        ("mercutio@example.com", "do not want it"),
        ("nurse@example.com", "does not share presence"),
    ],
)
async def test_others_are_not_written_to(to: str, reason: str) -> None:
    messages = Messages(stopped="mercutio@example.com")
    result = await called(sending(messages), {"to": to, "text": "x"})
    assert result.is_error
    assert reason in text_of(result)
    assert messages.sent == []


async def test_a_stranger_is_told_who_writes_if_the_settings_permit_it() -> None:
    messages = Messages(known="")
    await called(sending(messages, first_contact="introduce"), ROMEO)
    assert messages.sent[0][2].startswith("Hello, I am Ada, an agent. Send /stop if")


async def test_messages_are_limited_for_each_person_and_recipient() -> None:
    messages = Messages()
    skill = sending(messages, per_recipient_per_hour=2, per_hour=3, first_contact="introduce")
    assert not (await called(skill, ROMEO)).is_error
    assert not (await called(skill, ROMEO)).is_error
    assert "as many messages" in text_of(await called(skill, ROMEO))
    assert "as many" in text_of(await called(skill, ROMEO, principal="nurse@example.com"))
    other = {"to": "paris@example.com", "text": "x"}
    assert not (await called(skill, other)).is_error
    assert "as many" in text_of(await called(skill, {"to": "lord@example.com", "text": "x"}))
    assert len(messages.sent) == 3


@pytest.mark.parametrize("params", [{"to": "example.com"}, {"to": "a@@b"}, {"text": "x" * 4001}])
async def test_invalid_parameters(params: dict[str, Any]) -> None:
    messages = Messages()
    with pytest.raises(InvalidParam):
        await called(sending(messages), ROMEO | params)
    assert messages.sent == []


def test_a_person_is_asked_because_it_is_destructive() -> None:
    skill = sending(Messages())
    assert skill.annotations.destructive
    assert skill.annotations.open_world
    assert skill.capabilities == ("xmpp:send",)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 2000)), max_size=40), st.integers(1, 5)
)
def test_no_hour_has_more_than_the_maximum(events: list[tuple[str, float]], most: int) -> None:
    limit, now = HourlyLimit(most), 0.0
    counted: dict[str, list[float]] = {"a": [], "b": []}
    for key, later in events:
        now += later
        recent = [time for time in counted[key] if time > now - 3600]
        assert limit.full(key, now) == (len(recent) >= most)
        if not limit.full(key, now):
            limit.count(key, now)
            counted[key].append(now)
