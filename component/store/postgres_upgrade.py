"""Upgrades of a PostgreSQL database: the backup is a second schema of it, named after that of the
service, such as `public_before_upgrade`.

The copies of a rehearsal and of a backup are made with the statements that the table `versions` has
kept, so that they have the indexes, keys and triggers of the original.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg
from psycopg.sql import SQL, Identifier

from component.store.errors import StorageError
from component.store.schema import (
    IN_USE,
    Schema,
    check_version,
    lock_postgres,
    postgres_version,
    version_row,
)
from component.store.upgrade import NO_UPGRADE, Upgrade, check_structure, failed

if TYPE_CHECKING:
    from psycopg import Connection

_BACKUP: Final = "before_upgrade"
_DISCARDED: Final = "discarded"
_REHEARSAL: Final = "rehearsal"
_STRUCTURE: Final = """
WITH tables AS (SELECT oid FROM pg_class
                WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r')
SELECT concat_ws(' ', attrelid::regclass, attname, format_type(atttypid, atttypmod), attcollation,
                 attnotnull, attidentity, pg_get_expr(adbin, adrelid))
FROM pg_attribute JOIN tables ON attrelid = oid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attnum > 0 AND NOT attisdropped
UNION SELECT pg_get_indexdef(indexrelid, 0, true) FROM pg_index JOIN tables ON indrelid = oid
UNION SELECT concat_ws(' ', conrelid::regclass, pg_get_constraintdef(pg_constraint.oid, true))
    FROM pg_constraint JOIN tables ON conrelid = tables.oid
UNION SELECT pg_get_triggerdef(pg_trigger.oid, true)
    FROM pg_trigger JOIN tables ON tgrelid = tables.oid WHERE NOT tgisinternal
UNION SELECT proname || ' ' || regexp_replace(prosrc, '\\s+', ' ', 'g')
    FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
"""
"""A text for each column, index, constraint, trigger and function of the current schema."""


def upgrade(connection: "Connection", name: str, schema: Schema) -> Upgrade:
    """Upgrade the database, after a rehearsal and a backup; `name` begins sentences about it.

    Raises StorageError, and errors of the server.
    """
    rehearse(connection, name, schema)
    with connection.transaction():
        live = _current(connection)
        lock_postgres(connection)
        version = _known(postgres_version(connection))
        if version < schema.version:
            _wait_for_others(connection, name)
            backup = f"{live}_{_BACKUP}"
            _copy(connection, live, backup)
            _enter(connection, live)
            _migrate(connection, schema, version)
            tables = schema.tables_of("postgresql")
            made = Upgrade(
                before=version,
                after=schema.version,
                backup=f"the schema {backup}",
                tables=tuple(table.name for table in tables),
                contents=_contents(connection, [each.name for each in tables if each.is_work]),
            )
            _run(connection, "CREATE TABLE {}.upgrade (state TEXT)", backup)
            connection.execute(
                SQL("INSERT INTO {}.upgrade VALUES (%s)").format(Identifier(backup)),
                (msgspec.json.encode(made).decode(),),
            )
        else:  # another instance has done it meanwhile
            check_version(name, version, schema)
            made = _state(connection, f"{live}_{_BACKUP}")
    return made.logged(name)


def rehearse(connection: "Connection", name: str, schema: Schema) -> int | None:
    """Run the migrations on a copy; return the version of the database, None if it is current.

    Other instances are not disturbed. Raises StorageError, and errors of the server.
    """
    with connection.transaction(force_rollback=True):
        version = _known(postgres_version(connection))
        if version >= schema.version:
            check_version(name, version, schema)
            return None
        live = _current(connection)
        copy = f"{live}_{_REHEARSAL}"
        _copy(connection, live, copy)
        try:
            _migrate(connection, schema, version)
        except (psycopg.ProgrammingError, psycopg.IntegrityError, psycopg.DataError) as error:
            raise failed(name, schema, error) from error
        found = _structure(connection)
        _make_schema(connection, copy, schema.statements("postgresql"))
        check_structure(name, schema, found, _structure(connection))
    return version


def roll_back(connection: "Connection", name: str, *, discard_newer: bool) -> Upgrade:
    """Put the backup back. Raises StorageError, and errors of the server."""
    with connection.transaction():
        lock_postgres(connection)
        _wait_for_others(connection, name)
        version = _known(postgres_version(connection))
        live = _current(connection)
        backup, discarded = f"{live}_{_BACKUP}", f"{live}_{_DISCARDED}"
        undone = _state(connection, backup)
        undone.check_undoable(name, version)
        changed = undone.newer_work(_contents(connection, undone.contents))
        if changed and not discard_newer:
            raise undone.refused(name, changed)
        _make_schema(connection, discarded, ())
        _move(connection, live, discarded, undone.tables)
        _run(connection, "DROP TABLE {}.upgrade", backup)
        _move(connection, backup, live, _tables(connection, backup))
        for each in (backup, *([] if changed else [discarded])):
            _run(connection, "DROP SCHEMA {} CASCADE", each)
    return undone


def _wait_for_others(connection: "Connection", name: str) -> None:
    """Let transactions of other instances end. Raises StorageError if one uses the database."""
    try:
        # The server notices a moment later that an instance has stopped.
        connection.execute("SET LOCAL lock_timeout = '3s'")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (IN_USE,))
    except psycopg.errors.LockNotAvailable:
        raise StorageError(
            f"{name} is in use by another instance. Stop all instances, and start them again with"
            " one release when the database has been changed."
        ) from None
    # An instance that has lost its connection may come back: it waits, and finds another version.
    connection.execute("LOCK TABLE writers IN ACCESS EXCLUSIVE MODE")


def _known(version: int | None) -> int:
    if version is None:
        raise StorageError("There are no tables in the database: no service has used it yet.")
    return version


def _state(connection: "Connection", backup: str) -> Upgrade:
    found = connection.execute(
        "SELECT to_regclass(quote_ident(%s) || '.upgrade')", (backup,)
    ).fetchone()
    if found == (None,):
        raise StorageError(NO_UPGRADE)
    (state,) = _row(_run(connection, "SELECT state FROM {}.upgrade", backup))
    return msgspec.json.decode(state, type=Upgrade)


def _migrate(connection: "Connection", schema: Schema, version: int) -> None:
    for migration in schema.migrations_from(version):
        for statement in migration.statements_for("postgresql"):
            connection.execute(statement)
    connection.execute("UPDATE versions SET version = %s, statements = %s", version_row(schema))


def _copy(connection: "Connection", source: str, target: str) -> None:
    """Make a copy of the tables in a schema, and enter it."""
    (statements,) = _row(connection.execute("SELECT statements FROM versions"))
    _make_schema(connection, target, msgspec.json.decode(statements, type=list[str]))
    for table in _tables(connection, target):
        columns = SQL(", ").join(
            Identifier(name)
            for (name,) in connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = CAST(%s AS regclass)"
                " AND attnum > 0 AND NOT attisdropped",
                (table,),
            )
        )
        # Triggers would count the rows again.
        _run(connection, "ALTER TABLE {} DISABLE TRIGGER USER", table)
        _run(connection, "DELETE FROM {}", table)
        connection.execute(
            SQL("INSERT INTO {0} ({1}) OVERRIDING SYSTEM VALUE SELECT {1} FROM {2}.{0}").format(
                Identifier(table), columns, Identifier(source)
            )
        )
        _run(connection, "ALTER TABLE {} ENABLE TRIGGER USER", table)
    for sequence in _tables(connection, target, "S"):
        connection.execute(
            SQL("SELECT setval({}, last_value, is_called) FROM {}.{}").format(
                sequence, Identifier(source), Identifier(sequence)
            )
        )


def _make_schema(connection: "Connection", name: str, statements: Iterable[str]) -> None:
    """Make a schema with the tables of these statements, and enter it."""
    _run(connection, "DROP SCHEMA IF EXISTS {} CASCADE", name)
    _run(connection, "CREATE SCHEMA {}", name)
    _enter(connection, name)
    for statement in statements:
        connection.execute(statement)


def _move(connection: "Connection", source: str, target: str, tables: Sequence[str]) -> None:
    """Move tables, with the functions of their triggers, from one schema to another."""
    functions = connection.execute(
        "SELECT DISTINCT proname FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid"
        " JOIN pg_class ON pg_class.oid = tgrelid"
        " JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = %s AND pronamespace = relnamespace AND relname = ANY(%s)"
        " AND NOT tgisinternal",
        (source, list(tables)),
    ).fetchall()
    for (function,) in functions:
        _run(connection, "ALTER FUNCTION {}.{}() SET SCHEMA {}", source, function, target)
    for table in tables:
        _run(connection, "ALTER TABLE {}.{} SET SCHEMA {}", source, table, target)


def _current(connection: "Connection") -> str:
    return str(_row(connection.execute("SELECT current_schema()"))[0])


def _enter(connection: "Connection", name: str) -> None:
    _run(connection, "SET LOCAL search_path TO {}", name)


def _tables(connection: "Connection", name: str, kind: str = "r") -> list[str]:
    """Return the tables of a schema in the order in which they were made, or its sequences (S)."""
    found = connection.execute(
        "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = %s AND relkind = %s ORDER BY pg_class.oid",
        (name, kind),
    )
    return [relname for (relname,) in found]


def _structure(connection: "Connection") -> set[str]:
    return {text for (text,) in connection.execute(_STRUCTURE)}


def _contents(connection: "Connection", tables: Iterable[str]) -> Mapping[str, str]:
    """Return the number of rows and a digest of each of these tables."""
    digest = "SELECT concat_ws(' ', count(*), sum(hashtextextended(CAST(t AS text), 0))) FROM {} t"
    return {name: str(_row(_run(connection, digest, name))[0]) for name in tables}


def _run(connection: "Connection", statement: Any, *names: str) -> "psycopg.Cursor":
    """Run a statement with these identifiers."""
    return connection.execute(SQL(statement).format(*map(Identifier, names)))


def _row(cursor: "psycopg.Cursor") -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None, "the statement returns a row"
    return row
