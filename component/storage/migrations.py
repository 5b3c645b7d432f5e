"""The shape of the database, as the steps that lead to it.

A step that has been released is never changed; a new shape is a new step at the end. One text
serves both databases: `{T}` is `WITHOUT ROWID` on SQLite, `{C}` is `COLLATE "C"` on PostgreSQL.

Two releases may run beside each other on one PostgreSQL, for the time of an upgrade: a step says
whether the release before it can live with what it does.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from component.storage import triggers
from component.storage.errors import StorageError

if TYPE_CHECKING:
    from sqlite3 import Connection

    import psycopg

_log = structlog.get_logger("component.storage")


class Index:
    """An index of a table that may be large.

    Args:
        name: the name of the index.
        on: the table, the columns in parentheses, and the condition if it is partial.
    """

    def __init__(self, name: str, on: str) -> None:
        self.name = name
        self.on = on

    def sql(self, *, concurrently: bool = False) -> str:
        """The statement that builds it; `concurrently` on PostgreSQL only."""
        return f"CREATE INDEX {'CONCURRENTLY ' if concurrently else ''}{self.name} ON {self.on}"


class Step:
    """One change of the shape. `breaks` says that earlier releases cannot live with it.

    They can with a new table, with a new index, and with a new column that is nullable or has a
    constant default, which rewrites no table either. `postgres` and `sqlite` run after
    `statements`, on that database only.

    `indexes` of tables that may be large by now do not belong into `statements`: building one takes
    seconds for a million rows, in which nobody else writes. PostgreSQL builds those given here
    after the start, beside the service (`component.storage.indexes`), so queries may be slow for a
    while after an upgrade. SQLite has no such way; there it takes place before the service begins.
    """

    def __init__(
        self,
        *statements: str,
        indexes: Sequence[Index] = (),
        postgres: Sequence[str] = (),
        sqlite: Sequence[str] = (),
        breaks: bool = False,
    ) -> None:
        self.statements = statements
        self.indexes = indexes
        self.postgres = postgres
        self.sqlite = sqlite
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
    # 6: which instance was an earlier run of which (docs/design/durable-tasks.md)
    Step(
        "ALTER TABLE instances ADD COLUMN place TEXT",
        postgres=("ALTER TABLE writers ADD COLUMN place TEXT",),
    ),
    # 7: everybody's tasks, the one created last first
    Step(indexes=[Index("tasks_created", "tasks (created DESC, id) WHERE visible = 1")]),
    # 8: made an index that 14 takes away
    Step(),
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
    # NULL until the service has found out (`component.tasks.retention`). The last columns of an
    # index are there only so that SQLite need not read the rows for them.
    Step(
        "ALTER TABLE tasks ADD COLUMN bytes BIGINT",
        "ALTER TABLE replay ADD COLUMN principal TEXT {C}",
        "ALTER TABLE replay ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0",
        indexes=[
            Index(
                "tasks_kept",
                "tasks (principal, updated, id, bytes, state, untold)"
                " WHERE state IN ('completed', 'failed', 'rejected', 'cancelled')",
            ),
            Index(
                "tasks_open_bytes",
                "tasks (principal, bytes, state)"
                " WHERE state IN ('accepted', 'running', 'input-required', 'cancelling')",
            ),
            Index("tasks_unweighed", "tasks (id) WHERE bytes IS NULL"),
            Index("replay_kept", "replay (principal, expires, key, bytes) WHERE bytes > 0"),
        ],
    ),
    # 11: inputs of steps, retries, tasks that are set aside, trees of tasks, waiters, named queues
    # (docs/design/durable-tasks.md)
    Step(
        "ALTER TABLE journal ADD COLUMN input TEXT",
        "ALTER TABLE tasks ADD COLUMN origin TEXT",
        "ALTER TABLE tasks ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE tasks ADD COLUMN set_aside TEXT",
        "ALTER TABLE tasks ADD COLUMN parent TEXT",
        "ALTER TABLE tasks ADD COLUMN queue TEXT {C}",
        "ALTER TABLE tasks ADD COLUMN not_before BIGINT",
        "ALTER TABLE tasks ADD COLUMN waits INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE tasks ADD COLUMN children INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE tasks ADD COLUMN tries INTEGER NOT NULL DEFAULT 0",
        """
        CREATE TABLE queues (
            name TEXT {C} PRIMARY KEY,
            started BIGINT NOT NULL,
            allowance DOUBLE PRECISION NOT NULL
        ) {T}
        """,
        """
        CREATE TABLE waiters (
            task TEXT NOT NULL,
            waiter TEXT NOT NULL,
            home TEXT,
            eager INTEGER NOT NULL,
            ended INTEGER NOT NULL,
            PRIMARY KEY (task, waiter)
        ) {T}
        """,
        "CREATE INDEX waiters_waiter ON waiters (waiter)",
        "CREATE INDEX waiters_ready ON waiters (home) WHERE ended = 1",
        "ALTER TABLE instances ADD COLUMN channel TEXT",
        "ALTER TABLE instances ADD COLUMN idle INTEGER NOT NULL DEFAULT 0",
        indexes=[
            Index("tasks_set_aside", "tasks (created) WHERE set_aside IS NOT NULL"),
            Index("tasks_parent", "tasks (parent) WHERE parent IS NOT NULL"),
            Index("tasks_in_queue", "tasks (queue, owner) WHERE queue IS NOT NULL"),
        ],
    ),
    # 12: the steady clock (component/storage/clock.py), when a question was asked by it, and what
    # was shown as the time until which a task is kept
    Step(
        """
        CREATE TABLE clock (
            changes INTEGER NOT NULL,
            skew BIGINT NOT NULL,
            seen BIGINT,
            boot TEXT,
            elapsed BIGINT,
            downtime BIGINT NOT NULL,
            back_at BIGINT
        )
        """,
        "INSERT INTO clock (changes, skew, downtime) VALUES (0, 0, 0)",
        "ALTER TABLE inputs ADD COLUMN asked_at BIGINT",
        "ALTER TABLE tasks ADD COLUMN promised BIGINT",
    ),
    # 13: an index for each list of tasks, in its order; lists show visible tasks only
    Step(
        "DROP INDEX IF EXISTS tasks_list",
        indexes=[
            Index("tasks_listed", "tasks (principal, created DESC, id) WHERE visible = 1"),
            Index("tasks_state", "tasks (principal, state, created DESC, id) WHERE visible = 1"),
            Index(
                "tasks_context",
                "tasks (principal, context, created DESC, id) WHERE context IS NOT NULL",
            ),
            Index("tasks_updated", "tasks (principal, updated) WHERE visible = 1"),
            Index("tasks_by_state", "tasks (state, created DESC, id) WHERE visible = 1"),
        ],
    ),
    # 14: how many tasks there are, kept by triggers: no release and no statement can forget it
    Step(
        """
        CREATE TABLE task_counts (
            shard BIGINT NOT NULL,
            state TEXT NOT NULL,
            owned INTEGER NOT NULL,
            n BIGINT NOT NULL,
            PRIMARY KEY (shard, state, owned)
        ) {T}
        """,
        postgres=triggers.COUNT_TASKS_POSTGRES,
        sqlite=triggers.COUNT_TASKS_SQLITE,
    ),
    # 15: the tasks that are there already; each part from an index, because rows are wide. The
    # lock of the triggers keeps other writers out until the end.
    Step(
        """
        INSERT INTO task_counts (shard, state, owned, n)
        SELECT 0, state, CASE WHEN owner IS NULL THEN 0 ELSE 1 END, count(*) FROM tasks
        WHERE state IN ('accepted', 'running', 'input-required', 'cancelling') GROUP BY 2, 3
        """,
        """
        INSERT INTO task_counts (shard, state, owned, n) SELECT 0, state, 0, count(*) FROM tasks
        WHERE state IN ('failed', 'rejected', 'cancelled') GROUP BY 2
        """,
        """
        INSERT INTO task_counts (shard, state, owned, n) SELECT 0, 'completed', 0,
        (SELECT count(*) FROM tasks) - (SELECT coalesce(sum(n), 0) FROM task_counts)
        """,
        "DROP INDEX IF EXISTS tasks_incomplete",
    ),
    # 16: the open questions of a person, and those of a thread, each by an index. What was asked
    # before counts as open until it is forgotten with its task, and belongs to no thread.
    Step(
        "ALTER TABLE asked ADD COLUMN open INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE asked ADD COLUMN thread TEXT",
        "CREATE INDEX asked_open ON asked (jid, open)",
        "CREATE INDEX asked_thread ON asked (jid, thread) WHERE thread IS NOT NULL",
        postgres=triggers.CLOSE_ASKED_POSTGRES,
        sqlite=triggers.CLOSE_ASKED_SQLITE,
    ),
    # 17: what an operator has switched for all instances, and what instances tell each other
    Step(
        """
        CREATE TABLE switches (
            name TEXT PRIMARY KEY,
            value INTEGER NOT NULL,
            changed BIGINT NOT NULL
        ) {T}
        """,
        postgres=(
            """
            CREATE TABLE shared_changes (
                number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
                at BIGINT NOT NULL DEFAULT floor(extract(epoch FROM now()) * 1000),
                topic TEXT NOT NULL,
                subject TEXT NOT NULL
            )
            """,
            "CREATE INDEX shared_changes_transaction ON shared_changes (transaction)",
            *triggers.TELL_SHARED_POSTGRES,
        ),
    ),
    # 18: what each instance may spend of a budget that several share
    Step(
        """
        CREATE TABLE budget_allotments (
            day TEXT NOT NULL,
            scope TEXT NOT NULL,
            subject TEXT {C} NOT NULL,
            holder TEXT NOT NULL,
            instance TEXT NOT NULL,
            tokens BIGINT NOT NULL,
            nanos BIGINT NOT NULL,
            PRIMARY KEY (day, scope, subject, holder)
        ) {T}
        """,
        "ALTER TABLE spending ADD COLUMN alerted INTEGER NOT NULL DEFAULT 0",
    ),
    # 19: whether a replay record is of a request that its caller named. Others hold for a minute,
    # even if their task is open, so they are deleted before it. The index counts the records of a
    # principal.
    Step(
        "ALTER TABLE replay ADD COLUMN named INTEGER NOT NULL DEFAULT 1",
        indexes=[Index("replay_principal", "replay (principal, expires)")],
    ),
    # 20: contacts whose servers return presence with an error, and until when they are sent none
    Step(
        "ALTER TABLE subscriptions ADD COLUMN failures INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE subscriptions ADD COLUMN silent_until BIGINT",
    ),
    # 21: who has been told that an agent is a machine
    Step(
        """
        CREATE TABLE notices (
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            claimed BIGINT NOT NULL,
            sent INTEGER NOT NULL,
            PRIMARY KEY (agent, person)
        ) {T}
        """,
    ),
    # 22: schedules, work that was started by triggers, and how the turns of such work ended
    Step(
        """
        CREATE TABLE schedules (
            id TEXT {C} PRIMARY KEY,
            owner TEXT {C} NOT NULL,
            name TEXT {C} NOT NULL,
            origin TEXT NOT NULL,
            state TEXT NOT NULL,
            definition TEXT NOT NULL,
            due BIGINT NOT NULL,
            fired BIGINT,
            created BIGINT NOT NULL,
            UNIQUE (owner, name)
        )
        """,
        "CREATE INDEX schedules_due ON schedules (due) WHERE state = 'active'",
        """
        CREATE TABLE started_work (
            source TEXT {C} NOT NULL,
            name TEXT {C} NOT NULL,
            key TEXT {C} NOT NULL,
            task TEXT {C},
            details TEXT NOT NULL,
            failure TEXT,
            told INTEGER NOT NULL DEFAULT 0,
            claimed BIGINT NOT NULL DEFAULT 0,
            created BIGINT NOT NULL,
            retain_until BIGINT NOT NULL,
            PRIMARY KEY (source, name, key)
        ) {T}
        """,
        "CREATE INDEX started_untold ON started_work (created) WHERE told = 0",
        "CREATE INDEX started_retained ON started_work (retain_until) WHERE told = 1",
        """
        CREATE TABLE turn_outcomes (
            turn TEXT {C} PRIMARY KEY,
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            at BIGINT NOT NULL
        ) {T}
        """,
    ),
    # 23: the PubSub service (XEP-0060). `sequence` counts the changes of a node; items are in its
    # order, and a subscriber is told of changes after `since`. Nodes that are computed from other
    # tables have subscriptions only; `seen` is what a subscriber of theirs has been told of.
    Step(
        """
        CREATE TABLE pubsub_nodes (
            service TEXT {C} NOT NULL,
            node TEXT {C} NOT NULL,
            config TEXT NOT NULL,
            creator TEXT {C} NOT NULL,
            created BIGINT NOT NULL,
            sequence BIGINT NOT NULL,
            PRIMARY KEY (service, node)
        ) {T}
        """,
        """
        CREATE TABLE pubsub_items (
            service TEXT {C} NOT NULL,
            node TEXT {C} NOT NULL,
            id TEXT {C} NOT NULL,
            sequence BIGINT NOT NULL,
            publisher TEXT {C} NOT NULL,
            published BIGINT NOT NULL,
            expires BIGINT,
            payload TEXT NOT NULL,
            PRIMARY KEY (service, node, id)
        )
        """,
        "CREATE INDEX pubsub_items_order ON pubsub_items (service, node, sequence)",
        "CREATE INDEX pubsub_items_expires ON pubsub_items (expires) WHERE expires IS NOT NULL",
        """
        CREATE TABLE pubsub_subscriptions (
            service TEXT {C} NOT NULL,
            node TEXT {C} NOT NULL,
            jid TEXT {C} NOT NULL,
            principal TEXT {C} NOT NULL,
            subid TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('pending', 'subscribed')),
            deliver INTEGER NOT NULL,
            expires BIGINT,
            since BIGINT NOT NULL,
            seen TEXT,
            PRIMARY KEY (service, node, jid)
        ) {T}
        """,
        "CREATE INDEX pubsub_subscriptions_principal ON pubsub_subscriptions (principal, service)",
        """
        CREATE TABLE pubsub_affiliations (
            service TEXT {C} NOT NULL,
            node TEXT {C} NOT NULL,
            jid TEXT {C} NOT NULL,
            affiliation TEXT NOT NULL CHECK
                (affiliation IN ('member', 'outcast', 'owner', 'publisher', 'publish-only')),
            PRIMARY KEY (service, node, jid)
        ) {T}
        """,
        "CREATE INDEX pubsub_affiliations_jid ON pubsub_affiliations (jid, service)",
    ),
    # 24: watches: definitions, the items that were seen, and the events whose work is to start
    Step(
        """
        CREATE TABLE watches (
            id TEXT {C} PRIMARY KEY,
            owner TEXT {C} NOT NULL,
            definition TEXT NOT NULL,
            state TEXT NOT NULL,
            reason TEXT NOT NULL DEFAULT '',
            created BIGINT NOT NULL,
            last_number BIGINT NOT NULL DEFAULT 0,
            waiting BIGINT NOT NULL DEFAULT 0,
            window_at BIGINT NOT NULL DEFAULT 0,
            window_starts INTEGER NOT NULL DEFAULT 0,
            hour_at BIGINT NOT NULL DEFAULT 0,
            hour_starts INTEGER NOT NULL DEFAULT 0,
            received BIGINT NOT NULL DEFAULT 0,
            started BIGINT NOT NULL DEFAULT 0,
            thinned BIGINT NOT NULL DEFAULT 0,
            refused BIGINT NOT NULL DEFAULT 0,
            cut BIGINT NOT NULL DEFAULT 0,
            last_at BIGINT
        ) {T}
        """,
        "CREATE INDEX watches_of_owner ON watches (owner)",
        """
        CREATE TABLE watch_sources (
            source TEXT {C} PRIMARY KEY,
            since BIGINT NOT NULL
        ) {T}
        """,
        """
        CREATE TABLE watch_items (
            source TEXT {C} NOT NULL,
            item TEXT {C} NOT NULL,
            version TEXT {C} NOT NULL,
            seen BIGINT NOT NULL,
            PRIMARY KEY (source, item)
        ) {T}
        """,
        """
        CREATE TABLE watch_events (
            watch TEXT {C} NOT NULL,
            number BIGINT NOT NULL,
            key TEXT NOT NULL,
            due BIGINT NOT NULL,
            events INTEGER NOT NULL,
            data TEXT NOT NULL,
            hops INTEGER NOT NULL,
            chain TEXT NOT NULL,
            PRIMARY KEY (watch, number)
        ) {T}
        """,
        """
        CREATE TABLE watch_chains (
            trace TEXT {C} PRIMARY KEY,
            chain TEXT NOT NULL,
            at BIGINT NOT NULL
        ) {T}
        """,
    ),
    # 25: notifications of people, with what is known of each recipient; and deliveries of webhooks
    Step(
        """
        CREATE TABLE deliveries (
            webhook TEXT {C} NOT NULL,
            delivery TEXT {C} NOT NULL,
            task TEXT {C} NOT NULL,
            at BIGINT NOT NULL,
            PRIMARY KEY (webhook, delivery)
        ) {T}
        """,
        "CREATE INDEX deliveries_at ON deliveries (at)",
        """
        CREATE TABLE notifications (
            id TEXT {C} NOT NULL PRIMARY KEY,
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            priority INTEGER NOT NULL,
            title TEXT NOT NULL,
            text TEXT NOT NULL,
            created BIGINT NOT NULL,
            waits_online INTEGER NOT NULL,
            message TEXT {C},
            sent BIGINT,
            received INTEGER NOT NULL DEFAULT 0,
            repeated INTEGER NOT NULL DEFAULT 0
        ) {T}
        """,
        "CREATE INDEX notifications_recipient ON notifications (agent, person, sent)",
        "CREATE INDEX notifications_message ON notifications (message)",
        "CREATE INDEX notifications_sent ON notifications (sent)",
        """
        CREATE TABLE recipients (
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            look_at BIGINT,
            claimed BIGINT NOT NULL DEFAULT 0,
            token TEXT {C},
            dropped INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (agent, person)
        ) {T}
        """,
        "CREATE INDEX recipients_look ON recipients (look_at)",
        """
        CREATE TABLE notification_preferences (
            person TEXT {C} NOT NULL PRIMARY KEY,
            quiet TEXT {C},
            zone TEXT {C},
            utc_offset INTEGER,
            urgent INTEGER NOT NULL DEFAULT 0,
            sends_receipts INTEGER NOT NULL DEFAULT 0
        ) {T}
        """,
    ),
    # 26: notifications whose time their recipient has set
    Step("ALTER TABLE notifications ADD COLUMN on_time INTEGER NOT NULL DEFAULT 0"),
    # 27: who lets an agent keep memories in their account on their behalf (XEP-0356)
    Step(
        """
        CREATE TABLE account_consents (
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            at BIGINT NOT NULL,
            PRIMARY KEY (agent, person)
        ) {T}
        """,
    ),
    # 28: tokens that were read from the cache of a provider, and those of reasoning
    Step(
        "ALTER TABLE spending ADD COLUMN cached BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE spending ADD COLUMN reasoning BIGINT NOT NULL DEFAULT 0",
    ),
    # 29: the skills of directories that an admin has approved or revoked, and what they remember
    Step(
        """
        CREATE TABLE skill_approvals (
            name TEXT {C} NOT NULL PRIMARY KEY,
            digest TEXT {C} NOT NULL,
            directory TEXT NOT NULL,
            manifest TEXT NOT NULL,
            description TEXT NOT NULL,
            trusted INTEGER NOT NULL,
            approved_by TEXT NOT NULL,
            approved_at BIGINT NOT NULL,
            revoked_by TEXT,
            revoked_at BIGINT
        ) {T}
        """,
        """
        CREATE TABLE skill_memories (
            skill TEXT {C} NOT NULL,
            principal TEXT {C} NOT NULL,
            name TEXT {C} NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (skill, principal, name)
        ) {T}
        """,
        "CREATE INDEX skill_memories_principal ON skill_memories (principal)",
        postgres=triggers.TELL_SKILLS_POSTGRES,
    ),
    # 30: which memories people have deleted at their nodes, until the agent has deleted them, too;
    # what is missing for another reason is not deleted
    Step(
        """
        CREATE TABLE pubsub_retractions (
            service TEXT {C} NOT NULL,
            node TEXT {C} NOT NULL,
            id TEXT {C} NOT NULL,
            at BIGINT NOT NULL,
            PRIMARY KEY (service, node, id)
        ) {T}
        """,
    ),
    # 31: the size of each item, by which the size of a node is bounded
    Step(
        "ALTER TABLE pubsub_items ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0",
        postgres=("UPDATE pubsub_items SET bytes = octet_length(payload)",),
        sqlite=("UPDATE pubsub_items SET bytes = length(CAST(payload AS BLOB))",),
        indexes=[Index("pubsub_items_bytes", "pubsub_items (service, node, bytes)")],
    ),
    # 32: the descriptions of skills by others: which was approved, and which waits for an approval
    Step(
        """
        CREATE TABLE skill_descriptions (
            source TEXT {C} NOT NULL,
            skill TEXT {C} NOT NULL,
            approved TEXT NOT NULL,
            approved_by TEXT NOT NULL,
            approved_at BIGINT NOT NULL,
            held TEXT NOT NULL,
            PRIMARY KEY (source, skill)
        ) {T}
        """,
        postgres=triggers.TELL_DESCRIPTIONS_POSTGRES,
    ),
    # 33: whether the message of a question was written to a person, withheld from them, or returned
    Step("ALTER TABLE recent_questions ADD COLUMN shown TEXT {C} NOT NULL DEFAULT 'shown'"),
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
            for statement in (*step.statements, *step.sqlite):
                connection.execute(statement.format(T="WITHOUT ROWID", C=""))
            for index in step.indexes:
                if version:
                    _log.info(
                        "building an index; this takes some seconds for a million rows, and the"
                        " service starts when it is done",
                        index=index.name,
                        database=str(path),
                    )
                connection.execute(index.sql())
            connection.execute(f"PRAGMA user_version = {number}")


# Any number will do, as long as every release uses it.
_LOCK: Final = 0x786D7070  # "xmpp"
_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.2
_OLDEST_SERVER: Final = 130_000
"""The first version that has ids of transactions which never come again (xid8)."""


def migrate_postgres(
    connection: "psycopg.Connection", name: str, steps: Sequence[Step] = MIGRATIONS
) -> None:
    """Bring the database to the shape of this release, all in one transaction.

    The indexes of a database that was there before are left to `component.storage.indexes`.

    `name` begins the sentence of an error. Another instance that does the same at this time is
    waited for. The table `versions` has one row: how many steps have been taken, and how many a
    release must know to live with that.

    A table is changed only while nobody else has it locked, and others wait for that half a second
    at most: if somebody has, this tries again, for a minute.

    Raises StorageError, and changes nothing, if the version is more than is known here.
    """
    from psycopg.errors import LockNotAvailable  # noqa: PLC0415

    if connection.info.server_version < _OLDEST_SERVER:
        raise StorageError(
            f"{name} is on PostgreSQL {connection.info.server_version // 10_000}, which is too old:"
            f" the agent needs {_OLDEST_SERVER // 10_000} or later."
        )
    give_up = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with connection.transaction():
                _migrate_postgres(connection, name, steps)
        except LockNotAvailable:
            if time.monotonic() > give_up:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _migrate_postgres(connection: "psycopg.Connection", name: str, steps: Sequence[Step]) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    # The version, and how to tell after a lost connection what was committed (postgres.py).
    connection.execute(
        "CREATE TABLE IF NOT EXISTS versions (version INTEGER NOT NULL, oldest INTEGER NOT NULL)"
    )
    connection.execute(
        "CREATE TABLE IF NOT EXISTS writers"
        " (id TEXT PRIMARY KEY, batch BIGINT NOT NULL, at BIGINT NOT NULL)"
    )
    found = connection.execute("SELECT version, oldest FROM versions").fetchone()
    version, oldest = found or (0, 0)
    if oldest > len(steps):
        raise _newer(name, version, len(steps))
    # A client that wants to use a table waits behind one that waits to change it.
    connection.execute("SET LOCAL lock_timeout = '500ms'")
    for number, step in enumerate(steps[version:], start=version + 1):
        for statement in (*step.statements, *step.postgres):
            text = statement.format(T="", C='COLLATE "C"')
            connection.execute(text)
        if found is None:
            for index in step.indexes:
                connection.execute(index.sql())
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
