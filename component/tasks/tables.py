"""The tables of durable tasks (docs/design/durable-tasks.md)."""

from typing import Final

from component.storage.schema import Table

# The number of tasks in each state, with and without an owner. On PostgreSQL each connection has
# its own rows, by the id of its server process, so writers never wait for each other;
# `component.tasks.admin` adds them up.

_COUNT_SQLITE: Final = """
INSERT INTO task_counts (shard, state, owned, n)
VALUES (0, {row}.state, {row}.owner IS NOT NULL, {n})
ON CONFLICT (shard, state, owned) DO UPDATE SET n = n + excluded.n;
"""
_OUT: Final = _COUNT_SQLITE.format(row="OLD", n=-1)
_IN: Final = _COUNT_SQLITE.format(row="NEW", n=1)

COUNT_TASKS_SQLITE: Final = (
    f"CREATE TRIGGER tasks_counted_in AFTER INSERT ON tasks BEGIN {_IN} END",
    f"""
    CREATE TRIGGER tasks_counted AFTER UPDATE OF state, owner ON tasks
    WHEN OLD.state <> NEW.state OR (OLD.owner IS NULL) <> (NEW.owner IS NULL)
    BEGIN {_OUT} {_IN} END
    """,
    f"CREATE TRIGGER tasks_counted_out AFTER DELETE ON tasks BEGIN {_OUT} END",
)

COUNT_TASKS_POSTGRES: Final = (
    """
    CREATE FUNCTION count_tasks() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP <> 'INSERT' THEN
            INSERT INTO task_counts AS kept (shard, state, owned, n)
            VALUES (pg_backend_pid(), OLD.state, (OLD.owner IS NOT NULL)::int, -1)
            ON CONFLICT (shard, state, owned) DO UPDATE SET n = kept.n - 1;
        END IF;
        IF TG_OP <> 'DELETE' THEN
            INSERT INTO task_counts AS kept (shard, state, owned, n)
            VALUES (pg_backend_pid(), NEW.state, (NEW.owner IS NOT NULL)::int, 1)
            ON CONFLICT (shard, state, owned) DO UPDATE SET n = kept.n + 1;
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER tasks_counted AFTER INSERT OR DELETE ON tasks
    FOR EACH ROW EXECUTE FUNCTION count_tasks()
    """,
    """
    CREATE TRIGGER tasks_counted_change AFTER UPDATE ON tasks FOR EACH ROW
    WHEN (OLD.state <> NEW.state OR (OLD.owner IS NULL) <> (NEW.owner IS NULL))
    EXECUTE FUNCTION count_tasks()
    """,
)

# Whether a question may still be open, stored with the people asked, so that it can be indexed.

_CLOSE_ASKED: Final = "UPDATE asked SET open = 0 WHERE input = NEW.id;"

CLOSE_ASKED_SQLITE: Final = (
    f"""
    CREATE TRIGGER inputs_closed AFTER UPDATE OF state ON inputs
    WHEN OLD.state = 'open' AND NEW.state <> 'open' BEGIN {_CLOSE_ASKED} END
    """,
)

CLOSE_ASKED_POSTGRES: Final = (
    f"""
    CREATE FUNCTION close_asked() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN {_CLOSE_ASKED} RETURN NULL; END $$
    """,
    """
    CREATE TRIGGER inputs_closed AFTER UPDATE ON inputs FOR EACH ROW
    WHEN (OLD.state = 'open' AND NEW.state <> 'open') EXECUTE FUNCTION close_asked()
    """,
)

