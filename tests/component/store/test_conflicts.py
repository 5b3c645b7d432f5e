"""Writes that hurt each other: of instances that change the same rows, of unstorable values."""

import random
import threading
import time
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from component.app.schema import SCHEMA
from component.store import Storage, StorageError, UnstorableError
from component.store.database import Database
from tests.component.store.test_writes import Gate

pytestmark = pytest.mark.anyio

ROWS = 30
WRITERS = 40
ROUNDS = 5


def fill(database: Database) -> None:
    for number in range(ROWS):
        database.execute(
            "INSERT INTO tasks (id, principal, requester, target, skill, version, request, state,"
            " revision, priority, fence, promoted, created, updated, retain_until, share)"
            " VALUES (?, 'p', 'p', 't', 's', '1', '{}', 'running', 0, 0, 0, 1, 0, 0, 0, 'p')",
            (f"t{number:02}",),
        )


def change(*tasks: str) -> Callable[[Database], None]:
    """Does what a change of tasks does: locks each row, then writes it."""

    def op(database: Database) -> None:
        for task in tasks:
            lock = " FOR NO KEY UPDATE" if database.dialect == "postgresql" else ""
            database.execute(f"SELECT revision FROM tasks WHERE id = ?{lock}", (task,)).fetchone()
            database.execute("UPDATE tasks SET revision = revision + 1 WHERE id = ?", (task,))

    return op


@pytest.mark.parametrize(
    ("instances", "named"),
    [
        (3, "some named"),
        *(
            pytest.param(number, named, marks=pytest.mark.thorough)
            for number in (2, 3)
            for named in ("named", "not named")
        ),
    ],
)
async def test_instances_that_change_the_same_tasks_are_never_refused(
    migrated_url: str, tmp_path: Path, instances: int, named: str
) -> None:
    """Each writer changes a few tasks in any order; batches of all instances overlap."""
    changed = 0

    async def writer(storage: Storage, seed: int) -> None:
        nonlocal changed
        choice = random.Random(seed)
        for _ in range(ROUNDS):
            tasks = [f"t{choice.randrange(ROWS):02}" for _ in range(choice.choice([1, 1, 1, 2, 3]))]
            tell = named == "named" or (named == "some named" and choice.random() < 0.5)
            await storage.write(change(*tasks), tasks=tasks if tell else ())
            changed += len(tasks)

    async with AsyncExitStack() as stack:
        storages = [
            await stack.enter_async_context(
                Storage.open(SCHEMA, tmp_path / f"{one}", postgres=migrated_url)
            )
            for one in range(instances)
        ]
        await storages[0].write(fill)
        async with anyio.create_task_group() as group:
            for index, storage in enumerate(storages):
                for number in range(WRITERS):
                    group.start_soon(writer, storage, index * 1000 + number)
        total = await storages[0].read(
            lambda database: database.execute("SELECT sum(revision) FROM tasks").fetchone()
        )
    assert total == (changed,)


async def together(
    storage: Storage, ops: Collection[Callable[[Database], Any]], **options: Any
) -> list[object]:
    """Give writes that share a transaction; what each returned or raised."""
    outcomes: list[object] = [None] * len(ops)
    gate = Gate()

    async def one(index: int, op: Callable[[Database], Any]) -> None:
        try:
            outcomes[index] = await storage.write(op, **options)
        except Exception as error:  # noqa: BLE001
            outcomes[index] = error

    async with anyio.create_task_group() as group:
        group.start_soon(storage.write, gate)
        await gate.until_entered()
        for index, op in enumerate(ops):
            group.start_soon(one, index, op)
            await anyio.wait_all_tasks_blocked()
        gate.open.set()
    return outcomes


def make(database: Database) -> None:
    database.execute("CREATE TABLE texts (text TEXT PRIMARY KEY, number INTEGER)")


def insert(text: str, number: int) -> Callable[[Database], str]:
    def op(database: Database) -> str:
        database.execute("INSERT INTO texts (text, number) VALUES (?, ?)", (text, number))
        return text

    return op


LONG = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))


