"""The work of a watch's events is started once each and in order, whatever happens in between."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.features.watches import events as watch_events
from component.features.watches import rows as watch_rows
from component.features.watches.events import WatchStarts, taint_of
from component.features.watches.filters import with_chain
from component.features.watches.rows import RetryingStorage, SourceRows, noted_chain
from component.features.watches.sources import Interests, observed_item
from component.features.watches.watch import Source, StartRate, Watch
from component.kernel import started_work as started
from component.kernel.goals import turn_of
from component.kernel.started_work import Started
from component.kernel.triggers import Trigger, Work
from component.policy.flows import AgentLimits
from component.policy.taint import Taint
from component.store import Storage
from component.store.errors import StorageError
from tests.component.agent.world import begun
from tests.direct_database import DirectDatabase
from tests.waiting import eventually
from xep.binding import RawXML
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

JULIET = JID.parse("juliet@example.com")
SOURCE = Source(JID.parse("assistant@agent.example"), JID.parse("pubsub.example"), "news")


def watch(name: str = "a", **more: Any) -> Watch:
    given = {"service": SOURCE.service, "skill": "note", "rate": StartRate(1000, 1.0)} | more
    return Watch(name=name, agent="assistant", principal=JULIET, node=SOURCE.node, **given)


class World:
    """Watches, and a starter whose tasks a test ends. It can be used by several instances."""

    def __init__(self, storage: Storage, *watches: Watch) -> None:
        self.storage = storage
        self.watches = {each.id: each for each in watches}
        self.starts: list[tuple[str, str]] = []
        """The watch and the key of each task that was made."""
        self.works: list[tuple[Trigger, Work]] = []
        self.errors: list[Exception] = []
        """What the next attempts to start something raise."""
        self.running: dict[str, str] = {}
        """The task of each watch that runs."""
        self.instances: list[WatchStarts] = []

    async def define(self) -> None:
        for each in self.watches.values():
            await self.storage.write(lambda db, each=each: watch_rows.put(db, each))

    async def give(self, name: str, *ids: str, via: str = "") -> None:
        """Record events of a watch."""
        interests = Interests(SOURCE, {name: self.watches[name]})
        offered = []
        for id_ in ids:
            raw = RawXML(f"<e xmlns='urn:e'>{id_}</e>")
            raw = with_chain(raw, JID.parse(via), ()) if via else raw
            offered.append(interests.offer(observed_item(id_, raw.text, None)))
        await self.storage.write(
            lambda db: watch_events.accept(SourceRows(db, name), offered, interests.watches, 5)
        )
        for instance in self.instances:
            instance.wake()

    # The starter.

    async def start(self, trigger: Trigger, work: Work) -> str | None:
        if await self.storage.read(lambda db: started.is_recorded(db, trigger)):
            return None
        await anyio.lowlevel.checkpoint()
        if self.errors:
            raise self.errors.pop(0)
        task = f"task {trigger.name} {trigger.key}"
        running = self.running.get(trigger.name, task)
        assert running == task, "the one before it has not ended"

        def op(database: Any) -> bool:
            begun(database, task)
            return started.record(database, Started(trigger=trigger, work=work, task=task))

        if not await self.storage.write(op):
            return None
        self.starts.append((trigger.name, trigger.key))
        self.works.append((trigger, work))
        self.running[trigger.name] = task
        return task

    async def end(self, name: str, state: str = "completed") -> None:
        """End the running task of a watch."""
        task = self.running.pop(name)
        await self.storage.write(
            lambda db: db.execute("UPDATE tasks SET state = ? WHERE id = ?", (state, task))
        )
        for instance in self.instances:
            instance.task_ended(task)

    # Instances.

    @asynccontextmanager
    async def instance(self, storage: Storage | None = None) -> AsyncIterator[WatchStarts]:
        """One instance, which is killed at the end of the context."""
        made = WatchStarts(self, RetryingStorage(storage or self.storage), self.watches.get)
        self.instances.append(made)
        async with anyio.create_task_group() as group:
            group.start_soon(made.run)
            yield made
            group.cancel_scope.cancel()
        self.instances.remove(made)

    # What a test sees.

    def items(self, name: str = "a") -> list[str]:
        return [key.split()[1] for watch, key in self.starts if watch == name]

    async def runs(self, *names: str) -> None:
        await eventually(lambda: set(self.running) >= set(names))

    async def row(self, name: str = "a") -> watch_rows.WatchRow:
        rows = await self.storage.read(watch_rows.rows)
        return next(row for row in rows if row.watch.id == name)

    async def is_idle(self) -> bool:
        return all(row.pending == 0 for row in await self.storage.read(watch_rows.rows))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_events, "_FIRST_RETRY_S", 0.001)


@pytest.fixture
async def world(storage: Storage) -> World:
    made = World(storage, watch("a"), watch("b"))
    await made.define()
    return made


@pytest.mark.ports
async def test_an_event_waits_until_the_work_before_it_has_ended(world: World) -> None:
    async with world.instance():
        await world.give("a", "1", "2", "3")
        for id_ in ("1", "2", "3"):
            await world.runs("a")
            assert world.items()[-1] == id_
            await world.end("a")
        await eventually(world.is_idle)
    assert world.items() == ["1", "2", "3"]
    row = await world.row()
    assert (row.received, row.started, row.pending) == (3, 3, 0)


async def test_watches_do_not_wait_for_each_other(world: World) -> None:
    async with world.instance():
        await world.give("a", "1", "2")
        await world.give("b", "x")
        await world.runs("a", "b")
        await world.end("b")
        await world.give("b", "y")
        await world.runs("a", "b")
    assert (world.items("a"), world.items("b")) == (["1"], ["x", "y"])


async def test_work_that_waits_for_a_person_holds_nothing_up(world: World) -> None:
    async with world.instance():
        await world.give("a", "1", "2")
        await world.runs("a")
        await world.end("a", "input-required")
        await eventually(lambda: world.items() == ["1", "2"])


async def test_work_that_is_set_aside_holds_nothing_up(world: World) -> None:
    async with world.instance():
        await world.give("a", "1", "2")
        await world.runs("a")
        await world.storage.write(lambda db: db.execute("UPDATE tasks SET set_aside = 'crashed'"))
        await world.end("a", "running")
        await eventually(lambda: world.items() == ["1", "2"])


@pytest.mark.ports
async def test_the_end_of_a_task_on_another_instance_is_found(world: World) -> None:
    async with world.instance():
        await world.give("a", "1", "2")
        await world.runs("a")
        task = world.running.pop("a")
        await world.storage.write(
            lambda db: db.execute("UPDATE tasks SET state = 'failed' WHERE id = ?", (task,))
        )
        await eventually(lambda: world.items() == ["1", "2"])


async def test_refused_work_is_counted_and_the_next_is_started(world: World) -> None:
    world.errors = [StanzaError("forbidden", "Not any more."), StanzaError("item-not-found")]
    async with world.instance():
        await world.give("a", "1", "2", "3")
        await world.runs("a")
        row = await world.row()
    assert world.items() == ["3"]
    assert (row.received, row.refused) == (3, 2)


async def test_what_cannot_be_started_now_is_tried_again(world: World) -> None:
    world.errors = [
        StorageError("The disk is full."),
        StanzaError("resource-constraint", "Later."),
        StorageError("The disk is full."),
    ]
    async with world.instance():
        await world.give("a", "1")
        await world.runs("a")
    assert world.items() == ["1"]
    assert not world.errors


@pytest.mark.ports
async def test_events_of_a_watch_that_is_gone_are_dropped(world: World) -> None:
    await world.give("a", "1")
    del world.watches["a"]
    async with world.instance():
        await eventually(world.is_idle)
    assert world.starts == []


@pytest.mark.ports
async def test_what_is_due_later_starts_then_with_all_that_joined_it(storage: Storage) -> None:
    world = World(storage, watch(rate=StartRate(1, 0.2), goal="Look.", skill=None))
    await world.define()
    async with world.instance():
        await world.give("a", "1", "2", "3")
        await world.runs("a")
        await world.end("a")
        await world.runs("a")
    (_, _), (trigger, work) = world.works
    data = msgspec.json.decode(trigger.data)
    assert (data["total"], [one["item"] for one in data["events"]]) == (2, ["2", "3"])
    assert (work.goal, work.skill) == ("Look.", None)


async def test_work_has_what_the_watch_says(storage: Storage) -> None:
    romeo = JID.parse("romeo@example.com")
    world = World(
        storage,
        watch(
            params=msgspec.Raw(b'{"text":"{text}","n":1}'),
            tell=(romeo,),
            silent=True,
            priority="high",
            template="$text",
            taints=("web",),
            limits=AgentLimits(("look_*",)),
        ),
    )
    await world.define()
    async with world.instance():
        await world.give("a", "1", via="other@agent.example")
        await world.runs("a")
    ((trigger, work),) = world.works
    assert (trigger.source, trigger.name, trigger.taint) == ("watch", "a", "web")
    noted = await storage.read(lambda db: noted_chain(db, f"watch {trigger.name}"))
    assert noted == ("other@agent.example",)
    assert msgspec.json.decode(work.params) == {"text": "1", "n": 1}
    assert (work.tell, work.silent, work.priority, work.template) == (
        (romeo,),
        True,
        "high",
        "$text",
    )
    assert (work.taints, work.limits) == (("web",), AgentLimits(("look_*",)))
    for trace in ("watch a", turn_of(trigger)):
        chain = await storage.read(lambda db, trace=trace: noted_chain(db, trace))
        assert chain == ("other@agent.example",)


@pytest.mark.ports
async def test_the_chain_of_an_earlier_event_is_forgotten(world: World) -> None:
    async with world.instance():
        await world.give("a", "1", via="other@agent.example")
        await world.give("a", "2")
        await world.runs("a")
        await world.end("a")
        await world.runs("a")
    assert await world.storage.read(lambda db: noted_chain(db, "watch a")) == ()


@pytest.mark.parametrize(
    ("service", "taint"), [("juliet@example.com", "person"), ("pubsub.example.com", "web")]
)
def test_who_wrote_events(service: str, taint: Taint) -> None:
    assert taint_of(watch(service=JID.parse(service))) == taint


@pytest.mark.ports
async def test_two_instances_start_each_event_once(tmp_path: Path, migrated_url: str) -> None:
    ids = [str(number) for number in range(20)]
    async with (
        Storage.open(SCHEMA, tmp_path / "one", postgres=migrated_url) as one,
        Storage.open(SCHEMA, tmp_path / "two", postgres=migrated_url) as two,
    ):
        world = World(one, watch("a"))
        await world.define()
        async with world.instance(one), world.instance(two):
            await world.give("a", *ids)
            for _ in ids:
                await world.runs("a")
                await world.end("a")
            await eventually(world.is_idle)
        row = await world.row()
    assert world.items() == ids
    assert row.started == len(ids)


Action = tuple[str, ...]
ACTIONS = st.one_of(
    st.tuples(st.just("give"), st.sampled_from("ab")),
    st.tuples(st.just("end"), st.sampled_from("ab")),
    st.tuples(st.just("refuse")),
    st.tuples(st.just("fail")),
    st.tuples(st.just("kill")),
    st.tuples(st.just("jump")),
    st.tuples(st.just("run")),
)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(actions=st.lists(ACTIONS, max_size=40))
def test_any_interleaving_starts_each_event_once_and_in_order(
    backend: str, actions: Sequence[Action]
) -> None:
    """Events come, work ends, fails or is refused, a clock jumps, a process is killed."""
    anyio.run(_interleaved, actions, backend=backend)


async def _interleaved(actions: Sequence[Action]) -> None:
    database = DirectDatabase(1_800_000_000_000)
    world = World(database, watch("a"), watch("b"))
    await world.define()
    given = {"a": 0, "b": 0}
    refused = 0
    remaining = list(actions)
    while True:
        async with world.instance():
            while remaining:
                match remaining.pop(0):
                    case ("give", name):
                        given[name] += 1
                        await world.give(name, str(given[name]))
                    case ("end", name) if name in world.running:
                        await world.end(name)
                    case ("refuse",):
                        world.errors.append(StanzaError("forbidden"))
                    case ("fail",):
                        world.errors.append(StorageError("The disk is full."))
                    case ("jump",):
                        database.jumps(-86_400_000)
                    case ("kill",):
                        break
                    case _:
                        await anyio.wait_all_tasks_blocked()
            else:
                while not await world.is_idle():
                    for name in list(world.running):
                        await world.end(name)
                    await anyio.wait_all_tasks_blocked()
                    await anyio.lowlevel.checkpoint()
                break
    for name in "ab":
        items = [int(item) for item in world.items(name)]
        row = await world.row(name)
        assert items == sorted(set(items)), "once, and in order"
        assert len(items) == row.started
        assert row.received == given[name] == row.started + row.refused
        refused += row.refused
    assert refused <= sum(action == ("refuse",) for action in actions)
