"""The tables of the storage, and of what is known about contacts and instances."""

from typing import Final

from component.store.schema import Table

_TELL_SHARED: Final = """
CREATE FUNCTION tell_shared() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed jsonb := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END);
BEGIN
    INSERT INTO shared_changes (topic, subject)
    VALUES (TG_ARGV[0], concat_ws(' ', changed ->> TG_ARGV[1], changed ->> TG_ARGV[2]));
    PERFORM pg_notify('shared', '');
    RETURN NULL;
END $$
"""
"""The function of triggers that tell other instances of a change (`component.store.shared`)."""
_CLOCK: Final = "INSERT INTO clock (changes, skew, downtime) VALUES (0, 0, 0)"


def tells(table: str, event: str, topic: str, *columns: str, when: str = "") -> str:
    """Return the trigger that tells other instances of changes of a table, on PostgreSQL.

    Args:
        event: the statements that change it, such as `INSERT OR UPDATE`.
        topic: what `SharedChanges.register` calls the table.
        columns: the columns whose values identify a row.
        when: the condition on `OLD` and `NEW`, if not all changes matter.
    """
    condition = f" WHEN ({when})" if when else ""
    arguments = ", ".join(f"'{each}'" for each in (topic, *columns))
    return (
        f"CREATE TRIGGER {table}_shared AFTER {event} ON {table} FOR EACH ROW{condition}"
        f" EXECUTE FUNCTION tell_shared({arguments})"
    )


TABLES: Final = (
    Table(
        name="shared_changes",
        columns="""
            number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
            at BIGINT NOT NULL DEFAULT floor(extract(epoch FROM now()) * 1000),
            topic TEXT NOT NULL,
            subject TEXT NOT NULL
        """,
        indexes={"shared_changes_transaction": "(transaction)"},
        only="postgresql",
        postgres=(_TELL_SHARED,),
        kept="changes that instances tell each other, for an hour",
        is_work=False,
    ),
    Table(
        name="clock",
        columns="""
            changes INTEGER NOT NULL,
            skew BIGINT NOT NULL,
            seen BIGINT,
            boot TEXT,
            elapsed BIGINT,
            downtime BIGINT NOT NULL,
            back_at BIGINT
        """,
        has_rowid=True,
        sqlite=(_CLOCK,),
        postgres=(_CLOCK,),
        kept="the clock",
        is_work=False,
    ),
    Table(
        name="switches",
        columns="""
            name TEXT PRIMARY KEY,
            value INTEGER NOT NULL,
            changed BIGINT NOT NULL
        """,
        postgres=(tells("switches", "INSERT OR UPDATE", "switches", "name"),),
        kept="switches of admins",
    ),
    Table(
        name="stopped",
        columns="""
            owner TEXT {C} NOT NULL,
            contact TEXT {C} NOT NULL,
            PRIMARY KEY (owner, contact)
        """,
        postgres=(tells("stopped", "INSERT OR DELETE", "contacts", "owner", "contact"),),
        kept="whether the person wants no messages",
    ),
    Table(
        name="last_addresses",
        columns="""
            contact TEXT {C} NOT NULL PRIMARY KEY,
            address TEXT NOT NULL
        """,
        postgres=(tells("last_addresses", "INSERT OR UPDATE", "addresses", "contact"),),
        kept="the address at which the person reaches the default agent",
    ),
    Table(
        name="subscriptions",
        columns="""
            owner TEXT {C} NOT NULL,
            contact TEXT {C} NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('none', 'from', 'to', 'both')),
            ask INTEGER NOT NULL CHECK (ask IN (0, 1)),
            failures INTEGER NOT NULL DEFAULT 0,
            silent_until BIGINT,
            PRIMARY KEY (owner, contact)
        """,
        kept="contacts, which the person ends by unsubscribing",
    ),
    Table(
        name="writers",
        columns="""
            id TEXT PRIMARY KEY,
            batch BIGINT NOT NULL,
            at BIGINT NOT NULL,
            place TEXT
        """,
        only="postgresql",
        kept="processes",
        is_work=False,
    ),
)
