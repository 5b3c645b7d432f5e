"""An agent joins a room, stays in it through everything that a room does, and says why it is not
there. On both event loops.
"""

import time
from typing import Any

import anyio
import pytest

from component.kernel.rooms import membership as module
from component.kernel.rooms.membership import Configured, Elsewhere
from component.kernel.rooms.occupants import Joined, Out, OwnChanged
from tests.component.kernel.rooms.world import AGENT, ROOM, RoomWorld, presence
from xep.jid import JID
from xep.muc import Destroy
from xep.stanza_error import Condition

pytestmark = pytest.mark.anyio


async def test_the_agent_joins_and_leaves() -> None:
    world = RoomWorld()
    world.comes("Juliet", live=False)
    async with world.running() as membership:
        await world.is_in("in")
        assert membership.name == "The lab"
        assert [each.nick for each in membership.view.occupants.values()] == ["Juliet"]
        world.rooms.leave(AGENT, ROOM, "test")
        assert world.sent == ["join Agent", "leave Agent"]
        assert not world.rooms.is_room(ROOM)


@pytest.mark.parametrize(
    ("pong", "joins"),
    [
        (None, 1),
        ("service-unavailable", 1),
        ("feature-not-implemented", 1),
        ("remote-server-timeout", 1),
        ("not-acceptable", 2),
        ("item-not-found", 2),
    ],
)
async def test_a_ping_to_oneself_shows_whether_the_agent_is_still_there(
    pong: Condition | None, joins: int
) -> None:
    world = RoomWorld()
    world.pong = pong
    async with world.running():
        await world.until(lambda: world.pings >= 2 and len(world.sent) >= joins)
        assert world.sent[0] == "join Agent"
        assert (len(world.sent) == 1) == (joins == 1)


async def test_a_nickname_that_changes_during_a_ping_is_no_loss() -> None:
    world = RoomWorld()
    world.pong = "item-not-found"
    world.pinged = lambda: world.receive(
        presence("Agent", 110, 303, show="offline", nick="Bot"), presence("Bot", 110)
    )
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        await membership._check()
        assert membership.is_in
        assert membership.view.nick == "Bot"
        world.pinged = lambda: None
        await membership._check()
        assert not membership.is_in


async def test_a_missing_room_is_not_created() -> None:
    world = RoomWorld()
    world.missing = "item-not-found"
    async with world.running() as membership:
        await world.is_in("out")
        assert membership.reason == "there is no such room"
        assert not world.sent
        world.missing, world.codes = None, (110, 201)  # it is gone before the agent joins
        await world.until(lambda: "leave Agent" in world.sent)
        assert world.sent[:3] == ["join Agent", "destroy", "leave Agent"]
        assert membership.reason == "there is no such room"
        world.codes = (110,)
        await world.is_in("in")


async def test_an_address_that_is_no_room_is_not_joined() -> None:
    world = RoomWorld()
    world.features = ["urn:xmpp:ping"]
    async with world.running() as membership:
        await world.is_in("out")
        assert membership.reason == "the address is not that of a room"
        assert not world.sent


async def test_a_refusal_is_tried_again_and_a_kick_only_in_the_next_session() -> None:
    world = RoomWorld()
    world.refusals[""] = "registration-required"
    async with world.running() as membership:
        await world.until(lambda: len(world.sent) >= 2)
        assert membership.reason == "only members may join"
        world.refusals.clear()
        await world.is_in("in")
        world.removes(307)
        await world.is_in("out")
        count = len(world.sent)
        await anyio.wait_all_tasks_blocked()
        assert membership._delay_s is None, "no timer wakes it"
        assert len(world.sent) == count
        world.rooms.disconnected()
        world.rooms.connected()
        await world.is_in("in")


@pytest.mark.parametrize("code", [301, 307])
async def test_an_agent_that_was_removed_tries_again_when_it_is_invited(code: int) -> None:
    world = RoomWorld()
    async with world.running() as membership:
        await world.is_in("in")
        world.removes(code)
        assert membership.state == "out"
        world.enter()
        await world.is_in("in")


@pytest.mark.ports
async def test_a_kick_in_the_moment_of_a_check() -> None:
    world = RoomWorld()
    async with world.running(check_s=0.001), anyio.create_task_group() as group:

        async def delay_the_loop() -> None:
            time.sleep(0.003)  # noqa: ASYNC251 - until both deadlines have passed

        for _ in range(20):
            await world.is_in("in")
            group.start_soon(delay_the_loop)
            await anyio.sleep(0.001)
            world.removes(307)
            count = len(world.sent)
            await anyio.wait_all_tasks_blocked()
            assert len(world.sent) == count
            world.rooms.disconnected()
            world.rooms.connected()


