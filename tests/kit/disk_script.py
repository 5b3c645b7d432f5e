"""What a service does with its files in a short life, and what is left of them afterwards.

`test_disk_alike` lets it happen on the simulated disk, and in processes that are killed.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from component.audit.files import LogWriter
from component.memory_directory import files
from component.private import make_directory
from component.store.database import Database
from component.store.directory import home_of, locked
from component.store.errors import StorageError
from component.store.schema import Schema, Table
from component.store.sqlite import SQLite
from component.store.tables import TABLES
from component.store.writes import Queued

_NOTES: Final = Table(name="notes", columns="n INTEGER PRIMARY KEY, text TEXT NOT NULL")
SCHEMA: Final = Schema((*TABLES, _NOTES))
_OWN: Final = ("-journal", "-wal", "-shm")
"""The ends of the names of what SQLite has beside a database."""


def note(number: int, text: str = "said") -> Callable[[Database], None]:
    """Return an operation that writes a row."""

    def op(database: Database) -> None:
        database.execute("INSERT INTO notes (n, text) VALUES (?, ?)", (number, text))

    return op


def write(database: SQLite, op: Callable[[Database], Any]) -> None:
    """Write as the storage does. Raises what its caller gets."""
    queued = Queued(op)
    database.commit([queued])
    if (error := queued.error or queued.refused) is not None:
        raise error


@contextmanager
def opened(data: Path) -> Iterator[SQLite]:
    """Open a data directory, in the order of `Storage.open`."""
    with locked(data):
        database = SQLite.open(data / "agent.db", SCHEMA)
        try:
            home_of(data)
            yield database
        finally:
            database.close()


def live(data: Path) -> None:
    """Open the directory; write rows, lines of the audit log and files of a memory; close it."""
    with opened(data) as database:
        write(database, note(1))
        audit = data / "audit"
        make_directory(audit)
        log = LogWriter(audit, max_bytes=20)
        log.append(b'{"seq":1}\n', 1, "2026-11-20")
        write(database, note(2))
        log.append(b'{"seq":2}\n', 2, "2026-11-20")
        log.append(b'{"seq":3}\n', 3, "2026-11-20")
        log.close()
        files.make_folder(data, data / "memory" / "juliet")
        history = data / "memory" / "juliet" / "history.jsonl"
        files.append(history, b'{"text":"one"}\n')
        files.append(history, b'{"text":"two"}\n')
        summary = history.with_name("summary.md")
        files.replace(summary, b"first")
        files.replace(summary, b"second")
        write(database, lambda rows: rows.execute("DELETE FROM notes WHERE n = 1"))
        files.remove(history)


def left(data: Path) -> tuple[tuple[str, str], ...]:
    """Return what is there after a process has ended, and what the next start makes of it.

    Files have their contents; a database has its rows; what differs in each run has its name.
    """
    there = {
        path.relative_to(data).as_posix(): _content(path)
        for path in sorted(data.rglob("*"))
        if not path.name.endswith(_OWN)
    }
    try:
        with opened(data) as database, database.reading() as rows:
            found = rows.execute("SELECT count(*) FROM notes").fetchall()
            next_start = f"opened with {found[0][0]} notes"
    except StorageError as error:
        next_start = f"{type(error).__name__}: {error}"
    return (*there.items(), ("next start", next_start))


def _content(path: Path) -> str:
    if path.is_dir():
        return "a directory"
    if path.suffix == ".db":
        return _rows(path) if path.stat().st_size else "empty"
    content = path.read_bytes()
    if content and path.name in ("agent.lock", "home", "home.new"):
        return f"{'process' if path.suffix else 'directory'} {len(content) > 1}"
    return repr(content)


def _rows(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database:
        is_new = not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return "new" if is_new else str(database.execute("SELECT n FROM notes").fetchall())


def contents(data: Path) -> dict[str, bytes]:
    """Return the content of each file, and nothing for a directory.

    What SQLite shares of its memory is left out.
    """
    found = {}
    for path in data.rglob("*"):
        if not path.name.endswith("-shm"):
            found[path.name] = b"" if path.is_dir() else path.read_bytes()
    return found
