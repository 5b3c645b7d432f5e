"""The sources of all watches: which are observed, and who learns of what."""

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.features.watches import rows as watch_rows
from component.features.watches.events import Accepted
from component.features.watches.filters import Condition
from component.features.watches.settings import LIMITS, WatchLimits
from component.features.watches.watch import PRESENCE, Source, StartRate, Watch
from component.features.watches.watcher import Watcher
from component.kernel.triggers import Trigger, Work
from component.store import Storage
from tests.direct_database import DirectDatabase
from tests.overtaking import overtake
from tests.waiting import eventually
from xep.binding import RawXML
from xep.jid import JID
from xep.pubsub import Pubsub
from xep.pubsub import Subscription as PubsubSubscription
from xep.pubsub_event import Delete, Event, Purge
from xep.pubsub_event import Item as EventItem
from xep.pubsub_event import Items as EventItems

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example")
JULIET = JID.parse("juliet@example.com")
PUBSUB = JID.parse("pubsub.example.com")
MOOD = "http://jabber.org/protocol/mood"


def watch(name: str = "news", owner: str = "", **more: Any) -> Watch:
    given = {"service": PUBSUB, "node": "news", "skill": "note"} | more
    return Watch(name=name, owner=owner, agent="assistant", principal=JULIET, **given)


