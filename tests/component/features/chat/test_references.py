"""Whichever of its ids names a message, the message is found, and nobody else's is."""

from hypothesis import given
from hypothesis import strategies as st

from component.features.chat.message_ids import References
from component.link.messages.inbound import Account, Conversation, InboundMessage, ReplyAddress
from xep.jid import JID

AGENT = JID.parse("assistant@agent.example.com")
ALICE = JID.parse("alice@a.example/phone")
BOB = JID.parse("bob@a.example/phone")


def message(
    id_: str | None,
    origin: str | None = None,
    *,
    replaces: str | None = None,
    sender: JID = ALICE,
) -> InboundMessage:
    return InboundMessage(
        id=id_,
        origin_id=origin,
        replaces=replaces,
        type="chat",
        sender=sender,
        principal=sender.bare,
        actor=Account(sender.bare),
        conversation=Conversation(AGENT, sender.bare),
        reply_to=ReplyAddress(str(sender), AGENT),
    )


@given(st.lists(st.sampled_from(["same", "other"]), max_size=6), st.data())
def test_every_correction_finds_the_first_message(kinds: list[str], data: st.DataObject) -> None:
    known, ids = References(), ["m0", "o0"]
    known.add(message("m0", "o0"))
    for number, kind in enumerate(kinds, 1):
        named = data.draw(st.sampled_from(ids))
        origin = f"o{number}" if kind == "other" else f"m{number}"
        correction = message(f"m{number}", origin, replaces=named)
        assert known.first(correction) == "m0"
        known.add(correction)
        ids += [each for each in (correction.id, correction.origin_id) if each]
    assert {known.first(message("last", replaces=each)) for each in ids} == {"m0"}
    assert known.first(message("last", replaces="o0", sender=BOB)) == "o0"


def test_what_is_not_known_is_what_it_is_called() -> None:
    known = References()
    known.add(message(None, "o1"))
    assert known.first(message("m2", replaces="o1")) == "o1"
    assert known.first(message("m2", replaces="m9")) == "m9"
