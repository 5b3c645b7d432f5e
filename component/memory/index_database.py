"""The file of the index: SQLite with FTS5, with one connection for writing and several for reading.

Everything in it comes from the files of the memory. So it can be deleted at any time, and is
rebuilt if it does not have the format of this release.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from component.private import open_private
from component.store.errors import StorageError, explained
from component.store.schema import transaction

if TYPE_CHECKING:
    from sqlite3 import Connection

_log = structlog.get_logger("component.memory")

FILE_NAME = ".index.db"

_SHAPE: Final = 5  # increase it with every change of the tables or of the splitting into words
_BUSY_SECONDS: Final = 5.0
_STEP_PAGES: Final = 200  # merged at a time, so that other writers do not wait long
_SECURE_DELETE: Final = (3, 42, 0)

# A group of characters begins with the number of its owner (`17_tra`), so a search cannot match
# those of another owner. For this tokenizer, everything that is not ASCII is a letter. FTS5 stores
# which memories have a group but not where, which `index_search` determines for the best ones. This
# makes the index smaller, and its merge after a deletion faster.
_TABLES: Final = """
CREATE TABLE made (shape TEXT NOT NULL) STRICT;
CREATE TABLE owners (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
    items INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE items (
    id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL, key TEXT NOT NULL,
    body TEXT NOT NULL, title TEXT NOT NULL, topic TEXT NOT NULL, tags TEXT NOT NULL,
    version INTEGER NOT NULL, versions INTEGER NOT NULL, created TEXT NOT NULL,
    updated TEXT NOT NULL, creator TEXT NOT NULL, contributor TEXT NOT NULL, taint TEXT,
    expires TEXT NOT NULL, pending INTEGER NOT NULL,
    UNIQUE (owner, key)
) STRICT;
CREATE INDEX pending ON items (id) WHERE pending;
CREATE TABLE vectors (
    id INTEGER PRIMARY KEY AUTOINCREMENT, item INTEGER NOT NULL UNIQUE, owner INTEGER NOT NULL,
    vector BLOB NOT NULL
) STRICT;
CREATE INDEX vectors_of ON vectors (owner, id);
CREATE TABLE documents (
    owner TEXT NOT NULL, name TEXT NOT NULL,
    mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
    parts INTEGER NOT NULL, error TEXT NOT NULL,
    PRIMARY KEY (owner, name)
) STRICT;
CREATE VIRTUAL TABLE texts USING fts5 (
    grams, filters, content='', detail='none', tokenize="ascii tokenchars '_'"
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab ('texts', 'row');
"""


class OpenIndex:
    """The open file, until it is rebuilt.

    Attributes:
        file_id: its device and inode.
        damaged: whether it was found damaged or removed while in use; then `renew` replaces it.
    """

    def __init__(self, writer: "Connection", file_id: tuple[int, int] | None) -> None:
        self.writer = writer
        self.file_id = file_id
        self.idle: list[Connection] = []
        self.damaged = False
        self._readers = 0
        self._closed = False
        self._change = threading.Condition()

    @contextmanager
    def used(self) -> Iterator[bool]:
        """Keep it open within the context; yield False if it is already closed."""
        with self._change:
            self._readers += 1
        try:
            yield not self._closed
        finally:
            with self._change:
                self._readers -= 1
                self._change.notify_all()

    def close(self) -> None:
        """Close all connections when no reader is left.

        A connection that SQLite closes later would remove the log of the next file, which has the
        same name.
        """
        with self._change:
            self._closed = True
            self._change.wait_for(lambda: self._readers == 0)
        while self.idle:
            self.idle.pop().close()
        self.writer.close()


class IndexDatabase:
    """The file. Its methods wait for the disk: call them in worker threads.

    Args:
        path: the file, which is created, or replaced if it has another format.
        embedder: the model of its vectors.

    Raises StorageError, also if the SQLite of this Python has no FTS5.
    """

    def __init__(self, path: Path, embedder: str = "") -> None:
        import sqlite3  # noqa: PLC0415 - loaded with the first memory

        self.path = path
        self._sqlite = sqlite3
        self._secure = sqlite3.sqlite_version_info >= _SECURE_DELETE
        self._shape = f"{_SHAPE} {embedder} {'secure' if self._secure else 'merged'}"
        self._lock = threading.Lock()
        self.opened = self._open()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self.opened.close()

    def renew(self) -> bool:
        """Replace a damaged file by an empty one. Raises StorageError.

        Return False if another thread has done it.
        """
        with self._lock:
            if not self.opened.damaged:
                return False
            self.opened.close()
            self._delete()
            self.opened = self._open()
            return True

    @contextmanager
    def reading(self) -> "Iterator[Connection]":
        """Yield a connection that sees one state of the index and does not wait for writers."""
        opened = self.opened
        with self._explained(opened), opened.used() as is_open:
            if not is_open:
                raise StorageError(f"{self.path} was replaced while it was in use.")
            self._check_exists(opened)
            try:
                connection = opened.idle.pop()
            except IndexError:
                connection = self._connect()
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
            opened.idle.append(connection)

    @contextmanager
    def writing(self) -> "Iterator[Connection]":
        """Yield a connection in a transaction. There is one at a time, so it must be short."""
        with self._lock, self._explained(self.opened):
            self._check_exists(self.opened)
            with transaction(self.opened.writer, "IMMEDIATE"):
                yield self.opened.writer

    def expunge(self) -> None:
        """Remove deleted texts and their words from the file."""
        pages = -_STEP_PAGES  # negative: begin to merge everything into one
        while not self._secure:
            with self.writing() as connection:
                before = connection.total_changes
                connection.execute("INSERT INTO texts (texts, rank) VALUES ('merge', ?)", (pages,))
                if connection.total_changes - before < 2:  # https://sqlite.org/fts5.html#merge
                    break
            pages = _STEP_PAGES
        with self._lock, self._explained(self.opened):
            # A reader of an older state keeps the log; then the next call truncates it.
            self.opened.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _file_id(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _check_exists(self, opened: OpenIndex) -> None:
        """Raise StorageError if the file was removed or replaced, which is allowed at any time."""
        if self._file_id() != opened.file_id:
            opened.damaged = True
            raise StorageError(f"{self.path} was removed while it was in use.")

    def _open(self) -> OpenIndex:
        with explained(self.path):
            try:
                writer = self._checked()
            except self._sqlite.DatabaseError as error:
                if isinstance(error, self._sqlite.OperationalError):
                    raise
                _log.warning(
                    "the index is damaged and is rebuilt", path=str(self.path), why=str(error)
                )
                self._delete()
                writer = self._checked()
        return OpenIndex(writer, self._file_id())

    def _checked(self) -> "Connection":
        # SQLite creates its other files with the mode of this one.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = self._connect()
        try:
            if not self._has_format(connection):
                connection.close()
                self._delete()
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                connection = self._connect()
                self._create(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> "Connection":
        connection = self._sqlite.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            # A crash of the machine may lose the last commits; the states of the files show that.
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA secure_delete=ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _has_format(self, connection: "Connection") -> bool:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        if "made" not in tables:
            return False
        found: list[tuple[str]] = connection.execute("SELECT shape FROM made").fetchall()
        return found == [(self._shape,)]

    def _create(self, connection: "Connection") -> None:
        try:
            connection.executescript(f"BEGIN;{_TABLES}COMMIT;")
        except self._sqlite.OperationalError as error:
            if "fts5" not in str(error):
                raise
            raise StorageError(
                f"This Python's SQLite {self._sqlite.sqlite_version} has no full-text search"
                " (FTS5), which memory needs. Use a Python whose sqlite3 module has it, as those"
                " of Debian and of python.org do."
            ) from error
        if self._secure:
            connection.execute("INSERT INTO texts (texts, rank) VALUES ('secure-delete', 1)")
        connection.execute("INSERT INTO made VALUES (?)", (self._shape,))
        self._keep_out_of_git()

    def _keep_out_of_git(self) -> None:
        # Some keep the directory under version control, which does not need the index.
        with (
            suppress(FileExistsError),
            open_private(self.path.with_name(".gitignore"), "x") as file,
        ):
            file.write(f"{FILE_NAME}*\n.*.new\n")

    def _delete(self) -> None:
        for ending in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{self.path}{ending}").unlink()

    @contextmanager
    def _explained(self, opened: OpenIndex) -> Iterator[None]:
        with explained(self.path):
            try:
                yield
            except self._sqlite.DatabaseError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                opened.damaged |= code in {self._sqlite.SQLITE_CORRUPT, self._sqlite.SQLITE_NOTADB}
                raise