class World:
    """The service around a watcher: its PubSub requests are answered, its work is noted."""

    def __init__(self, storage: Any, *configured: Watch, refusal: str | None = None) -> None:
        self.storage = storage
        self.refusal = refusal
        self.requests: list[tuple[str, JID, str]] = []
        self.started: list[str] = []
        self._recorded: set[str] = set()
        self.alerts: list[tuple[JID | None, str]] = []
        """Who was alerted (None for the admins), and the text."""
        self.changes = 0
        self.probed: list[JID | None] = []
        kernel: Any = SimpleNamespace(
            storage=storage,
            settings={LIMITS: WatchLimits(max_hops=2, check_s=60.0)},
            starter=self,
            rooms=(),
            disco=SimpleNamespace(has_pubsub=True),
            stream=SimpleNamespace(
                addresses=SimpleNamespace(
                    address_of=lambda name: JID.parse(f"{name}@agent.example"),
                    is_own=lambda address: address.domain == "agent.example",
                ),
                call_optional=self._call,
                features_changed=self._changed,
                send=lambda presence: self.probed.append(presence.to),
                flush=lambda: None,
            ),
            contacts=SimpleNamespace(
                may_write=lambda _agent, _person: True,
                tell=lambda _agent, person, text: self.alerts.append((person, text)),
                address_of=lambda name, _person, at=None: at or JID(name, "agent.example"),
                tell_admins=lambda text: self.alerts.append((None, text)),
            ),
        )
        self.watcher = Watcher(kernel, configured)
        consent: Any = self._consent
        self.watcher._ports = msgspec.structs.replace(self.watcher._ports, consent=consent)

    async def _consent(self, source: Source, *, refused: bool = False) -> str | None:
        return self.refusal

    async def _call(self, type_: str, to: JID, payload: Pubsub, *_: Any, **__: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        for what in ("subscribe", "unsubscribe", "items"):
            part = getattr(payload, what)
            if part is not None:
                self.requests.append((what, to, part.node))
        if payload.subscribe is not None:
            subscription = PubsubSubscription(jid=AGENT, subscription="subscribed")
            return Pubsub(subscription=subscription)
        return None

    def _changed(self) -> None:
        self.changes += 1

    async def start(self, trigger: Trigger, work: Work) -> str | None:
        # As the starter, records the work of an event once: it may be started more often.
        if trigger.key not in self._recorded:
            self._recorded.add(trigger.key)
            self.started.append(f"{trigger.name} {trigger.key.split()[1]}")
        return f"task {trigger.key}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            await group.start(self.watcher.run)
            yield
            group.cancel_scope.cancel()

    def publish(self, *ids: str, node: str = "news", service: JID = PUBSUB) -> None:
        for id_ in ids:
            item = EventItem(id=id_, payloads=(RawXML(f"<e xmlns='urn:e'>{id_}</e>"),))
            event = Event(items=EventItems(node=node, items=(item,)))
            self.watcher.notified(AGENT, service, event)

    async def state(self, made: Watch, wanted: str) -> None:
        await eventually(lambda: self.watcher.status(made).state == wanted)

    async def add(self, made: Watch, most: int = 9) -> bool:
        added = await self.storage.write(lambda db: watch_rows.add(db, made, most))
        await self.watcher.reload()
        return bool(added)

    async def remove(self, id_: str) -> bool:
        removed = await self.storage.write(lambda db: watch_rows.remove(db, id_))
        await self.watcher.reload()
        return bool(removed)

    async def rows(self) -> list[watch_rows.WatchRow]:
        found: list[watch_rows.WatchRow] = await self.storage.read(watch_rows.rows)
        return found

    async def ids(self) -> set[str]:
        return {row.watch.id for row in await self.rows()}


@pytest.mark.ports
async def test_watches_of_the_settings_are_observed_and_their_events_start_work(
    storage: Storage,
) -> None:
    made = watch()
    world = World(storage, made)
    async with world.running():
        assert world.watcher.status(made).state == "offline"
        world.watcher.connected()
        await world.state(made, "live")
        world.publish("1", "2")
        world.publish("x", node="other")
        world.publish("y", service=JULIET)
        await eventually(lambda: len(world.started) == 2)
        world.watcher.disconnected()
        assert world.watcher.status(made).state == "offline"
    assert world.started == ["news 1", "news 2"]


@pytest.mark.ports
async def test_one_source_serves_several_watches(storage: Storage) -> None:
    """It has one subscription, which ends when no watch needs it any more."""
    world = World(storage)
    wanted = watch(owner="juliet@example.com", where=(Condition(equals="2"),))
    other = watch("all", owner="romeo@example.com")
    async with world.running():
        for each in (wanted, other):
            assert await world.add(each, 5)
        world.watcher.connected()  # after both: another watch restarts a live source
        await world.state(wanted, "live")
        assert [what for what, _, _ in world.requests].count("subscribe") == 1
        world.publish("1", "2")
        await eventually(lambda: len(world.started) == 3)
        assert sorted(world.started) == [f"{wanted.id} 2", f"{other.id} 1", f"{other.id} 2"]
        assert await world.remove(other.id)
        assert not await world.remove(other.id)
        world.publish("3")
        await eventually(lambda: world.watcher.is_service(PUBSUB))
        assert ("unsubscribe", PUBSUB, "news") not in world.requests
        assert await world.remove(wanted.id)
        await eventually(lambda: ("unsubscribe", PUBSUB, "news") in world.requests)
        assert not world.watcher.is_service(PUBSUB)
        await eventually(lambda: _forgotten(storage, world.watcher.source_of(wanted)))


@pytest.mark.ports
async def test_a_new_watch_is_observed_although_an_older_reading_arrives_later(
    storage: Storage,
) -> None:
    world = World(storage)
    async with world.running():
        watcher = world.watcher
        add = functools.partial(world.add, watch(owner="juliet@example.com"))
        await overtake(storage, watcher.reload, add, watcher._reloading)
        assert watcher.is_service(PUBSUB)


async def _forgotten(storage: Storage, source: Source) -> bool:
    return not await storage.read(lambda db: watch_rows.SourceRows(db, source.key).is_known())


@pytest.mark.ports
async def test_a_person_has_a_maximum_and_may_replace_a_watch(storage: Storage) -> None:
    world = World(storage, watch())
    owner = str(JULIET)
    async with world.running():
        assert await world.add(watch("a", owner), 2)
        assert await world.add(watch("b", owner), 2)
        assert not await world.add(watch("c", owner), 2)
        assert await world.add(watch("b", owner, node="other"), 2)
        assert await world.add(watch("c", "romeo@example.com"), 2)
        assert await world.ids() == {
            "news",
            f"{owner}/a",
            f"{owner}/b",
            "romeo@example.com/c",
        }


async def test_the_settings_decide_which_watches_without_owner_there_are(
    storage: Storage,
) -> None:
    async with World(storage, watch("a"), watch("b")).running():
        pass
    await storage.write(lambda db: watch_rows.set_state(db, "b", "paused"))
    world = World(storage, watch("b", node="other"), watch("c"))
    await storage.write(lambda db: watch_rows.put(db, watch("mine", str(JULIET))))
    async with world.running():
        rows = {row.watch.id: row for row in await world.rows()}
    assert set(rows) == {"b", "c", f"{JULIET}/mine"}
    assert rows["b"].watch.node == "other"
    assert rows["b"].state == "paused", "an administrator paused it"


async def test_what_one_instance_adds_the_other_observes(tmp_path: Path, migrated_url: str) -> None:
    async with (
        Storage.open(SCHEMA, tmp_path / "one", postgres=migrated_url) as one,
        Storage.open(SCHEMA, tmp_path / "two", postgres=migrated_url) as two,
    ):
        worlds = World(one), World(two)
        async with worlds[0].running(), worlds[1].running():
            for world in worlds:
                world.watcher.connected()
            made = watch(owner=str(JULIET))
            await worlds[0].add(made, 5)
            for world in worlds:
                await world.state(made, "live")
            for world in worlds:  # ejabberd may give it to both
                world.publish("1", "2")
            await eventually(lambda: len(worlds[0].started) + len(worlds[1].started) >= 2)
            await worlds[0].remove(made.id)
            await eventually(lambda: not worlds[1].watcher.is_service(PUBSUB))


async def test_accounts_are_told_which_nodes_are_wanted(storage: Storage) -> None:
    world = World(storage, watch())
    mood = watch("mood", str(JULIET), service=JULIET, node=MOOD)
    async with world.running():
        assert world.watcher.features() == ()
        assert world.changes == 0
        await world.add(mood, 5)
        await world.add(watch("on", str(JULIET), service=JULIET, node=PRESENCE), 5)
        assert world.watcher.features() == (f"{MOOD}+notify",)
        assert world.changes == 1
        await world.remove(mood.id)
        assert world.watcher.features() == ()
        assert world.changes == 2


async def test_presence_is_observed_and_consent_is_asked_for_again(storage: Storage) -> None:
    made = watch("on", str(JULIET), service=JULIET, node=PRESENCE)
    world = World(storage, refusal="not yet")
    phone = JID.parse(f"{JULIET}/phone")
    async with world.running():
        await world.add(made, 5)
        world.watcher.connected()
        await world.state(made, "refused")
        assert world.watcher.status(made).reason == "not yet"
        world.refusal = None
        world.watcher.granted(AGENT, JULIET)
        await eventually(lambda: world.probed)
        world.watcher.shown(AGENT, phone, "online", "")
        await world.state(made, "live")
        await eventually(lambda: _known(storage, world.watcher.source_of(made)))
        world.watcher.shown(AGENT, phone, "away", "lunch")
        await eventually(lambda: world.started)
    assert len(world.started) == 1, "what she shows at first is no event"


async def _known(storage: Storage, source: Source) -> bool:
    return await storage.read(lambda db: watch_rows.SourceRows(db, source.key).is_known())


async def test_the_owner_of_a_watch_that_loops_is_alerted(storage: Storage) -> None:
    made = watch(starts_per_hour=2, rate=StartRate(100, 1.0))
    world = World(storage, made)
    async with world.running():
        world.watcher.connected()
        await world.state(made, "live")
        world.publish("1", "2", "3", "4")
        await eventually(lambda: world.alerts)
        await eventually(lambda: len(world.started) == 2)
        (row,) = await world.rows()
        assert row.state == "tripped"
        assert await storage.write(lambda db: watch_rows.set_state(db, made.id, "active"))
        world.publish("5")
        await eventually(lambda: len(world.started) == 3)
    ((who, text),) = world.alerts
    assert who is None, "a watch of the settings has no owner"
    assert "/watch resume news" in text


async def test_a_definition_of_a_newer_release_disturbs_no_others(storage: Storage) -> None:
    """Its filter cannot be used here."""
    bad = watch("bad", str(JULIET), node="bad", json="a =")
    good = watch("good", str(JULIET))
    await storage.write(lambda db: (watch_rows.put(db, bad), watch_rows.put(db, good)))
    world = World(storage)
    async with world.running():
        world.watcher.connected()
        await world.state(good, "live")
        world.publish("1")
        world.publish("1", node="bad")
        await eventually(lambda: world.started == [f"{good.id} 1"])


@pytest.mark.parametrize(
    "event",
    [Event(purge=Purge(node="news")), Event(delete=Delete(node="news")), Event()],
)
async def test_any_event_finds_its_source(storage: Storage, event: Event) -> None:
    made = watch()
    world = World(storage, made)
    async with world.running():
        world.watcher.connected()
        await world.state(made, "live")
        world.watcher.notified(AGENT, PUBSUB, event)
        world.watcher.notified(JULIET, PUBSUB, event)
        if event.delete is not None:
            await world.state(made, "missing")


NAMES = ("a", "b", "c")
STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(NAMES), st.sampled_from(("news", "blog"))),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("connect")),
    st.tuples(st.just("disconnect")),
    st.tuples(st.just("run")),
    st.tuples(st.just("restart")),
)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(steps=st.lists(STEPS, max_size=20))
def test_any_history_observes_exactly_what_is_needed(
    backend: str, steps: list[tuple[str, ...]]
) -> None:
    anyio.run(_history, steps, backend=backend)


