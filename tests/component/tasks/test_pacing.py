"""Pieces of work on something large: one in each pass of the event loop, principals in rotation."""

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.tasks.admission import Pacer

pytestmark = pytest.mark.anyio

LARGE = 100_000


async def _run(pacer: Pacer, who: Sequence[str], size: int) -> list[str]:
    """Let each of them have a turn, beside a task that counts passes ("-") of the event loop."""
    seen: list[str] = []
    left = len(who)

    async def work(principal: str) -> None:
        nonlocal left
        async with pacer.turn(principal, size):
            seen.append(principal)
        left -= 1

    async def others() -> None:
        while left:
            seen.append("-")
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        for principal in who:
            tasks.start_soon(work, principal)
    return seen


@given(who=st.lists(st.sampled_from("ab"), min_size=2, max_size=30))
async def test_others_run_between_any_two_pieces(who: list[str]) -> None:
    seen = "".join(await _run(Pacer(), who, LARGE))
    assert sorted(seen.replace("-", "")) == sorted(who)
    turns = seen.strip("-")
    # In the order of tasks within a pass, which trio draws, two may meet at its edges.
    assert not any(turns[at : at + 3].isalpha() for at in range(len(turns) - 2)), seen


async def test_principals_take_turns() -> None:
    pacer = Pacer()
    await pacer.enter("first")
    order: list[str] = []

    async def work(principal: str) -> None:
        async with pacer.turn(principal, LARGE):
            order.append(principal)

    async with anyio.create_task_group() as tasks:
        for principal in "a" * 10:
            tasks.start_soon(work, principal)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(work, "b")
        await anyio.wait_all_tasks_blocked()
        pacer.leave()
    assert "b" in order[:2]


async def test_little_waits_for_nothing() -> None:
    pacer = Pacer()
    await pacer.enter("somebody")
    with anyio.fail_after(0):
        async with pacer.turn("other", 100):
            pass


@given(given_up=st.sets(st.integers(0, 5)))
async def test_who_gives_up_holds_nobody_up(given_up: set[int]) -> None:
    pacer = Pacer()
    await pacer.enter("first")
    done: set[int] = set()
    scopes = [anyio.CancelScope() for _ in range(6)]

    async def work(number: int) -> None:
        with scopes[number]:
            async with pacer.turn(str(number % 2), LARGE):
                done.add(number)

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(work, number)
        await anyio.wait_all_tasks_blocked()
        for number in sorted(given_up)[1:]:
            scopes[number].cancel()
        pacer.leave()
        for number in sorted(given_up)[:1]:  # perhaps the very one whose turn it is now
            scopes[number].cancel()
    assert set(range(6)) - given_up <= done
    with anyio.fail_after(120):
        async with pacer.turn("last", LARGE):
            pass
