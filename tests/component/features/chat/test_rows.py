"""Which people have been told that an agent is a machine, in both databases."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import anyio
import pytest

from component.features.chat.rows import NoticeStore
from component.store import Storage
from xep.jid import JID

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

AGENT = JID.parse("assistant@agent.example")
OTHER = JID.parse("researcher@agent.example")
ALICE = JID.parse("alice@a.example/phone")
Open = Callable[..., AbstractAsyncContextManager[Storage]]


async def test_one_of_many_claims_a_notice(storage: Storage) -> None:
    claimed: list[bool] = []

    async def claim() -> None:
        claimed.append(await NoticeStore(storage).claim(AGENT, ALICE))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(claim)
    assert sorted(claimed) == [False, False, False, False, True]
    assert await NoticeStore(storage).claim(OTHER, ALICE)


async def test_what_is_sent_stays_sent(open_storage: Open) -> None:
    async with open_storage() as storage:
        store = NoticeStore(storage)
        assert await store.claim(AGENT, ALICE)
        assert not await store.is_sent(AGENT, ALICE)
        await store.sent(AGENT, ALICE)
    async with open_storage() as storage:
        store = NoticeStore(storage)
        assert await store.is_sent(AGENT, ALICE.bare)
        assert not await store.is_sent(OTHER, ALICE)
        assert not await store.claim(AGENT, ALICE)