class _Listening(DirectDatabase):
    """A database without other instances."""

    @asynccontextmanager
    async def listen(self, _channel: str) -> AsyncIterator[Any]:
        async def never() -> AsyncIterator[None]:
            await anyio.sleep_forever()
            yield

        yield never()


async def _history(steps: list[tuple[str, ...]]) -> None:
    database = _Listening(0)
    wanted: dict[str, str] = {}
    remaining = list(steps)
    while True:
        world = World(database)
        connected = False
        async with world.running():
            while remaining:
                match remaining.pop(0):
                    case ("add", name, node):
                        await world.add(watch(name, "x@y", node=node), 9)
                        wanted[name] = node
                    case ("remove", name):
                        assert await world.remove(f"x@y/{name}") == (name in wanted)
                        wanted.pop(name, None)
                    case ("connect",):
                        world.watcher.connected()
                        connected = True
                    case ("disconnect",):
                        world.watcher.disconnected()
                        connected = False
                    case ("restart",):
                        break
                    case _:
                        await anyio.wait_all_tasks_blocked()
                assert world.watcher.is_service(PUBSUB) == bool(wanted)
            else:
                await anyio.wait_all_tasks_blocked()
                for name, node in wanted.items():
                    status = world.watcher.status(watch(name, "x@y", node=node))
                    assert status.state == ("live" if connected else "offline")
                for node in {"news", "blog"} - set(wanted.values()):
                    source = world.watcher.source_of(watch(node=node))
                    assert not watch_rows.SourceRows(database, source.key).is_known()
                break


