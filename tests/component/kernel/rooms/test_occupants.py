"""What the presence of a room means, whatever the room sends."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from component.features.watches.room_watcher import observed
from component.kernel.rooms.occupants import (
    Joined,
    Moved,
    Out,
    OwnChanged,
    RoomOccupant,
    RoomPresence,
    RoomView,
)
from tests.component.kernel.rooms.world import presence
from xep.binding import RawXML
from xep.jid import JID
from xep.muc import Actor, Destroy, Item, Status, User
from xep.stanza_error import StanzaError
from xep.tree import tree_of

NICKS = ("Juliet", "Romeo", "Nurse")


def entered(*others: str) -> RoomView:
    room = RoomView()
    room.join("Agent")
    for nick in others:
        assert not room.take(presence(nick))
    (joined,) = room.take(presence("Agent", 110))
    assert isinstance(joined, Joined)
    assert [each.nick for each in joined.occupants] == list(others)
    return room


def moves(room: RoomView, *presences: RoomPresence) -> list[tuple[str, str]]:
    found = [change for each in presences for change in room.take(each)]
    assert all(isinstance(each, Moved) for each in found)
    return [(each.what, each.occupant.nick) for each in found if isinstance(each, Moved)]


def test_those_who_are_there_are_no_news_and_others_are() -> None:
    room = entered("Juliet")
    assert moves(room, presence("Juliet"), presence("Romeo"), presence("Romeo", show="away")) == [
        ("joined", "Romeo"),
        ("changed", "Romeo"),
    ]
    assert moves(room, presence("Juliet", show="offline")) == [("left", "Juliet")]


def test_a_status_alone_is_no_change_and_an_affiliation_is() -> None:
    room = entered("Juliet")
    assert not moves(room, RoomPresence(nick="Juliet", user=User(items=(Item(),)), status="hm"))
    assert moves(room, presence("Juliet", affiliation="member")) == [("changed", "Juliet")]


def test_a_new_nickname_is_one_event() -> None:
    room = entered("Romeo")
    gone = presence("Romeo", 303, show="offline", nick="Montague")
    assert moves(room, gone, presence("Montague")) == [("renamed", "Montague")]
    assert room.occupants["Montague"].previous == "Romeo"


def test_the_agent_follows_a_nickname_that_the_room_gives_it() -> None:
    room = RoomView()
    room.join("agent")
    room.take(presence("agent-2", 110, 210))
    assert room.nick == "agent-2"
    assert not room.take(presence("agent-2", 110, 303, show="offline", nick="agent-3"))
    assert room.nick == "agent-2"
    (changed,) = room.take(presence("agent-3", 110))
    assert isinstance(changed, OwnChanged)
    assert (room.nick, room.is_in) == ("agent-3", True)


def out(room: RoomView, given: RoomPresence) -> Out:
    (found,) = room.take(given)
    assert isinstance(found, Out)
    assert not room.is_in
    return found


def test_each_removal_says_why_and_when_the_agent_returns() -> None:
    def removed(*codes: int, **user: Any) -> Out:
        statuses = tuple(Status(code=code) for code in (110, *codes))
        return out(
            entered(),
            RoomPresence(nick="Agent", user=User(statuses=statuses, **user), show="offline"),
        )

    moderator = (Item(actor=Actor(nick="Nurse"), reason="Hush!"),)
    kick = removed(307, items=moderator)
    assert kick.reason == "the agent was kicked by Nurse: Hush!"
    assert (kick.again, kick.refused) == ("next session", True)
    assert removed(301).reason == "the agent was banned"
    assert removed(307, 333).again == "soon"
    assert removed(332).again == "soon"
    assert (removed(322).again, removed(322).refused) == ("later", True)
    destroyed = removed(destroy=Destroy(jid=JID.parse("new@rooms.example"), reason="Moved."))
    assert destroyed.reason == "the room was destroyed: Moved.; it is replaced by new@rooms.example"


def test_a_refusal_says_why() -> None:
    room = RoomView()
    room.join("Agent")
    refusal = RoomPresence(nick="Agent", error=StanzaError("conflict"), show="offline")
    assert "another occupant has the nickname Agent" in out(room, refusal).reason
    assert not entered().take(refusal), "it is in the room already"


steps = st.lists(
    st.tuples(
        st.sampled_from(NICKS),
        st.sampled_from(("online", "away", "offline")),
        st.sampled_from(("none", "member", "owner")),
    ),
    max_size=30,
)


@given(steps, steps)
def test_the_events_lead_from_the_first_occupants_to_the_last(before: Any, after: Any) -> None:
    def take(room: RoomView, given: Any) -> list[Any]:
        return [
            change
            for nick, show, affiliation in given
            for change in room.take(presence(nick, show=show, affiliation=affiliation))
        ]

    room = RoomView()
    room.join("Agent")
    assert not take(room, before)
    (joined,) = room.take(presence("Agent", 110))
    assert isinstance(joined, Joined)
    seen = {each.nick: each for each in joined.occupants}
    for change in take(room, after):
        nick = change.occupant.nick
        if change.what == "left":
            seen.pop(nick, None)
        else:
            assert (change.what == "joined") == (nick not in seen)
            seen[nick] = change.occupant
    assert seen == room.occupants


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))),
)
def test_an_event_is_xml_with_what_can_be_filtered(nick: str, status: str) -> None:
    occupant = RoomOccupant(nick=nick, jid="romeo@example.com", role="visitor", status=status)
    event = observed("joined", occupant, "lab@rooms.example")
    if any(ord(each) in (0xFFFE, 0xFFFF) for each in nick + status):
        return  # no characters of XML
    tree = tree_of(RawXML(event.payload))
    assert tree.attributes["nick"] == nick
    assert tree.attributes["event"] == "joined"
    assert (tree.attributes["jid"], tree.attributes["role"]) == ("romeo@example.com", "visitor")
    assert tree.text == status
