"""Whatever presence a room sends, in whatever order: what an agent sees of it is like a model."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.kernel.rooms import occupants as module
from component.kernel.rooms.occupants import (
    Joined,
    Moved,
    Out,
    OwnChanged,
    RoomPresence,
    RoomView,
)
from tests.component.kernel.rooms.world import RoomWorld, presence, refusal

NICKS = ("Agent", "Agent_2", "Juliet", "Romeo", "")
nicks = st.sampled_from(NICKS)
codes = st.lists(st.sampled_from((110, 201, 210, 301, 303, 307, 321, 332, 333, 999)), max_size=3)
presences = st.builds(
    lambda nick, codes, show, new, role: presence(nick, *codes, show=show, nick=new, role=role),
    nicks,
    codes,
    st.sampled_from(("online", "away", "offline")),
    st.sampled_from((None, *NICKS)),
    st.sampled_from(("visitor", "participant", "moderator")),
)
refusals = st.builds(refusal, nicks, st.sampled_from(("conflict", "forbidden", "jid-malformed")))
given_presences = st.lists(presences | refusals, max_size=40)


@given(given_presences)
def test_any_presence_leaves_the_view_as_the_changes_say(all_: list[RoomPresence]) -> None:
    room = RoomView()
    room.join("Agent")
    seen: dict[str, Any] = {}
    is_in = False
    visits: set[int] = set()
    for each in all_:
        there = set(room.occupants)
        for change in room.take(each):
            if isinstance(change, Joined):
                assert not is_in
                is_in = True
                seen = {one.nick: one for one in change.occupants}
            elif isinstance(change, Out):
                is_in = False
                seen = {}
            elif isinstance(change, OwnChanged):
                assert is_in
                seen.pop(change.own.nick, None)
            elif change.what == "left":
                assert is_in
                del seen[change.occupant.nick]
            else:
                assert is_in
                assert isinstance(change, Moved)
                is_new = change.occupant.nick not in there
                assert change.what == "renamed" or (change.what == "joined") == is_new
                if change.what == "renamed":
                    seen.pop(change.occupant.previous, None)
                seen[change.occupant.nick] = change.occupant
        assert room.is_in == is_in
        assert (room.own is not None) <= is_in
        assert room.nick not in room.occupants or not is_in
        assert "" not in room.occupants
        if is_in:
            found = {nick: one.visit for nick, one in room.occupants.items()}
            gone = {nick for nick in seen if nick not in found}
            assert gone <= {one.nick for one in room._renamed.values()} | {room.nick}
            assert all(seen[nick].visit == visit for nick, visit in found.items())
            assert len(set(found.values())) == len(found), "two occupants are one visit"
        visits |= {one.visit for one in room.occupants.values()}
        assert len(room._renamed) <= len(NICKS)


@given(st.lists(given_presences | st.sampled_from(("connected", "disconnected", "enter"))))
def test_any_history_leaves_a_membership_that_can_join_again(steps: list[Any]) -> None:
    world = RoomWorld()
    membership = world.enter()
    for step in steps:
        if step == "connected":
            world.rooms.connected()
        elif step == "disconnected":
            world.rooms.disconnected()
        elif step == "enter":
            world.enter()
        else:
            world.receive(*step)
        assert (membership.state == "offline") <= (not membership.view.is_in)
        if membership.state == "in":
            assert membership.view.is_in
            assert membership.reason == ""
        if membership.state == "out":
            assert membership.reason
        assert membership._delay_s is None or 0 < membership._delay_s <= 300
        assert len(world.sent) < 2 * sum(len(each) for each in steps) + 2
    world.rooms.disconnected()
    assert not membership.view.occupants
    world.rooms.connected()
    assert membership.state == "joining"


def test_what_a_room_sends_is_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OCCUPANTS", 50)
    room = RoomView()
    room.join("Agent")
    room.take(presence("Agent", 110))
    for number in range(200):
        nick = f"guest {number}"
        room.take(RoomPresence(nick=nick, status="x" * 5_000))
        room.take(presence(nick, 303, show="offline", nick=f"other {number}"))
        assert len(room._renamed) <= 100
    for number in range(200):
        room.take(RoomPresence(nick=f"guest {number}", status="x" * 5_000))
    assert len(room.occupants) == 50
    assert all(len(each.status) <= 1_000 for each in room.occupants.values())