async def test_an_account_is_observed_from_the_address_that_its_owner_knows(
    storage: Storage,
) -> None:
    """Otherwise the person would be asked for a second contact."""
    world = World(storage)
    domain = JID.parse("agent.example")
    account = {"service": JID.parse("juliet@example.com"), "at": domain}
    for node in ("presence", "http://jabber.org/protocol/mood"):
        assert world.watcher.source_of(watch(node=node, **account)).subscriber == domain
    assert world.watcher.source_of(watch(at=domain)).subscriber == AGENT, "it is a service"


@pytest.mark.parametrize("restarts", [False, True])
async def test_what_an_account_has_shown_is_known_at_another_address_of_the_agent(
    storage: Storage, *, restarts: bool
) -> None:
    """Which address its owner knows can change, and several instances may not agree about it."""
    made = watch("on", str(JULIET), service=JULIET, node=PRESENCE)
    phone, domain = JID.parse(f"{JULIET}/phone"), JID.parse("agent.example")
    world = World(storage)
    async with world.running():
        await world.add(made, 5)
        world.watcher.connected()
        await eventually(lambda: world.probed)
        world.watcher.shown(AGENT, phone, "online", "")
        await world.state(made, "live")
        await eventually(lambda: _known(storage, world.watcher.source_of(made)))
        if not restarts:
            await _shows_at_another_address(world, phone, domain)
    if restarts:
        world = World(storage)
        world.watcher._kernel.contacts.address_of = lambda *_: domain
        async with world.running():
            await _shows_at_another_address(world, phone, domain)


async def _shows_at_another_address(world: World, phone: JID, domain: JID) -> None:
    world.watcher._kernel.contacts.address_of = lambda *_: domain
    world.probed.clear()
    await world.watcher.reload()
    world.watcher.connected()
    await eventually(lambda: world.probed)
    world.watcher.shown(domain, phone, "away", "")
    await eventually(lambda: world.started)


async def test_watches_from_both_addresses_of_an_agent_have_one_source(storage: Storage) -> None:
    world = World(storage)
    async with world.running():
        for name, at in (("one", AGENT), ("two", JID.parse("agent.example"))):
            await world.add(
                watch(name, str(JULIET), service=JULIET, node=PRESENCE, at=at, skill=name), 5
            )
        assert len(world.watcher._sources) == 1


async def test_what_is_recorded_wakes_the_work_only_if_there_is_any(storage: Storage) -> None:
    world = World(storage)
    world.watcher._recorded(Accepted(cut=["gone"], tripped=["gone"]))
    assert world.alerts == [], "its watch was removed meanwhile"