async def test_a_room_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOIN_S", 0.01)
    monkeypatch.setattr(module, "OTHERS_S", 0.01)
    world = RoomWorld()
    world.silent = True
    async with world.running() as membership:
        await world.is_in("out")
        assert membership.reason == "the room does not answer"
        world.silent = False
        await world.is_in("in")


async def test_failures_are_tried_again_more_and_more_slowly() -> None:
    world = RoomWorld()
    async with world.running(check_s=300.0) as membership:
        await world.is_in("in")
        delays = []
        for _ in range(12):
            world.removes(333)  # each time, shortly after the agent has joined
            assert membership.state == "out"
            delays.append(membership._delay_s)
            membership._set("joining")
            await world.is_in("in")
        assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
        membership._since -= module._STABLE_S
        world.removes(333)
        assert membership._delay_s == 1


@pytest.mark.parametrize("nick", ["Agent", "Agent_2"])
async def test_one_of_two_instances_joins_and_the_other_takes_over(
    nick: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "JOIN_S", 0.01)
    monkeypatch.setattr(module, "OTHERS_S", 0.01)
    world = RoomWorld()
    world.silent = world.has_others = True  # the server sends the answer to the other instance
    world.instance = nick
    async with world.running() as membership:
        await world.is_in("elsewhere")
        assert world.changes == [Elsewhere()]
        assert "another instance" in membership.reason
        pings = world.pings
        await world.until(lambda: world.pings > pings + 3)
        assert world.sent == ["join Agent"]
        world.silent, world.instance = False, ""
        await world.is_in("in")
        assert world.sent == ["join Agent", "join Agent"]


async def test_an_instance_to_which_the_server_begins_to_send_the_room_joins_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "JOIN_S", 0.01)
    monkeypatch.setattr(module, "OTHERS_S", 0.01)
    world = RoomWorld()
    world.silent = world.has_others = True
    world.instance = "Agent"
    async with world.running(check_s=60.0) as membership:
        await world.is_in("elsewhere")
        world.silent = False
        world.comes("Rosaline")  # the other instance has ended
        await world.is_in("in")
        assert [each.nick for each in membership.view.occupants.values()] == ["Rosaline"]


async def test_an_instance_learns_at_its_next_check_that_the_room_is_sent_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "JOIN_S", 0.01)
    monkeypatch.setattr(module, "OTHERS_S", 0.01)
    world = RoomWorld()
    world.silent = world.has_others = True
    world.instance = "Agent"
    async with world.running(check_s=0.01):
        await world.is_in("elsewhere")
        world.silent, world.tag = False, "own"  # a third instance is there
        await world.is_in("in")


async def test_an_instance_that_is_in_a_room_learns_that_it_is_sent_to_another() -> None:
    world = RoomWorld()
    world.has_others = True
    world.instance, world.tag = "Agent", "own"
    async with world.running(check_s=0.01) as membership:
        await world.is_in("in")
        pings = world.pings
        await world.until(lambda: world.pings > pings + 2)
        assert membership.is_in
        world.tag = "other"
        await world.is_in("elsewhere")
        assert world.changes[-1] == Elsewhere()
        assert not membership.view.occupants


@pytest.mark.ports
async def test_the_agent_leaves_when_the_service_stops_unless_another_instance_is_there() -> None:
    world = RoomWorld()
    async with world.running() as membership:
        await world.is_in("in")
        world.has_others = True
        world.rooms.leaving()
        assert membership.state == "in"
        world.has_others = False
        world.rooms.leaving()
        assert world.sent[-1] == "leave Agent"
        world.receive(presence("Agent", 110, show="offline"))
        assert membership.state == "offline"


# Nicknames.


async def test_a_nickname_that_is_taken_gets_a_number_and_is_taken_back_when_it_is_free() -> None:
    world = RoomWorld()
    world.comes("Agent", live=False)
    world.comes("Agent_2", live=False)
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        assert world.sent == ["join Agent", "join Agent_2", "join Agent_3"]
        assert membership.view.nick == "Agent_3"
        world.goes("Agent_2")
        assert membership.view.nick == "Agent_3"
        world.goes("Agent")
        assert membership.view.nick == "Agent"
        assert world.sent[3:] == ["show Agent"]
        assert isinstance(world.changes[-1], OwnChanged)


