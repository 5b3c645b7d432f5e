"""Compares two million stored tasks with 25,000: the cost of lists, claims and metrics.

On SQLite and on PostgreSQL. One principal has a twentieth of all tasks, and was asked a question in
about half of those; the others belong to a thousand principals. The number of open tasks is equal
on both sides.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Line, Target
from component.app.schema import SCHEMA
from component.skills.builtin import echo
from component.store.database import Database
from component.store.postgres import PostgreSQL
from component.store.sqlite import SQLite
from component.store.writes import read_once
from component.tasks import admin, changes, queries, question_rows, questions
from component.tasks.admin import list_rows
from component.tasks.leases import Claimant, Slots, claim
from component.tasks.protocol import TaskLimits
from component.tasks.questions import confirm_for
from component.tasks.request import Confirmation, Request
from component.tasks.rows import OpenBound, moment, put
from tests.servers.postgres import Postgres
from xep.binding import encode
from xep.fluux_agent.execute import Output, Result
from xep.fluux_agent.task import Tasks
from xep.jid import JID
from xep.result_sets import ResultSet

FEW, MANY = 25_000, 2_000_000
_CHUNK: Final = 50_000
_TIMES: Final = 40
_ALICE: Final = JID.parse("alice@users.example")
_AGENT: Final = JID.parse("assistant@agent.example.com")
_DAY_MS: Final = 86_400_000

Operation = Callable[[Database], Any]


def measure(runs: int) -> Iterator[Line]:
    """Yield each operation beside 2,000,000 tasks and beside 25,000."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        for size in (FEW, MANY):
            directory = Path(name) / str(size)
            directory.mkdir()
        sqlite = {
            size: SQLite.open(Path(name) / str(size) / "agent.db", SCHEMA) for size in (FEW, MANY)
        }
        for engine in sqlite.values():
            stack.callback(engine.close)
        yield from _compared("SQLite", sqlite, runs)
    with Postgres() as server:
        postgres = {size: PostgreSQL.open(server.new_database(), SCHEMA) for size in (FEW, MANY)}
        yield from _compared("PostgreSQL", postgres, runs)
        for each in postgres.values():
            each.close()


def _compared(
    name: str, engines: dict[int, SQLite] | dict[int, PostgreSQL], runs: int
) -> Iterator[Line]:
    for size, engine in engines.items():
        store(engine, size)
    operations = {size: _operations(engine) for size, engine in engines.items()}
    for what in operations[FEW]:
        costs: dict[int, list[float]] = {FEW: [], MANY: []}
        for run in range(runs + 1):
            for size in (FEW, MANY) if run % 2 else (MANY, FEW):
                cost = _cost(engines[size], operations[size][what])
                if run:  # the first run fills the caches
                    costs[size].append(cost)
        target = Target(1.2, "at most")
        yield Line(
            f"{name}: {what}, {MANY:,} / {FEW:,} tasks", "µs", costs[MANY], costs[FEW], target
        )


def _cost(engine: SQLite | PostgreSQL, operation: Operation) -> float:
    """Return the microseconds of one operation in a transaction that is rolled back: the minimum of
    many, because other load on the machine can only add to it.
    """
    costs = []
    for _ in range(_TIMES):
        before = time.perf_counter()
        with contextlib.suppress(_UndoError), engine.transaction() as transaction:
            operation(transaction)
            raise _UndoError
        costs.append(time.perf_counter() - before)
    return min(costs) * 1e6


class _UndoError(Exception):
    pass


_CLAIMANT: Final = Claimant(instance="bench", skills=None, slots=Slots(7, 4), queues={})


