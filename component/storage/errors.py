"""What can go wrong on disk, in sentences that say how to mend it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StorageError(Exception):
    """The data directory cannot be used; the message names it and says how to mend it."""


class DirectoryInUseError(StorageError):
    """Another process has the data directory: most likely the service itself."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the disk does to us into a StorageError about `path`.

    Errors that only a mistake in this program can cause (a bad statement, a broken constraint)
    pass as they are.
    """
    import sqlite3  # noqa: PLC0415 - imported by whoever opens the storage

    try:
        yield
    except sqlite3.Error as error:
        if (sentence := sqlite_sentence(path, error)) is None:
            raise
        raise StorageError(sentence) from error
    except OSError as error:
        raise StorageError(
            f"The data directory needs {path}, which cannot be made or opened:"
            f" {_what_is_there(error)}. Mend its owner and permissions, or set path in [storage] to"
            " a directory on a local disk that this user may write to."
        ) from error


def sqlite_sentence(path: Path, error: BaseException) -> str | None:
    """Say what the disk did to the database at `path`; None if the error is of another kind."""
    code = getattr(error, "sqlite_errorcode", None)
    why = None if code is None else _explain(code)
    return None if why is None else f"The database {path} {why} (SQLite says: {error})."


def _what_is_there(error: OSError) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "there is a file where a directory should be"
    return error.strerror or str(error)


def _explain(code: int) -> str | None:
    import sqlite3  # noqa: PLC0415

    # The primary result code is the low byte, https://www.sqlite.org/rescode.html
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return "cannot grow: the disk or the quota is full. Free some space"
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return (
                "is damaged or no SQLite database. Move it away together with its -wal and -shm"
                " files, and put a backup in its place or let a new one be made"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return (
                "cannot be opened for writing. Mend the owner and permissions of it and of its"
                " directory"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "is held by another process. Stop the program that has it open"
        case sqlite3.SQLITE_IOERR:
            return "cannot be read or written. Check the disk, and that it is a local one"
    return None