async def test_a_nickname_that_another_occupant_gives_up_is_taken_back() -> None:
    world = RoomWorld()
    world.comes("Agent", live=False)
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        del world.there["Agent"]
        world.receive(presence("Agent", 303, show="offline", nick="Romeo"), presence("Romeo"))
        assert membership.view.nick == "Agent"


async def test_a_nickname_that_is_reserved_is_not_asked_for_again_and_again() -> None:
    world = RoomWorld()
    world.refusals["Agent"] = "conflict"  # of a member who is not there
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        assert membership.view.nick == "Agent_2"
        for number in range(20):
            world.comes(f"guest {number}")
            world.goes(f"guest {number}")
        assert world.sent == ["join Agent", "join Agent_2"]


async def test_when_all_nicknames_are_taken_the_agent_stays_out_and_says_so() -> None:
    world = RoomWorld()
    world.refusals[""] = "conflict"
    async with world.running(check_s=60.0) as membership:
        await world.is_in("out")
        assert len(world.sent) == module._NICKS
        assert membership.reason == "another occupant has the nickname Agent"
        (out,) = world.changes
        assert isinstance(out, Out)
        assert out.again == "later"


async def test_a_nickname_that_the_room_gives_is_kept() -> None:
    world = RoomWorld()
    async with world.running(check_s=0.01) as membership:
        await world.is_in("in")
        world.receive(presence("Agent", 110, 303, show="offline", nick="Bot"), presence("Bot", 110))
        pings = world.pings
        await world.until(lambda: world.pings > pings + 2)
        assert membership.view.nick == "Bot"
        assert world.sent == ["join Agent"]


@pytest.mark.parametrize("condition", ["jid-malformed", "not-acceptable"])
async def test_a_nickname_that_the_room_refuses_is_said(condition: Condition) -> None:
    world = RoomWorld()
    world.refusals["🤖"] = condition
    async with world.running(nick="🤖", check_s=60.0) as membership:
        await world.is_in("out")
        assert "the nickname 🤖" in membership.reason
        assert "nickname" in membership.advice


async def test_a_nickname_that_no_address_can_have_is_said() -> None:
    world = RoomWorld()
    async with world.running(nick="a" * 2000, check_s=60.0) as membership:
        await world.is_in("out")
        assert "is not allowed" in membership.reason
        assert not world.sent


# What rooms demand and say.


async def test_a_password_is_sent_and_a_wrong_one_is_said() -> None:
    world = RoomWorld()
    async with world.running(password="secret", check_s=60.0) as membership:
        await world.is_in("in")
        assert world.joins[-1].password == "secret"
        world.refusals[""] = "not-authorized"
        world.rooms.disconnected()
        world.rooms.connected()
        await world.is_in("out")
        assert "password" in membership.reason


async def test_the_largest_wish_for_history_counts_and_after_a_loss_what_was_said_since() -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0):
        await world.is_in("in")
        (history,) = [each.history for each in world.joins]
        assert history is not None
        assert (history.max_stanzas, history.since) == (0, None)
        world.enter("talk", history=50, check_s=60.0)
        await world.until(lambda: len(world.joins) == 2 and world.membership.is_in)
        again = world.joins[-1].history
        assert again is not None
        assert again.max_stanzas == 50


async def test_after_a_loss_the_agent_asks_for_what_was_said_since() -> None:
    world = RoomWorld()
    async with world.running(history=50, check_s=60.0) as membership:
        await world.is_in("in")
        seen = membership._seen
        assert seen is not None
        world.rooms.disconnected()
        world.rooms.connected()
        await world.is_in("in")
        first, second = (each.history for each in world.joins)
        assert first is not None
        assert first.since is None
        assert second is not None
        assert second.since is not None
        assert 60 <= (seen - second.since).total_seconds() < 62
        assert second.max_stanzas == 50


async def test_voice_that_is_taken_and_given_is_a_change() -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        assert not membership.is_muted
        world.receive(presence("Agent", 110, role="visitor"))
        assert membership.is_muted
        world.receive(presence("Agent", 110, role="visitor"))
        world.receive(presence("Agent", 110, role="participant"))
        assert not membership.is_muted
        own = [each for each in world.changes if isinstance(each, OwnChanged)]
        assert [each.own.role for each in own] == ["visitor", "participant"]