def _operations(engine: SQLite | PostgreSQL) -> dict[str, Operation]:
    middle, now = read_once(engine, _key_at(0.5)), read_once(engine, _last_change)

    def own(page: ResultSet | None = None, **filters: Any) -> Operation:
        query = Tasks(page=page or ResultSet(max=20), **filters)
        return lambda db: queries.list_(db, _ALICE, _AGENT, query, TaskLimits())

    def everybodys(state: Any = None, principal: str | None = None) -> Operation:
        return lambda db: list_rows(db, state, principal, 20)

    return {
        "first page of one's own": own(),
        "a page from the middle": own(ResultSet(max=20, after=middle)),
        "the last page": own(ResultSet(max=20, before="")),
        "one's failed ones": own(state="failed"),
        "one's failed ones from the middle": own(ResultSet(max=10, after=middle), state="failed"),
        "one's open ones": own(state="input-required"),
        "one's of a context": own(context="matter"),
        "what changed in the last minute": own(since=moment(now - 60_000)),
        "what failed in the last minute": own(since=moment(now - 60_000), state="failed"),
        "everybody's, for an admin": everybodys(),
        "everybody's failed ones": everybodys("failed"),
        "everybody's open ones": everybodys("input-required"),
        "somebody's, for an admin": everybodys(None, str(_ALICE)),
        "somebody's failed ones, for an admin": everybodys("failed", str(_ALICE)),
        "how many in each state (metrics)": admin.count,
        "the open questions of a person": lambda db: question_rows.open_questions(
            db, _ALICE, _AGENT
        ),
        "whether a person was asked in a thread": lambda db: question_rows.was_asked(
            db, _ALICE, _AGENT, "thread-40"
        ),
        "claim 8 queued tasks": lambda db: claim(db, _CLAIMANT, after=""),
        "room for one more of a principal": lambda db: OpenBound(TaskLimits()).check(
            db, str(_ALICE)
        ),
    }


def _last_change(db: Database) -> int:
    row = db.execute("SELECT max(updated) FROM tasks").fetchone()
    assert row is not None
    return int(row[0])


def _key_at(part: float) -> Operation:
    def op(db: Database) -> str:
        row = db.execute("SELECT min(created), max(created) FROM tasks").fetchone()
        assert row is not None
        return f"{row[1] - round((row[1] - row[0]) * part)}-"

    return op


# -- rows ----------------------------------------------------------------------------------------


def store(engine: SQLite | PostgreSQL, size: int) -> None:
    """Insert `size` ended tasks into an empty database, and 150 open ones."""
    _prepare(engine)
    with engine.transaction() as db:
        now = db.now
    for first in range(0, size, _CHUNK):
        with engine.transaction() as db:
            _ended(db, first, min(size, first + _CHUNK), now)
            _asked(db, first, now)
    _tidy(engine)
    with engine.transaction() as db:
        _open(db, now)


def _prepare(engine: SQLite | PostgreSQL) -> None:
    """Make loading quick: the rows need not survive a crash."""
    if isinstance(engine, SQLite):
        engine._writer.execute("PRAGMA synchronous = OFF")  # noqa: SLF001 - the service never does
        engine._writer.execute("PRAGMA cache_size = -1000000")  # noqa: SLF001 - as above
        return
    connection = engine._writer.connection()  # noqa: SLF001 - as above
    # A row that one transaction changes fifty thousand times slows it down; the service changes it
    # a few hundred times.
    connection.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_counted")


def _tidy(engine: SQLite | PostgreSQL) -> None:
    if isinstance(engine, SQLite):
        engine._writer.execute("PRAGMA synchronous = FULL")  # noqa: SLF001 - as above
        engine._writer.execute("PRAGMA cache_size = -2000")  # noqa: SLF001 - as above
        engine._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # noqa: SLF001 - as above
        return
    connection = engine._writer.connection()  # noqa: SLF001 - as above
    connection.execute("ALTER TABLE tasks ENABLE TRIGGER tasks_counted")
    connection.execute(
        "INSERT INTO task_counts SELECT 1, state, 0, count(*) FROM tasks GROUP BY state"
    )
    connection.execute("VACUUM ANALYZE")


_COMPLETED: Final = encode(
    Result(skill="echo", outputs=(Output(name="text", type="text/plain", text="x" * 200),))
)


def _request(principal: JID = _ALICE) -> Request:
    return Request(
        skill="echo",
        principal=principal,
        requester=principal.with_resource("x"),
        target=_AGENT,
        mode="async",
        confirmation=Confirmation((principal,), "low"),
    )


