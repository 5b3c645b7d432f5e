"""Queues that take turns."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.pubsub.notifier import Turns
from tests.profiles import examples

pytestmark = pytest.mark.anyio


async def _taken(turns: Turns[str], count: int, cost: float = 1) -> list[str]:
    """Take turns, each of which finishes its entry."""
    found = []
    for _ in range(count):
        turn = await turns.next()
        found.append(turn.entry)
        turns.done(turn, cost)
    return found


async def test_a_key_with_one_entry_waits_for_one_turn_of_each_other() -> None:
    turns: Turns[str] = Turns("tests")
    for number in range(100):
        turns.put("greedy", f"greedy {number}")
    await _taken(turns, 1)
    turns.put("other", "other")
    assert "other" in await _taken(turns, 2)


async def test_an_entry_that_is_not_finished_keeps_its_place_and_pays() -> None:
    turns: Turns[str] = Turns("tests")
    turns.put("large", "large")
    turns.put("small", "small 1")
    turns.put("small", "small 2")
    turn = await turns.next()
    turns.done(turn, 10, finished=False)
    assert await _taken(turns, 3) == ["small 1", "small 2", "large"]


async def test_a_key_has_one_turn_at_a_time() -> None:
    turns: Turns[str] = Turns("tests")
    turns.put("a", "a 1")
    turns.put("a", "a 2")
    first = await turns.next()
    second: list[str] = []

    async def take() -> None:
        second.append((await turns.next()).entry)

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        assert not second
        turns.done(first, 1)
    assert second == ["a 2"]


@pytest.mark.parametrize("bytes_", [0, 10])
async def test_a_key_that_uses_as_much_as_is_free_loses_its_own_oldest_entries(bytes_: int) -> None:
    turns: Turns[str] = Turns("tests", *((10, 1000) if not bytes_ else (1000, 100)))
    turns.put("patient", "patient", bytes_)
    for number in range(20):
        turns.put("greedy", f"greedy {number}", bytes_)
    taken = []
    with anyio.move_on_after(0):
        while True:
            taken += await _taken(turns, 1)
    assert "patient" in taken
    assert taken[-1] == "greedy 19"
    assert 4 <= len(taken) <= 6


@examples(50)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 30)),
            st.tuples(st.just("take"), st.floats(0, 50), st.booleans()),
        ),
        max_size=60,
    )
)
async def test_entries_of_a_key_keep_their_order_and_the_limits_hold(steps: list[tuple]) -> None:  # type: ignore[type-arg]  # two kinds of steps
    turns: Turns[tuple[int, int]] = Turns("tests", 12, 120)
    put = 0
    taken: list[tuple[int, int]] = []
    for kind, first, second in steps:
        if kind == "put":
            turns.put(first, (first, put), second)
            put += 1
        else:
            with anyio.move_on_after(0):
                turn = await turns.next()
                turns.done(turn, first, finished=second)
                if second:
                    taken.append(turn.entry)
    for key in range(4):
        numbers = [number for of, number in taken if of == key]
        assert numbers == sorted(set(numbers))
    # The last entry of each key stays, whatever its size.
    assert turns._free >= -4
    assert turns._free_bytes >= -4 * 30
