"""What rooms send reaches the memberships of the agents, as stanzas."""

import asyncio
from typing import Any

import pytest

from component.kernel.rooms.membership import Configured, Membership
from component.kernel.rooms.occupants import Moved, RoomOccupant, identity
from component.link.router.addresses import ComponentAddresses
from component.link.router.table import Request
from tests.component.kernel.rooms.world import AGENT, ROOM, RoomWorld, presence, with_caps
from tests.component.link.router.wire import Bench, element
from xep.caps import Caps, verification_string
from xep.disco import Feature, Identity, InfoQuery
from xep.jid import JID

pytestmark = pytest.mark.anyio

USER = "http://jabber.org/protocol/muc#user"
HERE = f"{AGENT}/rooms"


def occupant(nick: str, *codes: int, more: str = "", **attributes: str) -> str:
    """The presence of an occupant, as the room sends it."""
    statuses = "".join(f"<status code='{code}'/>" for code in codes)
    item = "<item affiliation='member' role='participant' jid='romeo@example.com/x'/>"
    user = f"<x xmlns='{USER}'>{item}{statuses}</x>"
    return element("presence", user + more, from_=f"{ROOM}/{nick}", to=HERE, **attributes)


def bench_of(world: RoomWorld) -> Bench:
    ours = ComponentAddresses(JID.parse(AGENT.domain), frozenset(("assistant",)))
    return Bench(
        world.rooms.routes(), admits=lambda _: False, is_room=world.rooms.is_room, ours=ours
    )


async def test_all_that_presence_says_about_an_occupant() -> None:
    world = RoomWorld()
    world.features += ["urn:xmpp:occupant-id:0", "urn:xmpp:hats:0"]
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        bench = bench_of(world)
        bench.receive(
            occupant(
                "Romeo",
                more=(
                    "<show>away</show><status>At home.</status>"
                    "<occupant-id xmlns='urn:xmpp:occupant-id:0' id='abc'/>"
                    "<hats xmlns='urn:xmpp:hats:0'><hat uri='urn:example:chief' title='C'/><hat/>"
                    "</hats><c xmlns='http://jabber.org/protocol/caps' node='urn:c' ver='v'/>"
                ),
            )
        )
        found = membership.occupant("Romeo")
        assert found is not None
        assert (found.jid, found.affiliation, found.role) == (
            "romeo@example.com",
            "member",
            "participant",
        )
        assert (found.show, found.status) == ("away", "At home.")
        assert (found.hats, found.occupant_id) == (("urn:example:chief",), "abc")
        assert found.caps == Caps(node="urn:c", ver="v")
        assert identity(found) == "id:abc"
        assert membership.by_id("abc") == found
        assert membership.by_id("") is None
        bench.receive(occupant("Romeo", type="unavailable"))
        assert membership.occupant("Romeo") is None
        assert membership.by_id("abc") is None


async def test_messages_reach_the_users_and_a_change_of_the_room_is_looked_at() -> None:
    world = RoomWorld()
    said: list[str] = []

    def hear(of: Membership, request: Request[None]) -> None:
        said.append(f"{of.room}: {request.sender.resource}")

    async with world.running(check_s=60.0, said=hear) as membership:
        await world.is_in("in")
        bench = bench_of(world)
        changed = f"<x xmlns='{USER}'><status code='104'/></x>"
        for nick, inside in (("Romeo", changed), ("", changed)):
            from_ = f"{ROOM}/{nick}" if nick else str(ROOM)
            world.features.append(f"urn:example:{nick}")
            bench.receive(element("message", inside, type="groupchat", from_=from_, to=HERE))
            assert membership._is_outdated == (nick == ""), "an occupant cannot change a room"
        await world.until(lambda: Configured() in world.changes)
        assert "urn:example:" in membership.features
        assert said == [f"{ROOM}: Romeo", f"{ROOM}: None"]
        stranger = "other@rooms.example/Romeo"
        bench.receive(element("message", "", type="groupchat", from_=stranger, to=HERE))
        assert len(said) == 2