def _stored(request: Request) -> str:
    return changes.stored_request(request, echo.inputs.type(text="x" * 120), TaskLimits())


def _series(db: Database, first: int, end: int) -> tuple[str, str]:
    """Return the numbers from `first` to before `end` as a table, and an id made of each."""
    if db.dialect == "postgresql":
        return f"generate_series({first}, {end - 1}) AS s(i)", "md5(i::text)"
    table = (
        f"(WITH RECURSIVE s(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM s"
        f" WHERE i < {end - 1}) SELECT i FROM s)"
    )
    return table, "lower(hex(randomblob(16)))"


def _ended(db: Database, first: int, end: int, now: int) -> None:
    numbers, id_ = _series(db, first, end)
    failed = "i / 20 % 100"
    values = {
        "id": id_,
        "principal": f"CASE WHEN i % 20 = 0 THEN '{_ALICE}'"
        " ELSE 'user' || (i % 1000) || '@users.example' END",
        "share": f"CASE WHEN i % 20 = 0 THEN '{_ALICE}'"
        " ELSE 'user' || (i % 1000) || '@users.example' END",
        "requester": "'somebody@users.example/phone'",
        "target": f"'{_AGENT}'",
        "skill": "'echo'",
        "version": "'1.0.0'",
        "request": "?",
        "context": "CASE WHEN i % 200 = 0 THEN 'matter' END",
        "state": f"CASE WHEN {failed} < 90 THEN 'completed' WHEN {failed} < 96 THEN 'failed'"
        f" WHEN {failed} < 98 THEN 'rejected' ELSE 'cancelled' END",
        "revision": "2",
        "priority": "0",
        "owner": "NULL",
        "fence": "2",
        "progress": "NULL",
        "result": "?",
        "failure": "NULL",
        "promoted": "1",
        "unsent_revision": "NULL",
        "wake_at": "NULL",
        "deadline": "NULL",
        "created": f"{now} - i * 200",
        "updated": f"{now} - i * 200 + 1500",
        "retain_until": f"{now + 7 * _DAY_MS} - i * 200",
        "promised": f"{now + 7 * _DAY_MS} - i * 200",
        "bytes": "1200",
        **dict.fromkeys(("attempts", "waits", "children", "tries"), "0"),
    }
    db.execute(
        f"INSERT INTO tasks ({', '.join(values)}) SELECT {', '.join(values.values())}"
        f" FROM {numbers}",
        (_stored(_request()), _COMPLETED),
    )


def _asked(db: Database, first: int, now: int) -> None:
    """Insert the questions to Alice, one for every second task of this chunk, with her answers."""
    created = now - first * 200
    db.execute(
        "INSERT INTO inputs (id, task, step, kind, question, revision, expires, state)"
        " SELECT 'q' || id, id, '', 'confirm', '<x/>', 1, created + 1000, 'answered' FROM tasks"
        f" WHERE principal = '{_ALICE}' AND created <= {created}"
        f" AND created > {created - _CHUNK * 200} AND created % 8000 = {now % 8000}"
    )
    db.execute(
        "INSERT INTO asked (input, jid, open, thread)"
        f" SELECT id, '{_ALICE}', 0, task FROM inputs WHERE expires <= {created + 1000}"
        f" AND expires > {created + 1000 - _CHUNK * 200}"
    )


def _open(db: Database, now: int) -> None:
    """Insert 20 questions to Alice, 100 queued tasks, and 30 running ones."""
    for number in range(150):
        principal = _ALICE if 30 <= number < 50 else JID.parse(f"user{number}@users.example")
        request = _request(principal)
        tx = changes.Transaction(db, TaskLimits())
        row = changes.new_row(tx, f"open-{number}", request, echo, _stored(request))
        row.promoted = row.revision = row.fence = 1
        if number < 30:
            row.state, row.owner = "running", "other"
        put(db, row)
        if principal == _ALICE:
            confirm = confirm_for(
                request,
                echo,
                echo.inputs.type(text="x"),
                task=row.id,
                question=f"c-{number}",
                expires=moment(now + _DAY_MS),
            )
            questions.ask_question(tx, row, confirm, (_ALICE,))
