"""The shape of the database, as the steps that lead to it.

A step that has been released is never changed; a new shape is a new step at the end. One text
serves both databases: `{T}` is `WITHOUT ROWID` on SQLite, `{C}` is `COLLATE "C"` on PostgreSQL.

Two releases may run beside each other on one PostgreSQL, for the time of an upgrade: a step says
whether the release before it can live with what it does.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from component.storage.errors import StorageError

if TYPE_CHECKING:
    from sqlite3 import Connection

    import psycopg


class Step:
    """One change of the shape. `breaks` says that earlier releases cannot live with it.

    They can with a new table, and with a new column that has a default. `postgres` is what only
    PostgreSQL needs besides.
    """

    def __init__(
        self, *statements: str, postgres: Sequence[str] = (), breaks: bool = False
    ) -> None:
        self.statements = statements
        self.postgres = postgres
        self.breaks = breaks


MIGRATIONS: tuple[Step, ...] = (
    # 1: presence subscriptions (RFC 6121 §3)
    Step(
        """
        CREATE TABLE subscriptions (
            owner TEXT {C} NOT NULL,
            contact TEXT {C} NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('none', 'from', 'to', 'both')),
            ask INTEGER NOT NULL CHECK (ask IN (0, 1)),
            PRIMARY KEY (owner, contact)
        ) {T}
        """,
    ),
    # 2: durable tasks (docs/design/durable-tasks.md)
    Step(
        """
        CREATE TABLE tasks (
            id TEXT PRIMARY KEY,
            principal TEXT {C} NOT NULL,
            requester TEXT NOT NULL,
            target TEXT NOT NULL,
            skill TEXT NOT NULL,
            version TEXT NOT NULL,
            request TEXT NOT NULL,
            context TEXT,
            state TEXT NOT NULL,
            revision INTEGER NOT NULL,
            priority INTEGER NOT NULL,
            owner TEXT,
            token INTEGER NOT NULL,
            progress TEXT,
            result TEXT,
            failure TEXT,
            visible INTEGER NOT NULL,
            untold INTEGER,
            due BIGINT,
            deadline BIGINT,
            created BIGINT NOT NULL,
            updated BIGINT NOT NULL,
            retain_until BIGINT NOT NULL
        )
        """,
        """
        CREATE INDEX tasks_queue ON tasks (principal, priority DESC, created, id)
        WHERE owner IS NULL AND state IN ('accepted', 'running')
        """,
        """
        CREATE INDEX tasks_open ON tasks (principal)
        WHERE state IN ('accepted', 'running', 'input-required', 'cancelling')
        """,
        "CREATE INDEX tasks_owned ON tasks (owner) WHERE owner IS NOT NULL",
        "CREATE INDEX tasks_due ON tasks (due) WHERE due IS NOT NULL",
        "CREATE INDEX tasks_untold ON tasks (updated) WHERE untold IS NOT NULL",
        "CREATE INDEX tasks_list ON tasks (principal, created DESC, id)",
        "CREATE INDEX tasks_retain ON tasks (retain_until)",
        """
        CREATE TABLE journal (
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            step TEXT {C} NOT NULL,
            token INTEGER NOT NULL,
            done INTEGER NOT NULL,
            result TEXT,
            PRIMARY KEY (task, step)
        ) {T}
        """,
        """
        CREATE TABLE events (
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            revision INTEGER NOT NULL,
            state TEXT NOT NULL,
            at BIGINT NOT NULL,
            retain BIGINT NOT NULL,
            detail TEXT,
            PRIMARY KEY (task, revision)
        ) {T}
        """,
        """
        CREATE TABLE parts (
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            name TEXT {C} NOT NULL,
            part INTEGER NOT NULL,
            last INTEGER NOT NULL,
            output TEXT NOT NULL,
            PRIMARY KEY (task, name, part)
        ) {T}
        """,
        """
        CREATE TABLE replay (
            key TEXT PRIMARY KEY,
            digest TEXT NOT NULL,
            task TEXT,
            answer TEXT,
            owner TEXT,
            expires BIGINT NOT NULL
        ) {T}
        """,
        "CREATE INDEX replay_expires ON replay (expires)",
        "CREATE INDEX replay_task ON replay (task) WHERE task IS NOT NULL",
        """
        CREATE TABLE inputs (
            id TEXT PRIMARY KEY,
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            step TEXT {C} NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('confirm', 'input')),
            question TEXT NOT NULL,
            hash TEXT,
            revision INTEGER NOT NULL,
            expires BIGINT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('open', 'answered', 'expired', 'withdrawn')),
            answer TEXT,
            answered_by TEXT,
            answered_at BIGINT
        ) {T}
        """,
        "CREATE INDEX inputs_task ON inputs (task)",
        """
        CREATE TABLE asked (
            input TEXT NOT NULL REFERENCES inputs ON DELETE CASCADE,
            jid TEXT {C} NOT NULL,
            PRIMARY KEY (jid, input)
        ) {T}
        """,
        "CREATE INDEX asked_input ON asked (input)",
        "CREATE TABLE instances (id TEXT PRIMARY KEY, beat BIGINT NOT NULL)",
    ),
    # 3: who wants to hear nothing more (specification, FAC-012)
    Step(
        """
        CREATE TABLE stopped (
            owner TEXT {C} NOT NULL,
            contact TEXT {C} NOT NULL,
            PRIMARY KEY (owner, contact)
        ) {T}
        """,
    ),
    # 4: conversations: turns that are open, the states of agents, what was spent
    Step(
        """
        CREATE TABLE turns (
            id TEXT PRIMARY KEY,
            home TEXT NOT NULL,
            session TEXT {C} NOT NULL,
            message TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'parked')),
            waiting TEXT,
            created BIGINT NOT NULL
        ) {T}
        """,
        "CREATE INDEX turns_home ON turns (home, created, id)",
        """
        CREATE TABLE agents (
            id TEXT PRIMARY KEY,
            name TEXT {C} NOT NULL UNIQUE,
            state TEXT NOT NULL CHECK (state IN ('created', 'active', 'idle', 'paused', 'killed')),
            created BIGINT NOT NULL,
            changed BIGINT NOT NULL
        ) {T}
        """,
        """
        CREATE TABLE spending (
            day TEXT NOT NULL,
            scope TEXT NOT NULL,
            subject TEXT {C} NOT NULL,
            tokens BIGINT NOT NULL,
            usd DOUBLE PRECISION NOT NULL,
            calls BIGINT NOT NULL,
            PRIMARY KEY (day, scope, subject)
        ) {T}
        """,
    ),
    # 5: how far the record on disk has come, so that a shorter one is noticed (docs/audit.md)
    Step(
        """
        CREATE TABLE audit_heads (
            chain TEXT PRIMARY KEY,
            place TEXT NOT NULL,
            seq BIGINT NOT NULL,
            hash TEXT NOT NULL,
            changed BIGINT NOT NULL
        ) {T}
        """,
    ),
    # 6: which instance is the former life of which (docs/design/durable-tasks.md)
    Step(
        "ALTER TABLE instances ADD COLUMN place TEXT",
        postgres=("ALTER TABLE writers ADD COLUMN place TEXT",),
    ),
    # 7: everybody's tasks, the one created last first
    Step("CREATE INDEX tasks_created ON tasks (created DESC, id) WHERE visible = 1"),
    # 8: how many have ended in which state; most are completed, and are those that are left
    Step(
        """
        CREATE INDEX tasks_incomplete ON tasks (state)
        WHERE state IN ('failed', 'rejected', 'cancelled')
        """,
    ),
    # 9: what people were asked lately, by which a word is held against the question it is meant
    # for; apart from the tasks, because it must outlast them
    Step(
        """
        CREATE TABLE recent_questions (
            jid TEXT {C} NOT NULL,
            agent TEXT {C} NOT NULL,
            input TEXT {C} NOT NULL,
            thread TEXT {C} NOT NULL,
            asked BIGINT NOT NULL,
            expires BIGINT NOT NULL,
            closed BIGINT,
            PRIMARY KEY (jid, agent, input)
        ) {T}
        """,
        "CREATE INDEX recent_questions_input ON recent_questions (input)",
    ),
    # 10: how many bytes each task and each recorded answer takes, to bound them for each principal;
    # of what was there before, the characters. The last columns of an index are there only
    # so that SQLite need not read the rows for them.
    Step(
        "ALTER TABLE tasks ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0",
        """
        UPDATE tasks SET bytes = 512 + length(request) + coalesce(length(result), 0)
            + coalesce(length(failure), 0) + coalesce(length(progress), 0)
            + (SELECT coalesce(sum(96 + coalesce(length(detail), 0)), 0) FROM events
                WHERE events.task = tasks.id)
            + (SELECT coalesce(sum(96 + length(output)), 0) FROM parts WHERE parts.task = tasks.id)
            + (SELECT coalesce(sum(96 + coalesce(length(journal.result), 0)), 0) FROM journal
                WHERE journal.task = tasks.id)
            + (SELECT coalesce(sum(96 + length(question) + coalesce(length(answer), 0)), 0)
                FROM inputs WHERE inputs.task = tasks.id)
        """,
        """
        CREATE INDEX tasks_kept ON tasks (principal, updated, id, bytes, state, untold)
        WHERE state IN ('completed', 'failed', 'rejected', 'cancelled')
        """,
        """
        CREATE INDEX tasks_open_bytes ON tasks (principal, bytes, state)
        WHERE state IN ('accepted', 'running', 'input-required', 'cancelling')
        """,
        "ALTER TABLE replay ADD COLUMN principal TEXT {C}",
        "ALTER TABLE replay ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0",
        "CREATE INDEX replay_kept ON replay (principal, expires, key, bytes) WHERE bytes > 0",
    ),
)


@contextmanager
def transaction(connection: "Connection", mode: str) -> Iterator[None]:
    """Commit what happens inside, or nothing of it. `mode` is IMMEDIATE, or DEFERRED to read."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite ends the transaction by itself after some errors, a full disk among them.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def migrate(connection: "Connection", path: Path, steps: Sequence[Step] = MIGRATIONS) -> None:
    """Bring the database to the shape of this release, one transaction for each step.

    Its version is the number of steps it has taken, kept in SQLite's `user_version`. Raises
    StorageError, and changes nothing, if the database has taken more steps than are known here.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise _newer(f"The database {path}", version, len(steps))
    for number, step in enumerate(steps[version:], start=version + 1):
        with transaction(connection, "IMMEDIATE"):
            for statement in step.statements:
                connection.execute(statement.format(T="WITHOUT ROWID", C=""))
            connection.execute(f"PRAGMA user_version = {number}")


# Any number will do, as long as every release uses it.
_LOCK = 0x786D7070  # "xmpp"


def migrate_postgres(
    connection: "psycopg.Connection", name: str, steps: Sequence[Step] = MIGRATIONS
) -> None:
    """Bring the database to the shape of this release, all in one transaction.

    `name` begins the sentence of an error. Another instance that does the same at this time is
    waited for. The table `versions` has one row: how many steps have been taken, and how many a
    release must know to live with that.

    Raises StorageError, and changes nothing, if that is more than are known here.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # The version, and how to tell after a lost connection what was committed (postgres.py).
        connection.execute(
            "CREATE TABLE IF NOT EXISTS versions"
            " (version INTEGER NOT NULL, oldest INTEGER NOT NULL)"
        )
        connection.execute(
            "CREATE TABLE IF NOT EXISTS writers"
            " (id TEXT PRIMARY KEY, batch BIGINT NOT NULL, at BIGINT NOT NULL)"
        )
        found = connection.execute("SELECT version, oldest FROM versions").fetchone()
        version, oldest = found or (0, 0)
        if oldest > len(steps):
            raise _newer(name, version, len(steps))
        for number, step in enumerate(steps[version:], start=version + 1):
            for statement in (*step.statements, *step.postgres):
                text = statement.format(T="", C='COLLATE "C"')
                connection.execute(text)
            version, oldest = number, number if step.breaks else oldest
        connection.execute("DELETE FROM versions")
        connection.execute("INSERT INTO versions VALUES (%s, %s)", (version, oldest))
        # Rows of processes that were killed, long ago.
        connection.execute(
            "DELETE FROM writers WHERE at < extract(epoch FROM now() - interval '30 days') * 1000"
        )


def _newer(name: str, version: int, known: int) -> StorageError:
    return StorageError(
        f"{name} was written by a newer release: it is of version {version}, and this release"
        f" knows versions up to {known}. Install the newer release, or put back a backup from"
        " before the upgrade."
    )
