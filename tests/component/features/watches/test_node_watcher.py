"""A source is watched through everything that its service does, on both event loops."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import msgspec
import pytest

from component.app.schema import SCHEMA
from component.features.watches import events as watch_events
from component.features.watches import rows as watch_rows
from component.features.watches.node_watcher import NodeWatcher
from component.features.watches.rows import RetryingStorage
from component.features.watches.sources import SourcePorts
from component.features.watches.watch import Source, StartRate, Watch
from component.pubsub.client import PAGE, PubSubClient
from component.store import Storage
from tests.waiting import eventually
from xep.binding import Payload, RawXML
from xep.jid import JID
from xep.pubsub import Item, Items, Pubsub, Subscription
from xep.pubsub_event import Delete, Event, Purge, Retract
from xep.pubsub_event import Item as EventItem
from xep.pubsub_event import Items as EventItems
from xep.pubsub_event import Subscription as EventSubscription
from xep.result_sets import ResultSet
from xep.stanza_error import Condition, StanzaError

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example")
SOURCE = Source(AGENT, JID.parse("pubsub.example"), "news")
WATCH = Watch(
    name="news",
    agent="assistant",
    principal=JID.parse("juliet@example.com"),
    service=SOURCE.service,
    node=SOURCE.node,
    skill="note",
    rate=StartRate(10_000, 1.0),
)


class Service:
    """A PubSub service with one node, which does what a test tells it to.

    `refusal` is its answer to everything; `pages` whether it knows XEP-0059; `most` how many items
    fit into an answer.
    """

    def __init__(self) -> None:
        self.items: dict[str, str] | None = {}
        self.refusal: Condition | None = None
        self.state: Literal["subscribed", "pending"] = "subscribed"
        self.pages = True
        self.most = 10_000
        self.subscriptions = 0
        self.during_listing: Callable[[], None] = lambda: None

    async def call(
        self,
        type_: str,
        to: JID,
        payload: Payload,
        expected: type[Any],
        *,
        from_: JID | None = None,
    ) -> Any:
        await anyio.lowlevel.checkpoint()
        assert isinstance(payload, Pubsub)
        assert (to, from_, expected) == (SOURCE.service, AGENT, Pubsub)
        if self.refusal is not None:
            raise StanzaError(self.refusal)
        if self.items is None:
            raise StanzaError("item-not-found")
        if payload.subscribe is not None:
            self.subscriptions += 1
            return Pubsub(
                subscription=Subscription(node="news", jid=AGENT, subscription=self.state)
            )
        if payload.unsubscribe is not None:
            return None
        assert payload.items is not None
        return self._listed(payload.items, payload.page)

    def _listed(self, query: Items, page: ResultSet | None) -> Pubsub:
        assert self.items is not None
        found = [
            Item(id=id_, payloads=(RawXML(f"<e xmlns='urn:e'>{text}</e>"),))
            for id_, text in self.items.items()
            if not query.items or id_ in {each.id for each in query.items}
        ]
        result = None
        if query.max_items is not None:
            found = found[-query.max_items :]
        elif page is not None and self.pages:
            ids = [each.id for each in found]
            start = ids.index(page.after) + 1 if page.after in ids else 0
            found = found[start : start + (page.max or 0)]
            result = ResultSet(last=found[-1].id) if found else ResultSet(count=0)
        if len(found) > self.most:
            raise StanzaError("policy-violation")
        answer = Pubsub(items=Items(node="news", items=tuple(found)), page=result)
        self.during_listing()
        return answer


class World:
    """A source watcher, its service and its storage."""

    def __init__(self, storage: Storage, check_s: float = 60.0) -> None:
        self.storage = storage
        self.service = Service()
        self.asked: list[bool] = []
        self.permission: str | None = None
        ports = SourcePorts(
            client=PubSubClient(self.service.call),
            storage=RetryingStorage(storage),
            recorded=lambda _accepted: None,
            consent=self._consent,
            max_hops=5,
            check_s=check_s,
        )
        self.watcher = NodeWatcher(SOURCE, ports)
        self.watcher.set_watches({WATCH.id: WATCH})

    async def _consent(self, source: Source, *, refused: bool = False) -> str | None:
        assert source == SOURCE
        self.asked.append(refused)
        return self.permission

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.storage.write(lambda db: watch_rows.put(db, WATCH))
        async with anyio.create_task_group() as group:
            group.start_soon(self.watcher.run)
            yield
            group.cancel_scope.cancel()

    def publish(self, *ids: str, live: bool = True) -> None:
        for id_ in ids:
            if self.service.items is not None:
                self.service.items.pop(id_, None)
                self.service.items[id_] = id_
            if live:
                self.notify((id_, id_))

    def notify(self, *items: tuple[str, str]) -> None:
        """Notify of items with these ids and texts, all in one message."""
        found = tuple(
            EventItem(id=id_, payloads=(RawXML(f"<e xmlns='urn:e'>{text}</e>"),))
            for id_, text in items
        )
        self.watcher.observed(Event(items=EventItems(node="news", items=found)))

    async def miss(self, *ids: str) -> None:
        """Lose the session after the source was observed, and publish items meanwhile."""
        self.watcher.connected()
        await self.state("live")
        self.watcher.disconnected()
        self.publish(*ids, live=False)

    async def state(self, wanted: str) -> None:
        await eventually(lambda: self.watcher.status.state == wanted)

    async def handled(self, *wanted: str) -> None:
        """Wait until these items have been recorded, in this order, and no others."""

        async def all_are() -> bool:
            return len(await self.storage.read(_recorded_items)) >= len(wanted)

        await eventually(all_are)
        assert await self.storage.read(_recorded_items) == list(wanted)


def _recorded_items(db: Any) -> list[str]:
    rows = db.execute("SELECT key FROM watch_events ORDER BY number").fetchall()
    return [key.partition(" ")[2] for (key,) in rows]


def _recorded_data(db: Any) -> list[list[dict[str, Any]]]:
    rows = db.execute("SELECT data FROM watch_events ORDER BY number").fetchall()
    return [msgspec.json.decode(data) for (data,) in rows]


@pytest.fixture
async def world(open_sqlite: Storage) -> World:
    return World(open_sqlite)


@pytest.fixture
async def open_sqlite(tmp_path: Any) -> AsyncIterator[Storage]:
    async with Storage.open(SCHEMA, tmp_path / "data") as storage:
        yield storage


@pytest.mark.ports
async def test_what_is_there_is_no_news_and_what_comes_is(world: World) -> None:
    world.publish("old", live=False)
    async with world.running():
        world.watcher.connected()
        await world.state("live")
        world.publish("a", "b")
        await world.handled("a", "b")
        world.watcher.disconnected()
        world.publish("c", "d", live=False)
        world.watcher.connected()
        await world.handled("a", "b", "c", "d")


@pytest.mark.parametrize("pages", [True, False])
async def test_many_missed_items_come_in_order(world: World, pages: bool) -> None:
    world.service.pages = pages
    async with world.running():
        world.watcher.connected()
        await world.state("live")
        world.watcher.disconnected()
        ids = [f"i{number}" for number in range(3 * PAGE + 7)]
        world.publish(*ids, live=False)
        world.watcher.connected()
        await world.handled(*ids)


@pytest.mark.ports
async def test_an_answer_that_is_too_large_gives_the_newest(world: World) -> None:
    world.service.pages = False
    async with world.running():
        world.watcher.connected()
        await world.state("live")
        world.watcher.disconnected()
        world.publish(*[f"i{number}" for number in range(30)], live=False)
        world.service.most = 20
        world.watcher.connected()
        await world.handled(*[f"i{number}" for number in range(10, 30)])


@pytest.mark.ports
async def test_what_comes_while_it_catches_up_is_handled_after_that(world: World) -> None:
    async with world.running():
        await world.miss("a", "b")

        def publish() -> None:
            world.service.during_listing = lambda: None
            world.publish("c")

        world.service.during_listing = publish
        world.watcher.connected()
        await world.handled("a", "b", "c")


async def test_earlier_versions_that_wait_come_before_the_listed_one(world: World) -> None:
    """What the node has sent before its listing is older than that, whatever is handled first."""
    async with world.running():
        await world.miss("a", "b")

        def publish() -> None:
            world.service.during_listing = lambda: None
            for text in ("1", "2"):
                world.notify(("b", text), ("d", text))
            world.watcher.observed(Event(items=EventItems(node="news", items=(Retract(id="b"),))))
            world.notify(("b", "b"), ("c", "c"))

        world.service.during_listing = publish
        world.watcher.connected()
        await world.handled("a", "b", "b", "b", "d", "d", "c")
        texts = [each["text"] for (each,) in await world.storage.read(_recorded_data)]
        assert texts == ["a", "1", "2", "b", "1", "2", "c"]
        world.watcher.connected()
        await world.state("live")
        await world.handled("a", "b", "b", "b", "d", "d", "c")


async def test_what_was_missed_comes_first_when_the_service_answers_again(world: World) -> None:
    async with world.running():
        await world.miss("a", "b")
        world.service.refusal = "remote-server-timeout"
        world.watcher.connected()
        await world.state("failed")
        world.service.refusal = None
        world.publish("c")
        await world.handled("a", "b", "c")


async def test_a_service_that_notifies_and_answers_nothing(world: World) -> None:
    async with world.running():
        world.watcher.connected()
        await world.state("live")
        world.service.refusal = "remote-server-timeout"
        world.watcher.connected()
        await world.state("failed")
        world.publish("a")
        await world.handled("a")
        world.publish("b")
        await world.handled("a", "b")


async def test_a_node_that_is_created_later(world: World) -> None:
    world.service.items = None
    async with world.running():
        world.watcher.connected()
        await world.state("missing")
        world.service.items = {}
        world.publish("first", live=False)
        world.watcher.retry()
        await world.handled("first")


async def test_a_node_that_is_deleted_and_created_again(world: World) -> None:
    async with world.running():
        world.watcher.connected()
        await world.state("live")
        world.publish("a")
        await world.handled("a")
        world.service.items = None
        world.watcher.observed(Event(delete=Delete(node="news")))
        await world.state("missing")
        world.service.items = {}
        world.publish("a", live=False)
        world.watcher.retry()
        await world.handled("a", "a")


async def test_retracted_and_purged_items_are_news_when_they_come_again(world: World) -> None:
    async with world.running():
        world.watcher.connected()
        await world.state("live")
        world.publish("a", "b")
        retract = EventItems(node="news", items=(Retract(id="a"),))
        world.watcher.observed(Event(items=retract))
        world.publish("a", "b")
        await world.handled("a", "b", "a")
        world.watcher.observed(Event(purge=Purge(node="news")))
        world.publish("b")
        await world.handled("a", "b", "a", "b")


async def test_a_subscription_that_an_owner_approves(world: World) -> None:
    world.service.state = "pending"
    async with world.running():
        world.watcher.connected()
        await world.state("pending")
        world.publish("a", live=False)
        approved = EventSubscription(node="news", jid=AGENT, subscription="subscribed")
        world.watcher.observed(Event(subscription=approved))
        await world.handled("a")


async def test_a_service_that_refuses_or_does_not_answer(world: World) -> None:
    world.service.refusal = "forbidden"
    async with world.running():
        world.watcher.connected()
        await world.state("refused")
        assert True in world.asked, "the person is asked when the service refuses"
        world.service.refusal = "remote-server-timeout"
        world.watcher.retry()
        await world.state("failed")
        world.service.refusal = None
        world.watcher.retry()
        await world.state("live")
        world.publish("a")
        await world.handled("a")


async def test_without_permission_nothing_is_requested(world: World) -> None:
    world.permission = "juliet has not allowed it yet."
    async with world.running():
        world.watcher.connected()
        await world.state("refused")
        assert world.watcher.status.reason == world.permission
        assert world.service.subscriptions == 0
        world.permission = None
        world.watcher.retry()
        await world.state("live")


async def test_payloads_that_are_not_delivered_are_fetched(world: World) -> None:
    async with world.running():
        world.watcher.connected()
        await world.state("live")
        world.publish("a", live=False)
        bare = EventItems(node="news", items=(EventItem(id="a"),))
        world.watcher.observed(Event(items=bare))
        await world.handled("a")
        event = await world.storage.read(lambda db: watch_events.next_pending(db, WATCH.id))
        assert event is not None
        assert b'"text":"a"' in event.data


async def test_too_many_notifications_lead_to_a_listing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.features.watches.sources.MOST_WAITING", 5)
    async with world.running():
        world.watcher.connected()
        await world.state("live")
        ids = [f"i{number}" for number in range(20)]
        world.publish(*ids)
        await world.handled(*ids)


async def test_it_is_verified_from_time_to_time(open_sqlite: Storage) -> None:
    world = World(open_sqlite, check_s=0.02)
    async with world.running():
        world.watcher.connected()
        await world.state("live")
        world.publish("silent", live=False)  # such as on a node that was created again
        await world.handled("silent")
        assert world.service.subscriptions > 1
