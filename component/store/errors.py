"""Errors of the storage, with messages that say how to correct them."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final


class StorageError(Exception):
    """The data directory or database cannot be used; the message says how to correct that.

    `is_logged` says that the log has the outage of the database that is the reason.
    """

    is_logged = False


class DirectoryInUseError(StorageError):
    """Another process uses the data directory, most likely the service itself."""


class OutdatedError(StorageError):
    """An older release wrote the database, and an upgrade has to come first."""


class UnavailableError(StorageError):
    """The database runs no transactions at the moment, whatever the operation."""


class ConnectionLostError(UnavailableError):
    """The connection broke, or the server ended the session: the transaction may be run again."""


class DiskFullError(StorageError):
    """The disk of the database is full."""


class ConflictError(StorageError):
    """Transactions waited for each other's rows, and the database ended this one (a deadlock)."""


class UnstorableError(ValueError):
    """The database cannot store a value of the operation. Retrying does not help."""

    def __init__(self, reason: object) -> None:
        """Build the message; `reason` is the error of the database or its driver."""
        text = " ".join(str(reason).split()).rstrip(".")
        super().__init__(
            f"The database cannot store a value of this operation: {text}. Nothing was written."
            " Shorten or change that value; repeating the operation does not help."
        )


# Codes of SQLite, without the import: https://www.sqlite.org/rescode.html
_FULL: Final = 13
_IOERR_SHMSIZE: Final = 4874
"""SQLite has found no room for the memory that its connections share, 32 KiB in a file."""
_SPACE: Final = "the disk or the quota is full. Free some space"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and the file system to a StorageError about `path`.

    Errors that only a bug in this program can cause (an invalid statement, a violated constraint)
    are not converted.
    """
    import sqlite3  # noqa: PLC0415 - imported only when the storage is opened

    try:
        yield
    except sqlite3.Error as error:
        if (found := sqlite_error(path, error)) is None:
            raise
        raise found from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"The data directory needs {path}, which cannot be written: {_SPACE}."
            ) from error
        raise StorageError(
            f"The data directory needs {path}, which cannot be created or opened:"
            f" {_what_is_there(error)}. Correct its owner and permissions, or set path in"
            " [storage] to a directory on a local disk that this user may write to."
        ) from error


def sqlite_error(path: Path, error: BaseException) -> StorageError | None:
    """Return what to raise in place of an error of the database at `path`; None if a bug in this
    program caused it.
    """
    code = getattr(error, "sqlite_errorcode", None)
    why = None if code is None else _explain(code)
    if code is None or why is None:
        return None
    kind = DiskFullError if _is_full(code) else StorageError
    return kind(f"The database {path} {why} (SQLite says: {error}).")


def _is_full(code: int) -> bool:
    return code & 0xFF == _FULL or code == _IOERR_SHMSIZE


def _what_is_there(error: OSError) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "there is a file where a directory should be"
    return error.strerror or str(error)


def _explain(code: int) -> str | None:
    import sqlite3  # noqa: PLC0415

    if _is_full(code):
        return f"cannot grow: {_SPACE}"
    # The primary result code is the low byte.
    match code & 0xFF:
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return (
                "is damaged or not an SQLite database. Move it away together with its -wal and"
                " -shm files, and restore a backup or let the service create a new database"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return (
                "cannot be opened for writing. Correct the owner and permissions of the file"
                " and its directory"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "is locked by another process. Stop the program that has it open"
        case sqlite3.SQLITE_IOERR:
            return "cannot be read or written. Check the disk, and that it is a local one"
    return None
