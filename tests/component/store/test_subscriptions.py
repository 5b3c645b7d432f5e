"""Presence subscriptions on disk."""

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.store import Storage, StorageError, Subscription, SubscriptionStore
from xep.jid import JID

pytestmark = pytest.mark.ports

AGENT = JID.parse("assistant@agent.example")
DOMAIN = JID.parse("agent.example")
Open = Callable[..., AbstractAsyncContextManager[Storage]]
ALICE = JID.parse("alice@a.example")
BOB = JID.parse("bob@bücher.example")


@pytest.mark.anyio
async def test_survives_a_restart(open_storage: Open) -> None:
    one = Subscription(AGENT, ALICE, "from", ask=True)
    other = Subscription(DOMAIN, BOB, "both")
    async with open_storage() as storage:
        store = SubscriptionStore(storage)
        await store.put(one)
        await store.put(Subscription(DOMAIN, BOB, "none"))  # one takes the other's place
        await store.put(other)
    async with open_storage() as storage:
        store = SubscriptionStore(storage)
        assert await store.receivers() == [other, one]
        assert await store.get(AGENT, ALICE) == one


@pytest.mark.anyio
async def test_resources_do_not_matter(open_storage: Open) -> None:
    async with open_storage() as storage:
        store = SubscriptionStore(storage)
        phone = ALICE.with_resource("phone")
        await store.put(Subscription(AGENT.with_resource("x"), phone, "to"))
        assert await store.get(AGENT, phone) == Subscription(AGENT, ALICE, "to")
        assert await store.remove(AGENT, phone)
        assert not await store.remove(AGENT, phone)


@pytest.mark.anyio
async def test_a_row_that_somebody_spoiled(tmp_path: Path) -> None:
    def spoil(connection: sqlite3.Connection) -> None:
        connection.execute(
            "INSERT INTO subscriptions (owner, contact, state, ask)"
            " VALUES ('a@@b', 'c@d', 'from', 0)"
        )

    async with Storage.open(SCHEMA, tmp_path) as storage:
        await storage.write(spoil)
        with pytest.raises(StorageError, match=r"'a@@b'.*'c@d'"):
            await SubscriptionStore(storage).receivers()


async def paged(store: SubscriptionStore, limit: int) -> list[Subscription]:
    found: list[Subscription] = []
    while page := await store.receivers(found[-1] if found else None, limit):
        assert len(page) <= limit
        found += page
    return found


@pytest.mark.anyio
async def test_a_page_goes_on_where_the_one_before_ended(open_storage: Open) -> None:
    many = [
        Subscription(owner, contact, "from")
        for owner in (DOMAIN, AGENT)
        for contact in (ALICE, BOB, JID.parse("carol@a.example"), JID.parse("a.example"))
    ]
    async with open_storage() as storage:
        store = SubscriptionStore(storage)
        for one in many:
            await store.put(one)
        ordered = sorted(many, key=lambda s: (str(s.owner), str(s.contact)))
        for limit in (1, 3, 8, 9):
            assert await paged(store, limit) == ordered


HOUR_MS = 3_600_000


class Clock:
    now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.mark.anyio
async def test_who_cannot_be_reached_is_left_out_for_longer_and_longer(tmp_path: Path) -> None:
    clock = Clock()
    async with Storage.open(SCHEMA, tmp_path, now=clock) as storage:
        store = SubscriptionStore(storage)
        await store.put(Subscription(AGENT, ALICE, "from"))
        await store.put(Subscription(AGENT, BOB, "from"))
        for hours in (1, 6, 24, 7 * 24, 30 * 24):
            assert not await store.failed(AGENT, ALICE.with_resource("phone"), for_good=False)
            clock.now += hours * HOUR_MS - 1
            assert [one.contact for one in await store.receivers()] == [BOB]
            clock.now += 1
            assert [one.contact for one in await store.receivers()] == [ALICE, BOB]
        assert await store.failed(AGENT, ALICE, for_good=False)
        clock.now += 100 * 365 * 24 * HOUR_MS
        assert [one.contact for one in await store.receivers()] == [BOB]
        known = await store.get(AGENT, ALICE)
        assert known is not None  # it can still ask for us
        assert known.failures == 5


@pytest.mark.anyio
@pytest.mark.parametrize("by", ["heard", "put"])
async def test_who_is_heard_from_is_told_again(open_storage: Open, by: str) -> None:
    async with open_storage() as storage:
        store = SubscriptionStore(storage)
        one = Subscription(AGENT, ALICE, "from")
        await store.put(one)
        assert await store.failed(AGENT, ALICE, for_good=True)
        assert await store.receivers() == []
        if by == "heard":
            await store.reachable(AGENT, ALICE)
        else:
            await store.put(one)
        assert await store.receivers() == [one]


@pytest.mark.anyio
async def test_an_error_from_a_stranger_changes_nothing(open_storage: Open) -> None:
    async with open_storage() as storage:
        store = SubscriptionStore(storage)
        assert not await store.failed(AGENT, ALICE, for_good=True)
        assert await store.get(AGENT, ALICE) is None


_jids = st.sampled_from([AGENT, DOMAIN, ALICE, BOB])
_subscriptions = st.builds(
    Subscription, _jids, _jids, st.sampled_from(["none", "from", "to", "both"]), st.booleans()
)
_steps = st.lists(st.one_of(_subscriptions, st.tuples(_jids, _jids)), max_size=8)


@given(_steps)
def test_agrees_with_a_dictionary(steps: list[Subscription | tuple[JID, JID]]) -> None:
    async def compare(directory: Path) -> None:
        model: dict[tuple[JID, JID], Subscription] = {}
        async with Storage.open(SCHEMA, directory) as storage:
            store = SubscriptionStore(storage)
            for step in steps:
                if isinstance(step, Subscription):
                    await store.put(step)
                    model[step.owner, step.contact] = step
                else:
                    assert await store.remove(*step) == (model.pop(step, None) is not None)
            receiving = [one for one in model.values() if one.state in ("from", "both")]
            expected = sorted(receiving, key=lambda s: (str(s.owner), str(s.contact)))
            assert await paged(store, 2) == expected
            for owner in (AGENT, DOMAIN, ALICE, BOB):
                for contact in (AGENT, DOMAIN, ALICE, BOB):
                    assert await store.get(owner, contact) == model.get((owner, contact))

    with tempfile.TemporaryDirectory() as directory:
        anyio.run(compare, Path(directory), backend="trio")
