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

from component.storage import Storage, StorageError, Subscription, SubscriptionStore
from xep.jid import JID

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
        assert await store.all() == [other, one]
        assert await store.get(AGENT, ALICE) == one


@pytest.mark.anyio
async def test_resources_do_not_matter(open_storage: Open) -> None:
    async with open_storage() as storage:
        store = SubscriptionStore(storage)
        phone = ALICE.with_resource("phone")
        await store.put(Subscription(AGENT.with_resource("x"), phone, "to"))
        assert await store.get(AGENT, phone) == Subscription(AGENT, ALICE, "to")
        assert await store.of_owner(AGENT.with_resource("y")) == [Subscription(AGENT, ALICE, "to")]
        assert await store.remove(AGENT, phone)
        assert not await store.remove(AGENT, phone)


@pytest.mark.anyio
async def test_a_row_that_somebody_spoiled(tmp_path: Path) -> None:
    def spoil(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO subscriptions VALUES ('a@@b', 'c@d', 'from', 0)")

    async with Storage.open(tmp_path) as storage:
        await storage.write(spoil)
        with pytest.raises(StorageError, match="holds 'a@@b' and 'c@d'"):
            await SubscriptionStore(storage).all()


_jids = st.sampled_from([AGENT, DOMAIN, ALICE, BOB])
_subscriptions = st.builds(
    Subscription, _jids, _jids, st.sampled_from(["none", "from", "to", "both"]), st.booleans()
)
_steps = st.lists(st.one_of(_subscriptions, st.tuples(_jids, _jids)), max_size=8)


@given(_steps)
def test_agrees_with_a_dictionary(steps: list[Subscription | tuple[JID, JID]]) -> None:
    async def compare(directory: Path) -> None:
        model: dict[tuple[JID, JID], Subscription] = {}
        async with Storage.open(directory) as storage:
            store = SubscriptionStore(storage)
            for step in steps:
                if isinstance(step, Subscription):
                    await store.put(step)
                    model[step.owner, step.contact] = step
                else:
                    assert await store.remove(*step) == (model.pop(step, None) is not None)
            expected = sorted(model.values(), key=lambda s: (str(s.owner), str(s.contact)))
            assert await store.all() == expected
            for owner in (AGENT, DOMAIN, ALICE, BOB):
                assert await store.of_owner(owner) == [s for s in expected if s.owner == owner]
                for contact in (AGENT, DOMAIN, ALICE, BOB):
                    assert await store.get(owner, contact) == model.get((owner, contact))

    with tempfile.TemporaryDirectory() as directory:
        anyio.run(compare, Path(directory), backend="trio")