TABLES: Final = (
    Table(
        name="tasks",
        columns="""
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
            retain_until BIGINT NOT NULL,
            bytes BIGINT,
            origin TEXT,
            attempts INTEGER NOT NULL DEFAULT 0,
            set_aside TEXT,
            parent TEXT,
            queue TEXT {C},
            not_before BIGINT,
            waits INTEGER NOT NULL DEFAULT 0,
            children INTEGER NOT NULL DEFAULT 0,
            tries INTEGER NOT NULL DEFAULT 0,
            promised BIGINT
        """,
        indexes={
            "tasks_queue": "(principal, priority DESC, created, id)"
            " WHERE owner IS NULL AND state IN ('accepted', 'running')",
            "tasks_open": "(principal)"
            " WHERE state IN ('accepted', 'running', 'input-required', 'cancelling')",
            "tasks_owned": "(owner) WHERE owner IS NOT NULL",
            "tasks_due": "(due) WHERE due IS NOT NULL",
            "tasks_untold": "(updated) WHERE untold IS NOT NULL",
            "tasks_retain": "(retain_until)",
            "tasks_created": "(created DESC, id) WHERE visible = 1",
            "tasks_kept": "(principal, updated, id, bytes, state, untold)"
            " WHERE state IN ('completed', 'failed', 'rejected', 'cancelled')",
            "tasks_open_bytes": "(principal, bytes, state)"
            " WHERE state IN ('accepted', 'running', 'input-required', 'cancelling')",
            "tasks_unweighed": "(id) WHERE bytes IS NULL",
            "tasks_set_aside": "(created) WHERE set_aside IS NOT NULL",
            "tasks_parent": "(parent) WHERE parent IS NOT NULL",
            "tasks_in_queue": "(queue, owner) WHERE queue IS NOT NULL",
            "tasks_listed": "(principal, created DESC, id) WHERE visible = 1",
            "tasks_state": "(principal, state, created DESC, id) WHERE visible = 1",
            "tasks_context": "(principal, context, created DESC, id) WHERE context IS NOT NULL",
            "tasks_updated": "(principal, updated) WHERE visible = 1",
            "tasks_by_state": "(state, created DESC, id) WHERE visible = 1",
        },
        has_rowid=True,
        kept="stored for `tasks.retention_s`, as promised to their callers",
    ),
    Table(
        name="journal",
        columns="""
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            step TEXT {C} NOT NULL,
            token INTEGER NOT NULL,
            done INTEGER NOT NULL,
            result TEXT,
            input TEXT,
            PRIMARY KEY (task, step)
        """,
        kept="part of a task",
    ),
    Table(
        name="events",
        columns="""
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            revision INTEGER NOT NULL,
            state TEXT NOT NULL,
            at BIGINT NOT NULL,
            retain BIGINT NOT NULL,
            detail TEXT,
            PRIMARY KEY (task, revision)
        """,
        kept="part of a task",
    ),
    Table(
        name="parts",
        columns="""
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            name TEXT {C} NOT NULL,
            part INTEGER NOT NULL,
            last INTEGER NOT NULL,
            output TEXT NOT NULL,
            PRIMARY KEY (task, name, part)
        """,
        kept="part of a task",
    ),
    Table(
        name="replay",
        columns="""
            key TEXT PRIMARY KEY,
            digest TEXT NOT NULL,
            task TEXT,
            answer TEXT,
            owner TEXT,
            expires BIGINT NOT NULL,
            principal TEXT {C},
            bytes BIGINT NOT NULL DEFAULT 0,
            named INTEGER NOT NULL DEFAULT 1
        """,
        indexes={
            "replay_expires": "(expires)",
            "replay_task": "(task) WHERE task IS NOT NULL",
            "replay_kept": "(principal, expires, key, bytes) WHERE bytes > 0",
            "replay_principal": "(principal, expires)",
        },
        kept="part of a task",
    ),
    Table(
        name="inputs",
        columns="""
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
            answered_at BIGINT,
            asked_at BIGINT
        """,
        indexes={
            "inputs_task": "(task)",
        },
        sqlite=CLOSE_ASKED_SQLITE,
        postgres=CLOSE_ASKED_POSTGRES,
        kept="part of a task",
    ),
    Table(
        name="asked",
        columns="""
            input TEXT NOT NULL REFERENCES inputs ON DELETE CASCADE,
            jid TEXT {C} NOT NULL,
            open INTEGER NOT NULL DEFAULT 1,
            thread TEXT,
            PRIMARY KEY (jid, input)
        """,
        indexes={
            "asked_input": "(input)",
            "asked_open": "(jid, open)",
            "asked_thread": "(jid, thread) WHERE thread IS NOT NULL",
        },
        kept="part of a task",
    ),
    Table(
        name="recent_questions",
        columns="""
            jid TEXT {C} NOT NULL,
            agent TEXT {C} NOT NULL,
            input TEXT {C} NOT NULL,
            thread TEXT {C} NOT NULL,
            asked BIGINT NOT NULL,
            expires BIGINT NOT NULL,
            closed BIGINT,
            shown TEXT {C} NOT NULL DEFAULT 'shown',
            PRIMARY KEY (jid, agent, input)
        """,
        indexes={
            "recent_questions_input": "(input)",
        },
        kept="part of a task",
    ),
    Table(
        name="waiters",
        columns="""
            task TEXT NOT NULL,
            waiter TEXT NOT NULL,
            home TEXT,
            eager INTEGER NOT NULL,
            ended INTEGER NOT NULL,
            PRIMARY KEY (task, waiter)
        """,
        indexes={
            "waiters_waiter": "(waiter)",
            "waiters_ready": "(home) WHERE ended = 1",
        },
        kept="part of a task",
    ),
    Table(
        name="queues",
        columns="""
            name TEXT {C} PRIMARY KEY,
            started BIGINT NOT NULL,
            allowance DOUBLE PRECISION NOT NULL
        """,
        kept="queues",
    ),
    Table(
        name="task_counts",
        columns="""
            shard BIGINT NOT NULL,
            state TEXT NOT NULL,
            owned INTEGER NOT NULL,
            n BIGINT NOT NULL,
            PRIMARY KEY (shard, state, owned)
        """,
        sqlite=COUNT_TASKS_SQLITE,
        postgres=COUNT_TASKS_POSTGRES,
        kept="counts",
    ),
    Table(
        name="instances",
        columns="""
            id TEXT PRIMARY KEY, beat BIGINT NOT NULL,
            place TEXT,
            channel TEXT,
            idle INTEGER NOT NULL DEFAULT 0
        """,
        has_rowid=True,
        kept="processes",
    ),
)