async def test_each_user_learns_of_each_change_and_the_agent_leaves_with_the_last() -> None:
    world = RoomWorld()
    async with world.running(nick="", check_s=60.0) as membership:
        await world.is_in("in")
        assert membership.view.nick == "assistant"
        world.enter("talk", check_s=60.0)
        assert membership.view.nick == "Agent"
        world.changes.clear()
        world.comes("Juliet")
        assert len(world.changes) == 2
        world.rooms.leave(AGENT, ROOM, "test")
        assert membership.is_in
        world.rooms.leave(AGENT, ROOM, "talk")
        assert membership.state == "offline"


# What admins are told.


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("forbidden", "Ask an owner of the room to lift the ban."),
        ("registration-required", "Ask an admin of the room to make the agent a member."),
        ("not-authorized", "Set the password of the room."),
        ("jid-malformed", "Choose another nickname for the agent, without emoji."),
    ],
)
async def test_admins_are_told_once_why_the_agent_is_not_in_a_room(
    condition: Condition, said: str
) -> None:
    world = RoomWorld()
    world.refusals[""] = condition
    async with world.running():
        await world.until(lambda: len(world.sent) >= 3)
        (told,) = world.said
        assert told.startswith("assistant@agent.example is not in the room lab@rooms.example: ")
        assert told.endswith(said)
        assert world.rooms.warnings() == [told] or world.membership.state == "joining"
        world.refusals.clear()
        await world.is_in("in")
        assert not world.rooms.warnings()


async def test_admins_are_not_told_of_rooms_that_people_have_chosen() -> None:
    world = RoomWorld()
    world.missing = "item-not-found"
    async with world.running(tells_admins=False):
        await world.is_in("out")
        assert not world.said
        assert not world.rooms.warnings()


async def test_a_room_that_is_destroyed_names_another_one_that_is_not_joined() -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        world.missing = "item-not-found"
        instead = Destroy(jid=JID.parse("new@rooms.example"), reason="Moved.")
        world.removes(destroy=instead)
        assert membership.reason.endswith("Moved.; it is replaced by new@rooms.example")
        assert [one.room for one in world.rooms] == [ROOM]


async def test_a_destroyed_room_without_the_status_of_the_own_presence() -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        world.receive(presence("", show="offline"))  # of the room itself
        assert membership.is_in
        gone: Any = presence("Agent", show="offline")
        gone = type(gone)(nick="Agent", user=type(gone.user)(destroy=Destroy()), show="offline")
        world.receive(gone)
        assert membership.reason == "the room was destroyed"


async def test_features_that_change_are_read_again() -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        assert "muc_moderated" not in membership.features
        world.features += ["muc_moderated", "muc_nonanonymous", "urn:xmpp:occupant-id:0"]
        membership._is_outdated = True
        membership._wake.set()
        await world.until(lambda: "muc_moderated" in membership.features)
        assert membership.shows_accounts
        assert "urn:xmpp:occupant-id:0" in membership.features
        assert world.changes[-1] == Configured()
        assert [type(each) for each in world.changes] == [Joined, Configured]


async def test_the_agent_joins_again_when_stanzas_may_have_been_lost() -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        world.comes("Juliet", live=False)
        world.rooms.missed()
        await world.is_in("in")
        assert membership.occupant("Juliet") is not None


async def test_an_agent_that_joins_again_keeps_its_nickname_until_it_knows_the_occupants() -> None:
    world = RoomWorld()
    world.comes("Agent", live=False)
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        world.goes("Agent", live=False)
        world.comes("Juliet", live=False)
        world.rooms.missed()
        await world.is_in("in")
        assert world.sent == ["join Agent", "join Agent_2", "join Agent_2"]
        await membership._check()
        assert membership.view.nick == "Agent"
        assert membership.occupant("Juliet") is not None


async def test_presence_is_sent_again_when_the_capabilities_change() -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0):
        await world.is_in("in")
        world.rooms.show()
        assert world.sent == ["join Agent", "show Agent"]


async def test_the_number_of_rooms_is_a_metric() -> None:
    world = RoomWorld()
    assert list(world.rooms.gauges()) == []
    async with world.running(check_s=60.0):
        await world.is_in("in")
        (gauge,) = world.rooms.gauges()
        assert gauge.values == {("in",): 1}
