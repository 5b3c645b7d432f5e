"""Group commit, on both databases: who shares a commit, who is hurt by whom, who hears what."""

import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.store import Storage, StorageError
from component.store.database import Database
from component.store.storage import TOGETHER
from component.store.writes import Queued

pytestmark = [pytest.mark.anyio, pytest.mark.ports]
Open = Callable[..., AbstractAsyncContextManager[Storage]]


class RefusalError(Exception):
    """Of an operation's own."""


def make(database: Database) -> None:
    database.execute("CREATE TABLE numbers (n BIGINT PRIMARY KEY)")


def add(number: int) -> Callable[[Database], int]:
    def op(database: Database) -> int:
        database.execute("INSERT INTO numbers (n) VALUES (?)", (number,))
        return number

    return op


def numbers(database: Database) -> list[int]:
    return [n for (n,) in database.execute("SELECT n FROM numbers ORDER BY n").fetchall()]


class Gate:
    """An operation that holds the thread until it is opened, so that others must wait."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self, _database: Database) -> None:
        self.entered.set()
        assert self.open.wait(120)

    async def until_entered(self) -> None:
        assert await anyio.to_thread.run_sync(self.entered.wait, 60)


class Crowd:
    """Gives operations to `give`, which writes or reads, while the thread is held, so that they
    wait together, in their order.
    """

    def __init__(self, give: Callable[[Callable[[Database], Any]], Awaitable[Any]]) -> None:
        self.give = give
        self.outcomes: list[Any] = []

    async def run(self, *ops: Callable[[Database], Any]) -> list[Any]:
        self.outcomes = [None] * len(ops)
        gate = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.give, gate)
            await gate.until_entered()
            for index, op in enumerate(ops):
                tasks.start_soon(self._one, index, op)
                await anyio.wait_all_tasks_blocked()
            gate.open.set()
        return self.outcomes

    async def _one(self, index: int, op: Callable[[Database], Any]) -> None:
        try:
            self.outcomes[index] = await self.give(op)
        except (RefusalError, StorageError) as error:
            self.outcomes[index] = error
        except Exception as error:  # noqa: BLE001
            # sqlite3.IntegrityError or psycopg's: of one name, of two modules
            self.outcomes[index] = type(error).__name__


async def test_those_that_wait_share_a_transaction_in_their_order(storage: Storage) -> None:
    await storage.write(make)
    seen: list[tuple[int, int]] = []

    def op(number: int) -> Callable[[Database], int]:
        def work(database: Database) -> int:
            seen.append((number, id(database)))
            return add(number)(database)

        return work

    assert await Crowd(storage.write).run(*map(op, range(20))) == list(range(20))
    assert [number for number, _ in seen] == list(range(20))
    assert len({transaction for _, transaction in seen}) == 1
    assert await storage.read(numbers) == list(range(20))


async def test_a_transaction_has_one_time(storage: Storage) -> None:
    times = await Crowd(storage.write).run(*[lambda database: database.now] * 5)
    assert len(set(times)) == 1
    assert times[0] > 1_700_000_000_000


async def test_more_than_fit_take_turns(storage: Storage) -> None:
    await storage.write(make)
    many = TOGETHER + 10
    transactions: set[int] = set()
    keep: list[Database] = []  # or an id could be given again

    def op(number: int) -> Callable[[Database], int]:
        def work(database: Database) -> int:
            if id(database) not in transactions:
                keep.append(database)
                transactions.add(id(database))
            return add(number)(database)

        return work

    assert await Crowd(storage.write).run(*map(op, range(many))) == list(range(many))
    assert len(transactions) == 2


def refuse_at_once(database: Database) -> None:
    database.execute("SELECT count(*) FROM numbers").fetchone()
    raise RefusalError


def refuse_after(number: int) -> Callable[[Database], None]:
    def op(database: Database) -> None:
        add(number)(database)
        raise RefusalError

    return op


async def test_one_that_fails_hurts_nobody(storage: Storage) -> None:
    await storage.write(make)
    outcomes = await Crowd(storage.write).run(
        add(1), refuse_at_once, add(2), refuse_after(3), add(1), add(4), refuse_at_once
    )
    assert [type(o) if isinstance(o, Exception) else o for o in outcomes] == [
        *(1, RefusalError, 2, RefusalError),
        *(outcomes[4], 4, RefusalError),
    ]
    assert outcomes[4] in ("IntegrityError", "UniqueViolation")
    assert await storage.read(numbers) == [1, 2, 4]


async def test_an_error_that_an_operation_hides_is_its_own_affair(storage: Storage) -> None:
    def hide(database: Database) -> str:
        try:
            add(1)(database)
        except Exception:  # noqa: BLE001
            return "hidden"
        return "added"

    await storage.write(make)
    await storage.write(add(1))
    outcomes = await Crowd(storage.write).run(add(2), hide, add(3))
    # PostgreSQL lets nothing happen after an error; what was there before is not lost by it.
    assert outcomes in ([2, "hidden", 3], [2, "InFailedSqlTransaction", 3])
    assert await storage.read(numbers) == [1, 2, 3]
    assert await Crowd(storage.write).run(hide) in (["hidden"], ["InFailedSqlTransaction"])


async def test_an_error_that_nobody_waited_for_is_of_the_operation_that_made_it(
    storage: Storage,
) -> None:
    """On PostgreSQL it shows while another operation waits for an answer, or at the commit."""
    await storage.write(make)
    outcomes = await Crowd(storage.write).run(add(1), add(1), numbers, add(2))
    assert outcomes == [1, outcomes[1], [1], 2]
    assert outcomes[1] in ("IntegrityError", "UniqueViolation")
    assert await Crowd(storage.write).run(add(2)) == [outcomes[1]]
    assert await storage.read(numbers) == [1, 2]
    assert await storage.write(add(3)) == 3


_ops = st.lists(
    st.tuples(st.sampled_from(["add", "at once", "after"]), st.integers(0, 4)), max_size=8
)


@given(_ops)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_agrees_with_one_after_another(storage: Storage, ops: list[tuple[str, int]]) -> None:
    def remade(database: Database) -> None:
        database.execute("DROP TABLE IF EXISTS numbers")
        make(database)

    await storage.write(remade)
    kinds = {"add": add, "at once": lambda _: refuse_at_once, "after": refuse_after}
    there: set[int] = set()
    expected: list[str] = []
    for kind, number in ops:
        if kind != "at once" and number in there:
            expected.append("constraint")
        elif kind == "add":
            there.add(number)
            expected.append(str(number))
        else:
            expected.append("RefusalError")
    outcomes = await Crowd(storage.write).run(*[kinds[kind](number) for kind, number in ops])
    names = {"IntegrityError": "constraint", "UniqueViolation": "constraint"}
    assert [
        "RefusalError" if isinstance(outcome, RefusalError) else names.get(outcome, str(outcome))
        for outcome in outcomes
    ] == expected
    assert await storage.read(numbers) == sorted(there)


async def test_cancelled_means_not_written(storage: Storage) -> None:
    await storage.write(make)
    gate = Gate()
    result: list[object] = []

    async def cancelled(scope: anyio.CancelScope) -> None:
        with scope:
            result.append(await storage.write(add(1)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.write, gate)
        await gate.until_entered()
        scope = anyio.CancelScope()
        tasks.start_soon(cancelled, scope)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(storage.write, add(2))
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        gate.open.set()
    assert result == []
    assert await storage.read(numbers) == [2]
    with anyio.CancelScope() as scope:
        scope.cancel()
        await storage.write(add(3))
    assert await storage.read(numbers) == [2]


@pytest.mark.parametrize("first", [True, False])
async def test_what_has_begun_is_reported_to_a_cancelled_caller(
    storage: Storage, first: bool
) -> None:
    await storage.write(make)
    before, gate = Gate(), Gate()
    results: list[object] = []
    scope = anyio.CancelScope()

    async def caller() -> None:
        with scope:
            results.append(await storage.write(add(1)))
            await anyio.lowlevel.checkpoint()
            results.append("went on")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.write, before)
        await before.until_entered()
        for each in (caller, None) if first else (None, caller):
            if each is None:
                tasks.start_soon(storage.write, gate)
            else:
                tasks.start_soon(each)
            await anyio.wait_all_tasks_blocked()
        before.open.set()
        await gate.until_entered()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        gate.open.set()
    assert results == [1]
    assert await storage.read(numbers) == [1]


async def test_who_leads_next_may_be_cancelled(storage: Storage) -> None:
    """The first of those that wait is woken to lead, and cancelled in the same moment."""
    await storage.write(make)
    gate = Gate()
    scopes = [anyio.CancelScope() for _ in range(3)]

    async def one(number: int) -> None:
        with scopes[number]:
            await storage.write(add(number))

    async def lead() -> None:
        await storage.write(gate)
        for scope in scopes[:2]:
            scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lead)
        await gate.until_entered()
        for number in range(3):
            tasks.start_soon(one, number)
            await anyio.wait_all_tasks_blocked()
        gate.open.set()
    there = await storage.read(numbers)
    assert 2 in there
    await storage.write(add(5))


async def test_reads_do_not_wait_for_writes(storage: Storage) -> None:
    await storage.write(make)
    await storage.write(add(1))
    written, go_on = threading.Event(), threading.Event()

    def slowly(database: Database) -> None:
        add(2)(database)
        written.set()
        assert go_on.wait(120)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.write, slowly)
        assert await anyio.to_thread.run_sync(written.wait, 60)
        assert await storage.read(numbers) == [1]
        go_on.set()
    assert await storage.read(numbers) == [1, 2]


async def test_a_read_sees_one_state(storage: Storage) -> None:
    await storage.write(make)
    looked, go_on = threading.Event(), threading.Event()

    def twice(database: Database) -> tuple[list[int], list[int]]:
        before = numbers(database)
        looked.set()
        assert go_on.wait(120)
        return before, numbers(database)

    async with anyio.create_task_group() as tasks:

        async def reader() -> None:
            assert await storage.read(twice) == ([], [])

        tasks.start_soon(reader)
        assert await anyio.to_thread.run_sync(looked.wait, 60)
        await storage.write(add(1))
        go_on.set()


async def test_values_mean_the_same_on_both(storage: Storage) -> None:
    def work(database: Database) -> list[tuple[Any, ...]]:
        database.execute("CREATE TABLE kinds (i BIGINT, s INTEGER, t TEXT, f DOUBLE PRECISION)")
        database.execute(
            "INSERT INTO kinds (i, s, t, f) VALUES (?, ?, ?, ?) -- ?", (2**40, True, "a?%'\"é", 1.5)
        )
        database.execute("INSERT INTO kinds (i, s, t) VALUES (?, 1, 'what? 100%')", (None,))
        return [
            *database.execute("SELECT i, s, t, f FROM kinds ORDER BY t").fetchall(),
            *database.execute("SELECT sum(i), count(*) FROM kinds WHERE t LIKE '%?%'").fetchall(),
        ]

    assert await storage.write(work) == [
        (2**40, 1, "a?%'\"é", 1.5),
        (None, 1, "what? 100%", None),
        (2**40, 2),
    ]


class Flaky:
    """An engine whose surroundings fail a few times."""

    is_shared = False

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.ran: list[int] = []

    def commit(self, writes: Any, /) -> None:
        if self.failures:
            self.failures -= 1
            raise StorageError("The disk is full.")
        for write in writes:
            write: Queued[int]
            write.run(None)  # type: ignore[arg-type]


async def test_keeps_trying_until_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", sleep)
    engine = Flaky(7)
    assert await Storage(Path(), engine).write(lambda _: 1, keep_trying=True) == 1
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    engine.failures = 1
    with pytest.raises(StorageError, match="The disk is full"):
        await Storage(Path(), engine).write(lambda _: 1, keep_trying=False)


async def test_stops_trying_when_cancelled() -> None:
    engine = Flaky(10**9)
    with anyio.move_on_after(0.05) as scope:
        await Storage(Path(), engine).write(lambda _: 1, keep_trying=True)
    assert scope.cancelled_caught


async def test_an_operations_own_storage_error_is_not_tried_again(storage: Storage) -> None:
    ran: list[int] = []

    def spoiled(_database: Database) -> None:
        ran.append(1)
        raise StorageError("The table holds what no release has written.")

    with pytest.raises(StorageError, match="no release has written"):
        await storage.write(spoiled, keep_trying=True)
    assert ran == [1]


async def test_the_clock_of_sqlite_can_be_set(tmp_path: Any) -> None:
    async with Storage.open(SCHEMA, tmp_path, now=lambda: 42) as storage:
        assert await storage.write(lambda database: database.now) == 42
        assert await storage.read(lambda database: database.now) == 42


def expecting(number: int) -> Callable[[Database], str]:
    """An operation that expects a row, and adds it if it is not there."""

    def op(database: Database) -> str:
        if database.expect("UPDATE numbers SET n = n WHERE n = ?", (number,)):
            database.execute("INSERT INTO numbers (n) VALUES (?)", (number + 1000,))
            return "found"
        add(number)(database)
        return "added"

    return op


async def test_an_operation_learns_that_an_expected_row_was_not_there(storage: Storage) -> None:
    await storage.write(make)
    await storage.write(add(1))
    assert await storage.write(expecting(1)) == "found"
    assert await storage.write(expecting(2)) == "added"
    assert await storage.read(numbers) == [1, 2, 1001]


async def test_a_missing_row_changes_the_outcome_of_no_other_operation(storage: Storage) -> None:
    await storage.write(make)
    await storage.write(add(1))
    outcomes = await Crowd(storage.write).run(
        add(3), expecting(1), expecting(2), add(4), expecting(4), add(3)
    )
    assert outcomes[:5] == [3, "found", "added", 4, "found"]
    assert outcomes[5] in ("IntegrityError", "UniqueViolation")
    assert await storage.read(numbers) == [1, 2, 3, 4, 1001, 1004]


async def test_what_an_operation_raises_after_a_wrong_assumption_does_not_count(
    storage: Storage,
) -> None:
    await storage.write(make)

    def op(database: Database) -> str:
        if database.expect("SELECT n FROM numbers WHERE n = ?", (7,)):
            raise RefusalError
        return "not there"

    assert await storage.write(op) == "not there"
    outcomes = await Crowd(storage.write).run(op, add(7), op)
    assert outcomes[:2] == ["not there", 7]
    assert isinstance(outcomes[2], RefusalError)


async def test_reads_that_wait_share_a_transaction_and_fail_alone(storage: Storage) -> None:
    await storage.write(make)
    await storage.write(add(1))
    transactions: list[Database] = []

    def read(database: Database) -> list[int]:
        transactions.append(database)
        return numbers(database)

    def refuse(_database: Database) -> None:
        raise RefusalError

    outcomes = await Crowd(storage.read).run(read, refuse, read)
    assert outcomes[::2] == [[1], [1]]
    assert isinstance(outcomes[1], RefusalError)
    assert len(set(map(id, transactions))) == 1

    def mistake(database: Database) -> None:
        database.execute("SELECT nothing FROM nowhere")

    outcomes = await Crowd(storage.read).run(read, mistake, read)
    assert outcomes[0] == outcomes[2] == [1]
    assert outcomes[1] in ("OperationalError", "StorageError", "UndefinedTable")
