"""Database triggers for derived data, which is updated with each change of a row.

They also apply to changes by other releases, or by an operator.
"""

from typing import Final

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

# Changes for other instances (`component.storage.shared`): the arguments of a trigger are the
# topic and the columns whose values identify the row.

TELL_SHARED_POSTGRES: Final = (
    """
    CREATE FUNCTION tell_shared() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        changed jsonb := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END);
    BEGIN
        INSERT INTO shared_changes (topic, subject)
        VALUES (TG_ARGV[0], concat_ws(' ', changed ->> TG_ARGV[1], changed ->> TG_ARGV[2]));
        PERFORM pg_notify('shared', '');
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER stopped_shared AFTER INSERT OR DELETE ON stopped
    FOR EACH ROW EXECUTE FUNCTION tell_shared('contacts', 'owner', 'contact')
    """,
    """
    CREATE TRIGGER agents_shared AFTER UPDATE ON agents FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION tell_shared('agents', 'name')
    """,
    """
    CREATE TRIGGER switches_shared AFTER INSERT OR UPDATE ON switches
    FOR EACH ROW EXECUTE FUNCTION tell_shared('switches', 'name')
    """,
)

TELL_SKILLS_POSTGRES: Final = (
    """
    CREATE TRIGGER skill_approvals_shared AFTER INSERT OR UPDATE ON skill_approvals
    FOR EACH ROW EXECUTE FUNCTION tell_shared('skills', 'name')
    """,
)

TELL_DESCRIPTIONS_POSTGRES: Final = (
    """
    CREATE TRIGGER skill_descriptions_shared AFTER UPDATE ON skill_descriptions FOR EACH ROW
    WHEN (OLD.approved <> NEW.approved) EXECUTE FUNCTION tell_shared('descriptions', 'source')
    """,
)
