"""The record of events: each once and in order, thinned and cut, in both databases."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import msgspec
import pytest

from component.features.watches import events as watch_events
from component.features.watches import rows as watch_rows
from component.features.watches.events import Accepted, Pending
from component.features.watches.filters import with_chain
from component.features.watches.sources import Interests, observed_item
from component.features.watches.watch import Source, StartRate, Watch
from component.store import Storage
from xep.binding import RawXML
from xep.jid import JID

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example")
SOURCE = Source(AGENT, JID.parse("pubsub.example"), "builds")
Open = Callable[..., AbstractAsyncContextManager[Storage]]


def watch(name: str = "builds", **more: Any) -> Watch:
    given = {"skill": "note", "rate": StartRate(1000, 1.0)} | more
    return Watch(
        name=name,
        agent="assistant",
        principal=JID.parse("juliet@example.com"),
        service=SOURCE.service,
        node=SOURCE.node,
        **given,
    )


def payload(text: object, via: tuple[str, ...] = ()) -> str:
    raw = RawXML(f"<e xmlns='urn:e'>{text}</e>")
    return with_chain(raw, JID.parse(via[-1]), via[:-1]).text if via else raw.text


class Feed:
    """Records items for watches, as a source watcher does."""

    def __init__(self, storage: Storage, *watches: Watch, max_hops: int = 5) -> None:
        self.storage = storage
        self._interests = Interests(SOURCE, {each.id: each for each in watches})
        self._max_hops = max_hops

    async def define(self) -> None:
        for each in self._interests.watches.values():
            await self.storage.write(lambda db, each=each: watch_rows.put(db, each))  # type: ignore[misc]

    async def give(self, *items: tuple[str, str]) -> Accepted:
        offered = [self._interests.offer(observed_item(id_, xml, None)) for id_, xml in items]
        return await self.storage.write(
            lambda db: watch_events.accept(
                watch_rows.SourceRows(db, SOURCE.key),
                offered,
                self._interests.watches,
                self._max_hops,
            )
        )

    async def take(self, name: str = "builds") -> list[Pending]:
        """Everything that waits, in order; it is handled by that."""
        found = []
        event = await self.storage.read(lambda db: watch_events.next_pending(db, name))
        while event is not None:
            found.append(event)
            event = await self.storage.write(
                lambda db, event=event: watch_events.finish(db, event, started=True)  # type: ignore[misc]
            )
        return found

    async def row(self) -> watch_rows.WatchRow:
        (row,) = await self.storage.read(watch_rows.rows)
        return row


def shown(event: Pending) -> Any:
    return msgspec.json.decode(event.data)


@pytest.mark.ports
async def test_each_item_starts_work_once_and_in_order(storage: Storage) -> None:
    feed = Feed(storage, watch())
    await feed.define()
    assert (await feed.give(("a", payload(1)), ("b", payload(2)))).starts == 2
    assert (await feed.give(("b", payload(2)), ("c", payload(3)), ("a", payload(1)))).new == 1
    found = await feed.take()
    assert [shown(each)["item"] for each in found] == ["a", "b", "c"]
    assert len({each.key for each in found}) == 3
    row = await feed.row()
    assert (row.received, row.started, row.pending) == (3, 3, 0)


@pytest.mark.ports
async def test_an_id_with_another_payload_is_a_new_event(storage: Storage) -> None:
    feed = Feed(storage, watch())
    await feed.define()
    for text in ("happy", "happy", "sad", "happy"):
        await feed.give(("current", payload(text)))
    found = await feed.take()
    assert [shown(each)["text"] for each in found] == ["happy", "sad", "happy"]
    assert len({each.key for each in found}) == 3


async def test_how_a_service_writes_a_payload_is_no_new_version(storage: Storage) -> None:
    feed = Feed(storage, watch())
    await feed.define()
    await feed.give(("a", "<e xmlns='urn:e' one='1' two='2'><f/></e>"))
    again = "<x:e xmlns:x='urn:e' two='2' one='1'><x:f></x:f></x:e>"
    assert (await feed.give(("a", again))).new == 0


async def test_an_item_without_an_id_is_always_new(storage: Storage) -> None:
    feed = Feed(storage, watch())
    await feed.define()
    await feed.give(("", payload(1)), ("", payload(1)))
    assert len(await feed.take()) == 2


@pytest.mark.ports
async def test_of_several_instances_one_records_an_event(open_storage: Open) -> None:
    async with open_storage("one") as first:
        feed = Feed(first, watch())
        await feed.define()
        items = [(f"i{number}", payload(number)) for number in range(20)]
        news: list[int] = []

        async def give(storage: Storage) -> None:
            for item in items:
                accepted = await Feed(storage, watch()).give(item)
                news.append(accepted.new)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(give, first)
        assert sum(news) == len(items)
        assert [shown(each)["item"] for each in await feed.take()] == [id_ for id_, _ in items]


@pytest.mark.ports
async def test_digest_joins_what_is_above_the_rate(storage: Storage) -> None:
    feed = Feed(storage, watch(rate=StartRate(2, 3600.0)))
    await feed.define()
    await feed.give(*[(f"i{number}", payload(number)) for number in range(70)])
    accepted = await feed.give(("last", payload("last")))
    assert accepted.thinned == 1
    found = await feed.take()
    assert [each.due > 0 for each in found] == [False, False, True]
    digest = shown(found[-1])
    assert digest["item"] == "last"
    assert digest["total"] == 69
    assert len(digest["events"]) == watch_events.MOST_IN_DIGEST
    assert digest["events"][-1]["item"] == "last"
    assert (await feed.row()).thinned == 68


@pytest.mark.ports
async def test_latest_replaces_and_drop_drops(storage: Storage) -> None:
    hourly = StartRate(1, 3600.0)
    latest, drop = watch(thinning="latest", rate=hourly), watch(thinning="drop", rate=hourly)
    feed = Feed(storage, latest)
    await feed.define()
    await feed.give(*[(f"i{number}", payload(number)) for number in range(10)])
    found = await feed.take()
    assert [shown(each)["item"] for each in found] == ["i0", "i9"]
    assert "events" in shown(found[-1])
    feed = Feed(storage, drop)
    await storage.write(lambda db: watch_rows.remove(db, "builds"))
    await feed.define()
    await feed.give(*[(f"j{number}", payload(number)) for number in range(10)])
    assert [shown(each)["item"] for each in await feed.take()] == ["j0"]
    assert (await feed.row()).thinned == 9


@pytest.mark.ports
async def test_events_that_too_many_agents_led_to_are_cut(storage: Storage) -> None:
    feed = Feed(storage, watch(), max_hops=3)
    await feed.define()
    chain = ("a@one.example", "b@two.example", "c@three.example")
    accepted = await feed.give(("two", payload(1, chain[:2])), ("three", payload(2, chain)))
    assert accepted.cut == ["builds"]
    (event,) = await feed.take()
    assert event.chain == chain[:2]
    assert (await feed.row()).cut == 1


@pytest.mark.ports
async def test_the_breaker_stops_a_watch_until_it_is_resumed(storage: Storage) -> None:
    feed = Feed(storage, watch(starts_per_hour=5))
    await feed.define()
    accepted = await feed.give(*[(f"i{number}", payload(number)) for number in range(9)])
    assert accepted.tripped == ["builds"]
    assert len(await feed.take()) == 5
    row = await feed.row()
    assert row.state == "tripped"
    assert "loop" in row.reason
    await feed.give(("x", payload("x")))
    assert await feed.take() == []
    await storage.write(lambda db: watch_rows.set_state(db, "builds", "active"))
    await feed.give(("y", payload("y")))
    assert [shown(each)["item"] for each in await feed.take()] == ["y"]


async def test_a_paused_watch_starts_nothing(storage: Storage) -> None:
    feed = Feed(storage, watch())
    await feed.define()
    await storage.write(lambda db: watch_rows.set_state(db, "builds", "paused"))
    await feed.give(("a", payload(1)))
    await storage.write(lambda db: watch_rows.set_state(db, "builds", "active"))
    await feed.give(("a", payload(1)), ("b", payload(2)))
    assert [shown(each)["item"] for each in await feed.take()] == ["b"]


@pytest.mark.ports
async def test_what_was_deleted_is_new_when_it_comes_again(storage: Storage) -> None:
    feed = Feed(storage, watch())
    await feed.define()
    await feed.give(("a", payload(1)), ("b", payload(2)))
    await storage.write(lambda db: watch_rows.SourceRows(db, SOURCE.key).forget_items(["a"]))
    assert (await feed.give(("a", payload(1)), ("b", payload(2)))).new == 1


@pytest.mark.ports
async def test_marks_of_items_that_are_gone_are_deleted_in_time(open_storage: Open) -> None:
    clock = [1_000_000_000_000]
    async with open_storage(now=lambda: clock[0]) as storage:
        feed = Feed(storage, watch())
        await feed.define()
        await feed.give(("a", payload(1)), ("b", payload(2)))

        def left(db: Any) -> int:
            return int(db.execute("SELECT count(*) FROM watch_items").fetchone()[0])

        await storage.write(lambda db: watch_rows.SourceRows(db, SOURCE.key).prune(["b"]))
        assert await storage.read(left) == 2
        if await storage.read(lambda db: db.dialect) == "postgresql":
            return  # which has a clock of its own
        clock[0] += 2 * 3_600_000
        await storage.write(lambda db: watch_rows.SourceRows(db, SOURCE.key).prune(None))
        assert await storage.read(left) == 2
        await storage.write(lambda db: watch_rows.SourceRows(db, SOURCE.key).prune(["b"]))
        assert await storage.read(left) == 1


@pytest.mark.ports
async def test_an_id_of_any_length_is_stored(storage: Storage) -> None:
    feed = Feed(storage, watch())
    await feed.define()
    long = "x" * 3000
    assert (await feed.give((long, payload(1)), (long + "y", payload(1)))).new == 2
    assert (await feed.give((long, payload(1)))).new == 0