@pytest.mark.ports
@pytest.mark.parametrize(
    ("text", "number", "reason"),
    [
        ("a\x00b", 1, "NUL"),
        ("a\ud800b", 1, "surrogate"),
        (LONG, 1, "index row"),
        ("wide", 2**40, "integer out of range"),
        ("wider", 2**70, "range|too large"),
    ],
    ids=["NUL", "surrogate", "index entry", "32 bits", "64 bits"],
)
@pytest.mark.parametrize("keep_trying", [False, True])
async def test_a_value_that_cannot_be_stored_fails_alone(
    storage: Storage, text: str, number: int, reason: str, keep_trying: bool
) -> None:
    """With `keep_trying` too: it would never succeed, and hurt those beside it each time."""
    await storage.write(make)
    ops = [insert(f"t{index}", index) for index in range(10)]
    ops.insert(4, insert(text, number))
    with anyio.fail_after(120):
        outcomes = await together(storage, ops, keep_trying=keep_trying)
    (refused,) = [outcomes.pop(4)]
    assert outcomes == [f"t{index}" for index in range(10)]
    if refused != text:  # SQLite stores some of them
        assert isinstance(refused, UnstorableError)
        with pytest.raises(UnstorableError, match=rf"cannot store a value.*({reason})"):
            raise refused
    dialect = await storage.read(lambda database: database.dialect)
    assert (refused != text) == (
        dialect == "postgresql" or reason in ("surrogate", "range|too large")
    )


async def test_what_the_database_refuses_to_one_is_not_refused_to_the_others(
    migrated_url: str, tmp_path: Path
) -> None:
    """A row that somebody else has locked, here by a session in the database's shell."""

    def blocked(database: Database) -> None:
        database.execute("SET LOCAL lock_timeout = '10ms'")
        database.execute("UPDATE texts SET number = 2 WHERE text = 'locked'")

    async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
        await storage.write(make)
        await storage.write(insert("locked", 1))
        with psycopg.connect(migrated_url) as other:
            other.execute("SELECT * FROM texts FOR UPDATE")
            outcomes = await together(storage, [insert("a", 1), blocked, insert("b", 1)])
        assert outcomes == ["a", outcomes[1], "b"]
        assert isinstance(outcomes[1], StorageError)
        assert "holds a lock for another client" in str(outcomes[1])
        await storage.write(blocked)


async def test_a_full_disk_refuses_only_what_does_not_fit(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:

        def limit(database: Database) -> None:
            make(database)
            (pages,) = database.execute("PRAGMA page_count").fetchone() or (0,)
            database.execute(f"PRAGMA max_page_count = {pages + 20}").fetchone()

        await storage.write(limit)
        large = insert("x" * 1_000_000, 1)
        outcomes = await together(storage, [insert("a", 1), large, insert("b", 1)])
        assert outcomes == ["a", outcomes[1], "b"]
        assert isinstance(outcomes[1], StorageError)
        assert "cannot grow" in str(outcomes[1])


@pytest.mark.ports
async def test_named_tasks_are_locked_before_the_first_operation(
    migrated_url: str, tmp_path: Path
) -> None:
    """So the other instance waits before it holds anything, and nothing has to run again."""
    begun: list[str] = []
    ended: list[str] = []

    def noted(name: str, op: Callable[[Database], None]) -> Callable[[Database], None]:
        def run(database: Database) -> None:
            begun.append(name)
            op(database)
            ended.append(name)

        return run

    def until_other_waits(database: Database) -> None:
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        # The locks are sent with the first statement whose rows are fetched.
        database.execute(waiting).fetchone()
        other_may_begin.set()
        give_up = time.monotonic() + 20
        while database.execute(waiting).fetchone() == (0,):
            assert time.monotonic() < give_up, "the other one does not wait"

    other_may_begin = threading.Event()
    async with (
        Storage.open(SCHEMA, tmp_path / "a", postgres=migrated_url) as one,
        Storage.open(SCHEMA, tmp_path / "b", postgres=migrated_url) as other,
    ):
        await one.write(fill)

        async def second() -> None:
            assert await anyio.to_thread.run_sync(other_may_begin.wait, 60)
            ops = [noted("b1", change("t01")), noted("b2", change("t02"))]
            assert await together(other, ops, tasks=["t01", "t02"]) == [None, None]

        async with anyio.create_task_group() as group:
            group.start_soon(second)
            ops = [noted("a1", until_other_waits), noted("a2", change("t02"))]
            ops.append(noted("a3", change("t01")))
            assert await together(one, ops, tasks=["t01", "t02"]) == [None] * 3
    assert ended == ["a1", "a2", "a3", "b1", "b2"]
    assert sorted(begun) == ended
