"""Who comes to a room and leaves it is recorded, on both event loops."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from component.features.watches import rows as watch_rows
from component.features.watches import sources
from component.features.watches.room_watcher import RoomWatcher
from component.features.watches.rows import RetryingStorage
from component.features.watches.sources import SourcePorts
from component.features.watches.watch import ROOM, Source, StartRate, Watch
from component.kernel.rooms import membership
from component.store import Storage
from tests.component.kernel.rooms.world import AGENT, RoomWorld, presence
from tests.component.kernel.rooms.world import ROOM as ADDRESS
from tests.waiting import eventually
from xep.jid import JID

pytestmark = pytest.mark.anyio

SOURCE = Source(AGENT, ADDRESS, ROOM)
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


class World(RoomWorld):
    """A room watcher, its room and its storage."""

    def __init__(self, storage: Storage, check_s: float = 60.0) -> None:
        super().__init__()
        self.storage = storage
        self.more = anyio.Event()
        ports = SourcePorts(
            client=None,  # type: ignore[arg-type]  # it is in the room already
            storage=RetryingStorage(storage),
            recorded=self._recorded,
            consent=None,  # type: ignore[arg-type]  # nobody is asked
            max_hops=5,
            check_s=check_s,
        )
        self.watcher = RoomWatcher(SOURCE, ports, self.rooms)
        self.watcher.set_watches({WATCH.id: WATCH})

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        await self.storage.write(lambda db: watch_rows.put(db, WATCH))
        async with anyio.create_task_group() as group:
            await group.start(self.rooms.run)
            group.start_soon(self.watcher.run)
            self.connect()
            yield
            group.cancel_scope.cancel()

    def connect(self) -> None:
        self.rooms.connected()
        self.watcher.connected()

    def disconnect(self) -> None:
        self.watcher.disconnected()
        self.rooms.disconnected()

    async def shows(self, state: str) -> None:
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
    async with world.watching():
        await world.shows("live")
        world.comes("Romeo", affiliation="member", jid=JID.parse("romeo@example.com/balcony"))
        world.goes("Juliet")
        world.comes("Juliet")
        assert await world.events(3) == ["joined Romeo", "left Juliet", "joined Juliet"]


async def test_what_happened_meanwhile_is_found_at_the_next_join(storage: Storage) -> None:
    world = World(storage)
    world.comes("Juliet", live=False)
    world.comes("Nurse", live=False)
    async with world.watching():
        await world.shows("live")
        world.comes("Romeo")
        await world.events(1)
        world.disconnect()
        world.goes("Romeo", live=False)
        world.comes("Juliet", live=False, affiliation="owner")
        world.comes("Tybalt", live=False)
        world.connect()
        found = await world.events(4)
        assert found[1] == "left Romeo"
        assert sorted(found[2:]) == ["changed Juliet", "joined Tybalt"]
    again = World(storage)  # a process that was started again
    again.there = world.there
    async with again.watching():
        await again.shows("live")
        again.goes("Nurse")
        assert (await again.events(5))[4:] == ["left Nurse"]


@pytest.mark.ports
async def test_a_new_nickname_is_one_event_also_after_a_restart(storage: Storage) -> None:
    world = World(storage)
    world.comes("Romeo", live=False)
    async with world.watching():
        await world.shows("live")
        world.receive(presence("Romeo", 303, show="offline", nick="Montague"))
        del world.there["Romeo"]
        world.comes("Montague")
        assert await world.events(1) == ["renamed Montague"]
        world.disconnect()
        world.connect()
        await world.shows("live")
        world.goes("Montague")
        assert await world.events(2) == ["renamed Montague", "left Montague"]


async def test_what_happens_to_the_agent_itself_is_no_event(storage: Storage) -> None:
    world = World(storage)
    async with world.watching():
        await world.shows("live")
        world.receive(presence("Agent", 110, role="visitor"))
        world.comes("Juliet")
        assert await world.events(1) == ["joined Juliet"]


async def test_the_state_of_the_room_is_that_of_its_watches(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "JOIN_S", 0.01)
    monkeypatch.setattr(membership, "OTHERS_S", 0.01)
    world = World(storage, check_s=0.01)
    world.missing = "item-not-found"
    async with world.watching():
        await world.shows("missing")
        assert world.watcher.status.reason == "there is no such room"
        world.missing, world.silent = None, True
        await world.shows("failed")
        world.has_others, world.instance = True, "Agent"
        await world.shows("elsewhere")
        assert "another instance" in world.watcher.status.reason
        world.silent = world.has_others = False
        await world.shows("live")
        world.removes(307)
        await world.shows("refused")
        world.watcher.set_watches({WATCH.id: WATCH})
        assert world.membership.state == "out", "watches that are read again are no invitation"


async def test_admins_are_told_of_rooms_in_their_settings_and_not_of_those_of_people(
    storage: Storage,
) -> None:
    world = World(storage)
    world.missing = "item-not-found"
    of_juliet = msgspec.structs.replace(WATCH, owner="juliet@example.com")
    world.watcher.set_watches({of_juliet.id: of_juliet})
    async with world.watching():
        await world.shows("missing")
        assert not world.said
        world.watcher.set_watches({of_juliet.id: of_juliet, WATCH.id: WATCH})
        await world.until(world.rooms.warnings)


async def test_a_watch_of_a_room_that_the_agent_is_in_already(storage: Storage) -> None:
    world = World(storage)
    world.rooms.leave(AGENT, ADDRESS, "watches")
    world.comes("Juliet", live=False)
    async with world.running(check_s=60.0), anyio.create_task_group() as group:
        await world.is_in("in")
        world.watcher = RoomWatcher(SOURCE, world.watcher._ports, world.rooms)
        world.watcher.set_watches({WATCH.id: WATCH})
        await storage.write(lambda db: watch_rows.put(db, WATCH))
        group.start_soon(world.watcher.run)
        world.watcher.connected()
        await world.shows("live")
        world.comes("Romeo")
        assert await world.events(1) == ["joined Romeo"]
        assert world.sent == ["join Agent"]
        await world.watcher.unsubscribe()
        assert world.membership.is_in, "somebody else wants the agent there"
        group.cancel_scope.cancel()


@pytest.mark.ports
async def test_more_changes_than_can_wait(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MOST_WAITING", 5)
    world = World(storage)
    async with world.watching():
        await world.shows("live")
        await eventually(lambda: not world.watcher._waiting)
        for number in range(20):
            world.comes(f"guest {number}")
        found = await world.events(20)
        assert sorted(found) == sorted(f"joined guest {number}" for number in range(20))
