"""A room is watched through everything that it does, on both event loops."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from component.features.watches import room_watcher, sources
from component.features.watches import rows as watch_rows
from component.features.watches.room_watcher import RoomPresence, RoomWatcher
from component.features.watches.rows import RetryingStorage
from component.features.watches.sources import SourcePorts
from component.features.watches.watch import ROOM, Source, StartRate, Watch
from component.store import Storage
from tests.component.features.watches.test_room import presence
from tests.waiting import eventually
from xep.jid import JID
from xep.stanza_error import Condition, StanzaError

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example")
SOURCE = Source(AGENT, JID.parse("lab@rooms.example"), ROOM)
WATCH = Watch(
    name="lab",
    agent="assistant",
    principal=JID.parse("juliet@example.com"),
    service=SOURCE.service,
    node=ROOM,
    nick="Agent",
    skill="note",
    rate=StartRate(10_000, 1.0),
)


class World:
    """A room watcher, its room and its storage."""

    def __init__(self, storage: Storage, check_s: float = 60.0) -> None:
        self.storage = storage
        self.there: dict[str, RoomPresence] = {}
        self.missing: Condition | None = None
        self.refusal: Condition | None = None
        self.pong: Condition | None = None
        self.silent = False
        self.elsewhere = False
        self.codes: tuple[int, ...] = (110,)
        self.sent: list[str] = []
        self.pings = 0
        self.more = anyio.Event()
        ports = SourcePorts(
            client=None,  # type: ignore[arg-type]  # rooms have a client of their own
            storage=RetryingStorage(storage),
            recorded=self._recorded,
            consent=None,  # type: ignore[arg-type]  # nobody is asked
            max_hops=5,
            check_s=check_s,
        )
        self.watcher = RoomWatcher(SOURCE, ports, self)
        self.watcher.set_watches({WATCH.id: WATCH})

    # Its `RoomClient`.

    async def find(self, source: Source) -> None:
        await anyio.lowlevel.checkpoint()
        if self.missing is not None:
            raise StanzaError(self.missing)

    def join(self, source: Source, nick: str) -> None:
        self.sent.append(f"join {nick}")
        if self.silent:
            return
        if self.refusal is not None:
            error = StanzaError(self.refusal)
            self.watcher.received(RoomPresence(nick=nick, error=error, show="offline"))
            return
        for each in self.there.values():
            self.watcher.received(each)
        self.watcher.received(presence(nick, *self.codes))

    def leave(self, source: Source, nick: str) -> None:
        self.sent.append(f"leave {nick}")

    async def ping(self, source: Source, nick: str) -> None:
        self.pings += 1
        await anyio.lowlevel.checkpoint()
        if self.pong is not None:
            raise StanzaError(self.pong)

    async def is_elsewhere(self, source: Source, nick: str) -> bool:
        self.pings += 1
        await anyio.lowlevel.checkpoint()
        return self.elsewhere

    # What a test does.

    def comes(self, nick: str, *, live: bool = True, **item: Any) -> None:
        self.there[nick] = presence(nick, **item)
        if live:
            self.watcher.received(self.there[nick])

    def goes(self, nick: str, *, live: bool = True) -> None:
        del self.there[nick]
        if live:
            self.watcher.received(presence(nick, show="offline"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.storage.write(lambda db: watch_rows.put(db, WATCH))
        async with anyio.create_task_group() as group:
            group.start_soon(self.watcher.run)
            self.watcher.connected()
            yield
            group.cancel_scope.cancel()

    async def is_in(self, state: str) -> None:
        await eventually(lambda: self.watcher.status.state == state)

    async def events(self, count: int) -> list[str]:
        """So many events in their order, each as what has happened and to whom."""
        with anyio.fail_after(120):
            while len(found := await self.storage.read(_events)) < count:
                await self.more.wait()
                self.more = anyio.Event()
        return found

    def _recorded(self, _accepted: object) -> None:
        self.more.set()


def _events(database: Any) -> list[str]:
    rows = database.execute("SELECT data FROM watch_events ORDER BY number").fetchall()
    found = []
    for (data,) in rows:
        (event,) = json.loads(data)
        found.append(f"{event['json']['event']} {event['item']}")
    return found


@pytest.mark.ports
async def test_who_comes_and_goes_is_told_and_who_was_there_is_not(storage: Storage) -> None:
    world = World(storage)
    world.comes("Juliet", live=False)
    async with world.running():
        await world.is_in("live")
        world.comes("Romeo", affiliation="member", jid=JID.parse("romeo@example.com/balcony"))
        world.goes("Juliet")
        world.comes("Juliet")
        assert await world.events(3) == ["joined Romeo", "left Juliet", "joined Juliet"]


async def test_what_happened_meanwhile_is_found_at_the_next_join(storage: Storage) -> None:
    world = World(storage)
    world.comes("Juliet", live=False)
    world.comes("Nurse", live=False)
    async with world.running():
        await world.is_in("live")
        world.comes("Romeo")
        await world.events(1)
        world.watcher.disconnected()
        world.goes("Romeo", live=False)
        world.comes("Juliet", live=False, affiliation="owner")
        world.comes("Tybalt", live=False)
        world.watcher.connected()
        found = await world.events(4)
        assert found[1] == "left Romeo"
        assert sorted(found[2:]) == ["changed Juliet", "joined Tybalt"]
    again = World(storage)  # a process that was started again
    again.there = world.there
    async with again.running():
        await again.is_in("live")
        again.goes("Nurse")
        assert (await again.events(5))[4:] == ["left Nurse"]


@pytest.mark.ports
async def test_a_new_nickname_is_one_event_also_after_a_restart(storage: Storage) -> None:
    world = World(storage)
    world.comes("Romeo", live=False)
    async with world.running():
        await world.is_in("live")
        world.watcher.received(presence("Romeo", 303, show="offline", nick="Montague"))
        del world.there["Romeo"]
        world.comes("Montague")
        assert await world.events(1) == ["renamed Montague"]
        world.watcher.disconnected()
        world.watcher.connected()
        world.goes("Montague")
        assert await world.events(2) == ["renamed Montague", "left Montague"]


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
    storage: Storage, pong: Condition | None, joins: int
) -> None:
    world = World(storage, check_s=0.01)
    world.pong = pong
    async with world.running():
        await eventually(lambda: world.pings >= 2 and len(world.sent) >= joins)
        assert world.sent[0] == "join Agent"
        assert (len(world.sent) == 1) == (joins == 1)


async def test_a_room_is_not_created(storage: Storage) -> None:
    world = World(storage, check_s=0.01)
    world.missing = "item-not-found"
    async with world.running():
        await world.is_in("missing")
        assert world.watcher.status.reason == "there is no such room"
        assert not world.sent
        world.missing, world.codes = None, (110, 201)  # it is gone before the agent joins
        await eventually(lambda: "leave Agent" in world.sent)
        world.codes = (110,)
        await world.is_in("live")


async def test_a_refusal_is_tried_again_and_a_kick_only_in_the_next_session(
    storage: Storage,
) -> None:
    world = World(storage, check_s=0.01)
    world.refusal = "conflict"
    async with world.running():
        await eventually(lambda: len(world.sent) >= 2)
        assert "another occupant has the nickname Agent" in world.watcher.status.reason
        world.refusal = None
        await world.is_in("live")
        world.watcher.received(presence("Agent", 110, 307, show="offline"))
        await world.is_in("refused")
        count = len(world.sent)
        await anyio.wait_all_tasks_blocked()
        assert world.watcher._delay_s is None, "no timer wakes it"
        assert len(world.sent) == count
        world.watcher.disconnected()
        world.watcher.connected()
        await world.is_in("live")


@pytest.mark.ports
async def test_a_kick_in_the_moment_of_a_check(storage: Storage) -> None:
    world = World(storage, check_s=0.001)
    async with world.running(), anyio.create_task_group() as group:

        async def delay_the_loop() -> None:
            time.sleep(0.003)  # noqa: ASYNC251 - until both deadlines have passed

        for _ in range(20):
            await world.is_in("live")
            group.start_soon(delay_the_loop)
            await anyio.sleep(0.001)
            world.watcher.received(presence("Agent", 110, 307, show="offline"))
            count = len(world.sent)
            await anyio.wait_all_tasks_blocked()
            assert len(world.sent) == count
            world.watcher.disconnected()
            world.watcher.connected()


async def test_a_room_that_does_not_answer(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_watcher, "JOIN_S", 0.01)
    world = World(storage, check_s=0.01)
    world.silent = True
    async with world.running():
        await world.is_in("failed")
        assert world.watcher.status.reason == "the room does not answer"
        world.silent = False
        await world.is_in("live")


async def test_one_of_two_instances_joins_and_the_other_takes_over(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_watcher, "JOIN_S", 0.01)
    world = World(storage, check_s=0.01)
    world.silent = world.elsewhere = True  # the server sends the answer to the other instance
    async with world.running():
        await world.is_in("elsewhere")
        assert "another instance" in world.watcher.status.reason
        pings = world.pings
        await eventually(lambda: world.pings > pings + 3)
        assert world.sent == ["join Agent"]
        world.silent = world.elsewhere = False
        await world.is_in("live")
        assert world.sent == ["join Agent", "join Agent"]


async def test_an_instance_to_which_the_server_sends_the_room_observes_it(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_watcher, "JOIN_S", 0.01)
    world = World(storage)
    world.silent = world.elsewhere = True
    async with world.running():
        await world.is_in("elsewhere")
        world.silent = False
        world.join(SOURCE, "Agent")  # by the other instance, in its new session
        await world.is_in("live")
        world.comes("Rosaline")
        assert await world.events(1) == ["joined Rosaline"]


@pytest.mark.ports
async def test_the_agent_leaves_when_the_service_stops(storage: Storage) -> None:
    world = World(storage)
    async with world.running():
        await world.is_in("live")
        world.watcher.leave()
        assert world.sent[-1] == "leave Agent"
        world.watcher.received(presence("Agent", 110, show="offline"))
        assert world.watcher.status.state == "offline"


@pytest.mark.ports
async def test_more_changes_than_can_wait(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MOST_WAITING", 5)
    world = World(storage)
    async with world.running():
        await world.is_in("live")
        await eventually(lambda: not world.watcher._waiting)
        for number in range(20):
            world.comes(f"guest {number}")
        found = await world.events(20)
        assert sorted(found) == sorted(f"joined guest {number}" for number in range(20))
