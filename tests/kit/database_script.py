"""What a service does with PostgreSQL while that fails, and what it learns of it.

`test_database_alike` lets it happen with the simulated faults of `Database`, and with real ones.
"""

import re
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
import psycopg

from component.store.database import Database
from component.store.errors import StorageError
from component.store.postgres import PostgreSQL
from component.store.schema import Schema, Table
from component.store.tables import TABLES
from component.store.writes import Queued, commit_all, read_all

_NOTES: Final = Table(name="notes", columns="n INTEGER PRIMARY KEY")
SCHEMA: Final = Schema((*TABLES, _NOTES))
_SAID: Final = re.compile(
    r" \(PostgreSQL says: .*\)|(?<=cannot be opened): .*(?=\. Check that)|(?<=127\.0\.0\.1):\d+"
)
"""What the server or the driver says in the sentence of an error, and the port in it."""


class Faults(Protocol):
    """What can happen to the database."""

    def end(self) -> None:
        """End all sessions."""

    def stop(self) -> None:
        """Stop the server."""

    def start(self) -> None:
        """Start it again."""

    def cancel(self) -> None:
        """Let the next statement, which takes long, be cancelled."""

    def lose_commit(self) -> None:
        """Let the next commit have no answer."""


class Outcome(msgspec.Struct):
    """How an operation has ended.

    Attributes:
        tries: how often it ran.
        errors: what its statements have raised.
        raised: what its caller gets: the class of the error and its sentence.
        notes: the rows that are there at the end.
    """

    tries: int = 0
    errors: list[str] = []
    raised: str = ""
    notes: list[int] = []


class Work:
    """Runs operations on an open database."""

    def __init__(self, database: PostgreSQL, faults: Faults) -> None:
        self.faults = faults
        self._database = database

    def write(self, *steps: int | Callable[[], Any], once: bool = True) -> Outcome:
        """Write rows, one for each number; call functions in between, `once` or in each try."""
        return self._run(steps, once, lambda queued: commit_all(self._database, [queued]))

    def read(self, *steps: Callable[[], Any]) -> Outcome:
        """Read the rows; call functions before."""
        return self._run(steps, True, lambda queued: read_all(self._database, [queued]))

    def _run(
        self,
        steps: tuple[int | Callable[[], Any], ...],
        once: bool,
        run: Callable[[Queued[Any]], None],
    ) -> Outcome:
        outcome = Outcome()

        def op(database: Database) -> None:
            outcome.tries += 1
            try:
                for step in steps:
                    if isinstance(step, int):
                        # Its answer is waited for.
                        database.execute("INSERT INTO notes VALUES (?)", (step,)).rowcount  # noqa: B018
                    elif outcome.tries == 1 or not once:
                        step()
                        if step == self.faults.cancel:
                            database.execute("SELECT pg_sleep(600)").fetchone()
                database.execute("SELECT n FROM notes").fetchall()
            except psycopg.Error as error:
                outcome.errors.append(_named(error))
                raise

        queued = Queued(op)
        run(queued)
        error = queued.refused or queued.error
        if error is not None:
            said = _SAID.sub("", str(error)) if isinstance(error, StorageError) else repr(error)
            outcome.raised = f"{type(error).__name__}: {said}"
        return outcome

    def notes(self) -> list[int]:
        """Return the rows."""
        queued = Queued(lambda rows: rows.execute("SELECT n FROM notes ORDER BY n").fetchall())
        read_all(self._database, [queued])
        assert queued.value is not None, queued.error
        return [n for (n,) in queued.value]


def _named(error: psycopg.Error) -> str:
    """Return what the storage decides by: that the connection is lost, or the SQLSTATE."""
    lost = isinstance(error, psycopg.OperationalError) and (
        error.sqlstate is None or error.sqlstate.startswith("57P")
    )
    return "lost" if lost else str(error.sqlstate)


def lost_in_a_transaction(work: Work) -> Outcome:
    """The connection is lost after a row was written."""
    return work.write(1, work.faults.end, 2)


def lost_in_each_try(work: Work) -> Outcome:
    """It is lost whenever a row was written."""
    return work.write(1, work.faults.end, 2, once=False)


def lost_at_the_end(work: Work) -> Outcome:
    """It is lost before the commit is sent."""
    return work.write(1, 2, work.faults.end)


def lost_in_a_read(work: Work) -> Outcome:
    """It is lost after a read has begun."""
    return work.read(work.faults.end)


def lost_between_transactions(work: Work) -> Outcome:
    """It is lost while nothing runs."""
    work.faults.end()
    return work.write(1)


def restarted_in_a_transaction(work: Work) -> Outcome:
    """The server is stopped and started after a row was written."""
    return work.write(1, work.faults.stop, work.faults.start, 2)


def stopped_in_a_transaction(work: Work) -> Outcome:
    """The server is stopped after a row was written, and stays away."""
    outcome = work.write(1, work.faults.stop, 2)
    work.faults.start()
    return outcome


def stopped(work: Work) -> Outcome:
    """The server is away before anything is written."""
    work.faults.stop()
    outcome = work.write(1)
    work.faults.start()
    work.write(7)
    return outcome


def stopped_for_reads(work: Work) -> Outcome:
    """The server is away when something is read."""
    work.faults.stop()
    outcome = work.read()
    work.faults.start()
    return outcome


def cancelled(work: Work) -> Outcome:
    """A statement is cancelled after a row was written."""
    outcome = work.write(1, work.faults.cancel, 2)
    work.write(7)
    return outcome


def cancelled_in_a_read(work: Work) -> Outcome:
    """A statement of a read is cancelled."""
    return work.read(work.faults.cancel)


def without_an_answer(work: Work) -> Outcome:
    """The commit has no answer."""
    work.faults.lose_commit()
    return work.write(1, 2)


LOST: Final = (
    lost_in_a_transaction,
    lost_in_each_try,
    lost_at_the_end,
    lost_in_a_read,
    lost_between_transactions,
)
STOPPED: Final = (restarted_in_a_transaction, stopped_in_a_transaction, stopped, stopped_for_reads)
CANCELLED: Final = (cancelled, cancelled_in_a_read)
UNANSWERED: Final = (without_an_answer,)


def play(scene: Callable[[Work], Outcome], url: str, faults: Faults) -> Outcome:
    """Play one of the scenes on a database with the tables of `SCHEMA`."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("DELETE FROM notes")
    database = PostgreSQL.open(url, SCHEMA)
    try:
        work = Work(database, faults)
        work.write()  # both connections are open
        work.read()
        outcome = scene(work)
        outcome.notes = work.notes()
    finally:
        database.close()
    return outcome
