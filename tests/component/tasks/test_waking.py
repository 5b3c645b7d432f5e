"""Instances that end tasks, and wait for them, in transactions that run side by side.

On SQLite there is one transaction at a time, so this is about PostgreSQL alone.
"""

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from component.app.schema import SCHEMA
from component.store import waiters
from component.store.database import Database
from component.store.postgres import PostgreSQL
from component.tasks.changes import Transaction, change
from component.tasks.protocol import TaskLimits
from component.tasks.rows import load
from tests.component.tasks.ledger import Ledger

_BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
def engines(migrated_url: str) -> Iterator[list[PostgreSQL]]:
    opened = [PostgreSQL.open(migrated_url, SCHEMA) for _ in range(2)]
    with opened[0].transaction() as database:
        ledger = Ledger(database)
        ledger.add("parent", state="running")
        ledger.add("a", state="running", parent="parent")
        ledger.add("b", state="running", parent="parent")
    yield opened
    for engine in opened:
        engine.close()


def end(task: str) -> Callable[[Database], None]:
    def op(database: Database) -> None:
        row = load(database, task)
        assert row is not None
        change(Transaction(database, TaskLimits()), row, "completed")

    return op


def wait(*tasks: str, eager: waiters.Eager = waiters.ENDED) -> Callable[[Database], None]:
    def op(database: Database) -> None:
        load(database, "parent")
        count = waiters.wait_for(database, "parent", tasks, None, eager)
        database.execute("UPDATE tasks SET waits = ? WHERE id = 'parent'", (count,))

    return op


def beside(
    engines: list[PostgreSQL],
    url: str,
    first: Callable[[Database], None],
    second: Callable[..., None],
) -> None:
    """Do both in transactions that overlap: `first` commits when `second` is done, or blocked."""
    done = threading.Event()

    def other() -> None:
        try:
            with engines[1].transaction() as database:
                second(database)
                done.set()
        finally:
            done.set()

    thread = threading.Thread(target=other)
    with psycopg.connect(url, autocommit=True) as observer:
        with engines[0].transaction() as database:
            first(database)
            database.execute("SELECT 1").fetchone()  # all of it has reached the server
            thread.start()
            while not done.wait(0.01):
                if observer.execute(_BLOCKED).fetchone() != (0,):
                    break
        thread.join()


def waits(engines: list[PostgreSQL]) -> int:
    with engines[0].transaction() as database:
        (count,) = database.execute("SELECT waits FROM tasks WHERE id = 'parent'").fetchone() or ()
    return int(count)


def test_two_tasks_that_end_at_once_wake_who_waits_for_both(
    engines: list[PostgreSQL], migrated_url: str
) -> None:
    with engines[0].transaction() as database:
        wait("a", "b")(database)
    assert waits(engines) == 2
    beside(engines, migrated_url, end("a"), end("b"))
    assert waits(engines) == 0


def test_a_task_that_ends_while_another_begins_to_wait_for_it_wakes_it(
    engines: list[PostgreSQL], migrated_url: str
) -> None:
    beside(engines, migrated_url, end("a"), wait("a"))
    assert waits(engines) == 0


def test_a_task_that_begins_to_wait_while_another_ends_is_woken(
    engines: list[PostgreSQL], migrated_url: str
) -> None:
    beside(engines, migrated_url, wait("a"), end("a"))
    assert waits(engines) == 0


def test_one_of_several_that_end_at_once_wakes_who_waits_for_a_success(
    engines: list[PostgreSQL], migrated_url: str
) -> None:
    with engines[0].transaction() as database:
        wait("a", "b", eager=waiters.SUCCESS)(database)
    beside(engines, migrated_url, end("a"), end("b"))
    assert waits(engines) == 0


def test_only_a_success_wakes_who_waits_for_one(engines: list[PostgreSQL]) -> None:
    with engines[0].transaction() as database:
        wait("a", "b", eager=waiters.SUCCESS)(database)
        waiters.wake_tasks(database, "a", success=False, expected=True)
    assert waits(engines) == 1
    with engines[0].transaction() as database:
        waiters.wake_tasks(database, "b", success=False, expected=True)
    assert waits(engines) == 0
