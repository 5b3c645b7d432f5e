"""The same message twice is one message."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from component.features.chat.message_ids import Duplicates, message_key
from component.link.messages.inbound import (
    Account,
    Conversation,
    InboundMessage,
    Occupant,
    ReplyAddress,
)
from xep.jid import JID

AGENT = JID.parse("assistant@agent.example.org")
ALICE = JID.parse("alice@example.org/phone")
ROOM = JID.parse("garden@muc.example.org")


def message(
    text: str = "hello",
    *,
    id_: str | None = None,
    origin_id: str | None = None,
    stanza_id: str | None = None,
    sender: JID = ALICE,
    in_room: bool = False,
) -> InboundMessage:
    actor = Occupant(ROOM, sender.resource or "", None) if in_room else Account(sender.bare)
    return InboundMessage(
        id=id_,
        origin_id=origin_id,
        stanza_id=stanza_id,
        type="groupchat" if in_room else "chat",
        sender=sender,
        principal=sender.bare,
        actor=actor,
        conversation=Conversation(AGENT, ROOM if in_room else sender.bare, in_room=in_room),
        reply_to=ReplyAddress(to=str(sender), from_=AGENT, type="chat"),
        text=text,
    )


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_repetition_is_recognised_by_its_origin_id() -> None:
    known = Duplicates(Clock())
    assert known.add(message(origin_id="o1"))
    assert not known.add(message(origin_id="o1"))


def test_a_copy_from_an_archive_is_recognised_by_its_stanza_id() -> None:
    known = Duplicates(Clock())
    assert known.add(message(origin_id="o1", stanza_id="s1"))
    copy = msgspec.structs.replace(message(stanza_id="s1"), delayed=True)
    assert not known.add(copy)


def test_a_repetition_is_recognised_by_the_id_of_its_stanza_for_an_hour() -> None:
    clock = Clock()
    known = Duplicates(clock)
    first = message(id_="f81d4fae-7dec")
    again = msgspec.structs.replace(first, sender=JID.parse("alice@example.org/laptop"))
    assert known.add(first)
    clock.now = 3_599.0
    assert not known.add(msgspec.structs.replace(again, delayed=True))
    assert message_key(first) == message_key(again) is not None
    known.forget(again)
    assert known.add(again)


def test_an_id_that_a_client_counts_is_the_same_for_a_minute_and_one_login() -> None:
    clock = Clock()
    known = Duplicates(clock)
    first = message(id_="7")
    assert message_key(first) is None
    assert known.add(first)
    assert known.add(msgspec.structs.replace(first, sender=JID.parse("alice@example.org/laptop")))
    assert not known.add(first)
    clock.now = 120.0
    assert known.add(first)
    known.forget(first)
    assert known.add(first)


def test_a_message_without_any_id_is_never_a_repetition() -> None:
    known = Duplicates(Clock())
    assert known.add(message())
    assert known.add(message())


def test_the_same_id_with_other_content_is_another_message() -> None:
    known = Duplicates(Clock())
    assert known.add(message("yes", origin_id="1"))
    assert known.add(message("no", origin_id="1"))


def test_nobody_can_use_up_the_ids_of_others() -> None:
    known = Duplicates(Clock())
    assert known.add(message(origin_id="o1", sender=JID.parse("mallory@example.org/x")))
    assert known.add(message(origin_id="o1"))
    for nick in ("alice", "mallory"):
        sender = JID.parse(f"{ROOM}/{nick}")
        assert known.add(message(origin_id="o1", stanza_id="s1", sender=sender, in_room=True))


def test_another_client_of_the_same_account_may_send_it_again() -> None:
    known = Duplicates(Clock())
    assert known.add(message(origin_id="o1"))
    assert not known.add(message(origin_id="o1", sender=JID.parse("alice@example.org/laptop")))


def test_what_could_not_be_handled_is_taken_when_it_comes_again() -> None:
    known = Duplicates(Clock())
    assert known.add(message(origin_id="o1", stanza_id="s1"))
    known.forget(message(origin_id="o1", stanza_id="s1"))
    assert known.add(message(origin_id="o1", stanza_id="s1"))


def test_an_hour_later_it_is_forgotten() -> None:
    clock = Clock()
    known = Duplicates(clock)
    assert known.add(message(origin_id="o1"))
    clock.now = 3600.0
    assert known.add(message(origin_id="o1"))


ONE = st.builds(
    message,
    st.sampled_from(["yes", "no"]),
    origin_id=st.sampled_from([None, "1", "2"]),
    stanza_id=st.sampled_from([None, "1", "2"]),
)


@given(st.lists(ONE, max_size=20))
def test_each_message_is_new_once(messages: list[InboundMessage]) -> None:
    known = Duplicates(Clock())
    seen: set[tuple[str, str, str]] = set()
    for one in messages:
        ids = [("origin", one.origin_id), ("stanza", one.stanza_id)]
        keys = {(kind, id_, one.text) for kind, id_ in ids if id_ is not None}
        assert known.add(one) == keys.isdisjoint(seen)
        seen |= keys
