"""Worker threads: a share for each principal, and one left for somebody who has none."""

from collections.abc import Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.skills.calling import Threads

pytestmark = pytest.mark.anyio


class Holders:
    """Tasks that hold a thread until the test lets them end."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.holding: list[str] = []
        self._end = {name: anyio.Event() for name in "abcdefgh"}

    async def hold(self, principal: str) -> None:
        share = self.threads.share(principal)
        await share.acquire()
        self.holding.append(principal)
        try:
            await self._end[principal].wait()
        finally:
            self.holding.remove(principal)
            share.release()

    def end(self, principal: str) -> None:
        self._end[principal].set()
        self._end[principal] = anyio.Event()


@given(crowd=st.lists(st.sampled_from("abcd"), max_size=60))
async def test_who_has_none_gets_one_at_once(crowd: Sequence[str]) -> None:
    holders = Holders(Threads(12, 4))
    async with anyio.create_task_group() as tasks:
        for principal in crowd:
            tasks.start_soon(holders.hold, principal)
        await anyio.wait_all_tasks_blocked()
        assert all(holders.holding.count(name) <= 4 for name in "abcd")
        tasks.start_soon(holders.hold, "e")
        await anyio.wait_all_tasks_blocked()
        assert "e" in holders.holding
        tasks.cancel_scope.cancel()
    assert not holders.threads._own
    assert holders.threads._free == 12
    assert not holders.threads._waiting


async def test_a_thread_that_is_free_again_is_given_to_whoever_has_the_fewest() -> None:
    holders = Holders(Threads(4, 2))
    async with anyio.create_task_group() as tasks:
        for principal in "aabbcd":
            tasks.start_soon(holders.hold, principal)
            await anyio.wait_all_tasks_blocked()
        assert sorted(holders.holding) == ["a", "a", "b", "c"]
        holders.end("a")
        await anyio.wait_all_tasks_blocked()
        assert sorted(holders.holding) == ["b", "c", "d"], "the last one is for somebody new"
        holders.end("c")
        await anyio.wait_all_tasks_blocked()
        assert sorted(holders.holding) == ["b", "b", "d"]
        tasks.cancel_scope.cancel()


async def test_a_share_of_all_threads_can_be_had() -> None:
    holders = Holders(Threads(2, 2))
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(holders.hold, "a")
        await anyio.wait_all_tasks_blocked()
        assert holders.holding == ["a", "a"]
        tasks.cancel_scope.cancel()
