"""Measures an upgrade of a large database: `python -m benchmarks.upgrade [--rows 2000000]`.

Fills the table of tasks, then builds an index of an upgrade in each possible way, while a writer
changes a row every few milliseconds: the duration, and the longest wait of a write. Not part of
`python -m benchmarks`: it takes minutes and gigabytes.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from component.storage.indexes import IndexBuilder
from component.storage.migrations import MIGRATIONS, Index, migrate, migrate_postgres
from component.storage.server import Server
from tests.servers.postgres import Postgres

_COLUMNS = (
    "id, principal, requester, target, skill, version, request, state, revision, priority, token,"
    " result, visible, created, updated, retain_until"
)
_ROW = (
    "printf('%032x', {n}), 'p' || {n} % 1000, 'p/desk', 'agent', 'report', '1', '{{}}',"
    " CASE {n} % 20 WHEN 0 THEN 'failed' ELSE 'completed' END, 3, 0, 2,"
    ' \'<result xmlns="urn:fluux:agent:0#execute" skill="report"/>\', 1, {n}, {n}, {n}'
)
_PAUSE_S = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as directory:
        sqlite(Path(directory) / "agent.db", rows)
    with Postgres() as server:
        postgres(server.new_database(), rows)


def indexes() -> Iterator[Index]:
    for step in MIGRATIONS:
        yield from step.indexes


def sqlite(path: Path, rows: int) -> None:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, timeout=120)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    with closing(connect()) as connection:
        migrate(connection, path)
        connection.execute(
            f"INSERT INTO tasks ({_COLUMNS}) WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT"
            f" n + 1 FROM c LIMIT {rows}) SELECT {_ROW.format(n='n')} FROM c"
        )

        def change(number: int) -> None:
            with closing(connect()) as own:
                own.execute("UPDATE tasks SET revision = revision + 1 WHERE created = ?", (number,))

        for index in indexes():
            connection.execute(f"DROP INDEX {index.name}")
            with writing(change) as longest:
                began = time.perf_counter()
                connection.execute(index.sql())
                took = time.perf_counter() - began
            print(
                f"SQLite: {index.name}: {took:.1f} s; longest write {longest[0]:.2f} s", flush=True
            )


def postgres(url: str, rows: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        migrate_postgres(connection, "The database")
        row = _ROW.format(n="n").replace("printf('%032x', n)", "lpad(to_hex(n), 32, '0')")
        connection.execute(
            f"INSERT INTO tasks ({_COLUMNS}) SELECT {row} FROM generate_series(1, {rows}) n"
        )
        connection.execute("VACUUM ANALYZE tasks")

        def change(number: int) -> None:
            with psycopg.connect(url, autocommit=True) as own:
                own.execute(
                    "UPDATE tasks SET revision = revision + 1"
                    " WHERE id = lpad(to_hex(%s::bigint), 32, '0')",
                    (number,),
                )

        for how in ("in a transaction", "beside the service"):
            for index in indexes():
                connection.execute(f"DROP INDEX {index.name}")
                with writing(change) as longest:
                    began = time.perf_counter()
                    if how == "in a transaction":
                        connection.execute(index.sql())
                    else:
                        IndexBuilder(Server.of(url)).run()
                    took = time.perf_counter() - began
                print(
                    f"PostgreSQL, {how}: {index.name}: {took:.1f} s;"
                    f" longest write {longest[0]:.2f} s",
                    flush=True,
                )


@contextmanager
def writing(change: Callable[[int], None]) -> Iterator[list[float]]:
    """Write during the context; yield a list with the longest time of a write, in seconds."""
    over, longest = threading.Event(), [0.0]

    def work() -> None:
        number = 0
        while not over.wait(_PAUSE_S):
            number += 1
            began = time.perf_counter()
            change(number)
            longest[0] = max(longest[0], time.perf_counter() - began)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield longest
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main()
