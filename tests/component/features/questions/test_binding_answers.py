"""An answer binds only if the person asked has given it, just now, as a message of its own."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.component.features.questions.chat_world import BOB, PHONE, World
from tests.component.link.router.wire import AGENT

pytestmark = pytest.mark.anyio

FORWARDED = "<forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client'/></forwarded>"
# How an answer to the question c-t1 is given: its body, and what stands beside it.
ANSWERS = {
    "a word": ("yes", ""),
    "a phrase": ("go ahead", ""),
    "a no": ("nope", ""),
    "a reply": ("ok", f"<reply xmlns='urn:xmpp:reply:0' id='c-t1' to='{AGENT}'/>"),
    "a command": ("/approve c-t1", ""),
    "an action": (None, "<action-selected xmlns='urn:xmpp:tmp:quick-response' id='approve:c-t1'/>"),
    "a reaction": (
        None,
        (
            "<reactions xmlns='urn:xmpp:reactions:0' id='c-t1'><reaction>\U0001f44d</reaction>"
            "</reactions>"
        ),
    ),
}
SENDERS = {PHONE: True, "alice@a.example": True, BOB: False, "alice@a.example.evil/phone": False}
TYPES = {"chat": True, "normal": True, "groupchat": False, "error": False, "headline": False}
# What stands beside an answer, and whether it binds with that.
BESIDES = {
    "": True,
    "<active xmlns='http://jabber.org/protocol/chatstates'/>": True,
    "<origin-id xmlns='urn:xmpp:sid:0' id='o1'/>": True,
    "<delay xmlns='urn:xmpp:delay' stamp='2026-11-21T10:00:00Z'/>": False,
    "<delay xmlns='urn:xmpp:delay'/>": False,
    "<x xmlns='jabber:x:delay' stamp='20261121T10:00:00'/>": False,
    "<x xmlns='http://jabber.org/protocol/muc#user'/>": False,
    "<replace xmlns='urn:xmpp:message-correct:0' id='m0'/>": False,
    "<retract xmlns='urn:xmpp:message-retract:1' id='m0'/>": False,
    "<encrypted xmlns='urn:xmpp:omemo:2'/>": False,
    FORWARDED: False,
    f"<received xmlns='urn:xmpp:carbons:2'>{FORWARDED}</received>": False,
    f"<sent xmlns='urn:xmpp:carbons:2'>{FORWARDED}</sent>": False,
    f"<result xmlns='urn:xmpp:mam:2' id='1'>{FORWARDED}</result>": False,
}


class Given(NamedTuple):
    """One message."""

    answer: str
    sender: str
    type_: str
    beside: tuple[str, ...]

    @property
    def binds(self) -> bool:
        here = all(BESIDES[one] for one in self.beside)
        return here and SENDERS[self.sender] and TYPES[self.type_]


MESSAGES = st.builds(
    Given,
    st.sampled_from(list(ANSWERS)),
    st.sampled_from(list(SENDERS)),
    st.sampled_from(list(TYPES)),
    st.lists(st.sampled_from(list(BESIDES)), max_size=2, unique=True).map(tuple),
)


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.booleans())
async def test_only_an_answer_that_binds_decides(messages: list[Given], late: bool) -> None:
    world = World()
    async with world.bench.running():
        world.confirm("t1")
        if late:
            world.ledger.now += 60_000
        decided = False
        for message in messages:
            before = world.state("t1")
            body, answer = ANSWERS[message.answer]
            how: dict[str, Any] = {"from_": message.sender, "type_": message.type_}
            await world.say(body, more=answer + "".join(message.beside), **how)
            after = world.state("t1")
            if after != before and not late:
                assert message.binds, message
                assert after == ("failed" if message.answer == "a no" else "accepted")
            if late:
                assert after in ("input-required", "failed")
            decided = decided or message.binds
        assert late or decided == (world.state("t1") != "input-required")