async def test_a_thousand_occupants_cost_no_task_and_nothing_is_sent() -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        bench = bench_of(world)
        sent, tasks = len(world.sent), _tasks()
        bench.receive(*(occupant(f"guest {number}") for number in range(1_000)))
        assert len(membership.view.occupants) == 1_000
        assert len([each for each in world.changes if isinstance(each, Moved)]) == 1_000
        assert (len(world.sent), world.asked, _tasks()) == (sent, [], tasks)
        assert bench.replies == []
        assert not membership._wake.is_set(), "the task of the membership sleeps"


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # on trio
        import trio

        return trio.lowlevel.current_statistics().tasks_living


# Which occupants are programs.

BOT = InfoQuery(identities=(Identity(category="client", type="bot"),))
PERSON = InfoQuery(identities=(Identity(category="client", type="pc"),))
AGENTS = InfoQuery(
    identities=(Identity(category="client", type="pc"),),
    features=(Feature(var="urn:fluux:agent:0"),),
)


def caps_of(info: InfoQuery) -> Caps:
    ver = verification_string(info.identities, info.features)
    return Caps(hash="sha-1", node="urn:client", ver=ver)


def of(membership: Membership, nick: str) -> RoomOccupant:
    found = membership.occupant(nick)
    assert found is not None
    return found


@pytest.mark.parametrize(("info", "is_agent"), [(BOT, True), (PERSON, False), (AGENTS, True)])
async def test_each_software_is_asked_once_whether_it_is_a_program(
    info: InfoQuery, is_agent: bool
) -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        world.clients = {"Romeo": info, "Juliet": info}
        world.receive(with_caps("Romeo", caps_of(info)), with_caps("Juliet", caps_of(info)))
        assert not of(membership, "Romeo").is_agent
        assert not world.asked
        assert await membership.ask_is_agent(of(membership, "Romeo")) == is_agent
        assert of(membership, "Romeo").is_agent == is_agent
        assert of(membership, "Juliet").is_agent == is_agent
        assert await membership.ask_is_agent(of(membership, "Juliet")) == is_agent
        assert world.asked == ["Romeo"]
        world.receive(with_caps("Nurse", caps_of(info)))
        assert of(membership, "Nurse").is_agent == is_agent


async def test_a_client_cannot_say_what_the_clients_of_others_are() -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        stolen = caps_of(PERSON)
        world.clients = {"Mallory": BOT, "Juliet": PERSON}
        world.receive(with_caps("Mallory", stolen), with_caps("Juliet", stolen))
        assert await membership.ask_is_agent(of(membership, "Mallory"))
        assert of(membership, "Mallory").is_agent
        assert not of(membership, "Juliet").is_agent
        assert not await membership.ask_is_agent(of(membership, "Juliet"))


async def test_a_client_that_does_not_answer_or_has_left_is_that_of_a_person() -> None:
    world = RoomWorld()
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        world.receive(presence("Romeo"))
        romeo = of(membership, "Romeo")
        assert not await membership.ask_is_agent(romeo)
        assert world.asked == ["Romeo"]
        world.receive(presence("Romeo", show="offline"), presence("Romeo"))
        assert not await membership.ask_is_agent(romeo)
        assert world.asked == ["Romeo"], "the client of another visit is not asked"


async def test_other_agents_of_this_service_are_known_without_asking() -> None:
    world = RoomWorld()
    other = JID.parse("helper@agent.example")
    async with world.running(check_s=60.0) as membership:
        await world.is_in("in")
        second: Any = world.rooms.enter(other, ROOM, "test", world.stay(nick="Helper"))
        second.view.supports(())
        second.view.join("Helper")
        second.received(presence("Helper", 110))
        world.receive(presence("Helper"), presence("Romeo"))
        assert of(membership, "Helper").is_agent
        assert not of(membership, "Romeo").is_agent
        assert await membership.ask_is_agent(of(membership, "Helper"))
        assert not world.asked
