"""A disk of a service: it fails, it loses what was not synced, and a kill can hit within a call."""

import builtins
import errno
import io
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, Literal
from unittest.mock import patch

from component.store import directory
from tests.kit.process import Process, find_process
from tests.kit.unsynced import Unsynced

How = Literal["", "full", "error"]
Operation = Literal["open", "write", "part", "cut", "sync", "commit", "name", "remove"]
_SAID: Final = {"full": "database or disk is full", "error": "disk I/O error"}
_CODES: Final = {"full": sqlite3.SQLITE_FULL, "error": sqlite3.SQLITE_IOERR}
_NUMBERS: Final = {"full": errno.ENOSPC, "error": errno.EIO}
_FREE: Final = ("open", "remove", "part", "cut")
"""What a full disk still does: open, remove or shorten a file, and write what fits."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Disk:
    """What happens to the files of services below a directory.

    What others write, such as the test, never fails and is durable at once. What fails is as on a
    real disk (`test_disk_alike`), and a full one fails for a little more: for lines for which the
    last block of a file has room, and for names for which a directory has.

    Args:
        root: the directory.
        now: returns the simulated seconds.
        seed: decides what is left after the power has failed.

    Attributes:
        fails: how everything that needs the disk fails; empty if it does not.
        broken_since_start: whether it has failed since the last start of the service.
        operations: how many there were: commits of the database, writes to other files, syncs,
            files opened for writing, and changes of directories.
        boots: how often the power has failed.
        on_write: is called before each of them.
    """

    def __init__(self, root: Path, now: Callable[[], float], seed: int = 0) -> None:
        self.fails: How = ""
        self.broken_since_start = False
        self.operations = self.boots = 0
        self.on_write: Callable[[], None] = lambda: None
        self.unsynced = Unsynced(root / ".removed", now)
        self._root, self._own = f"{root}/", f"{root}/.removed"
        self._chance = Random(f"disk {seed}")
        self._armed: tuple[Process, int, Callable[[], None]] | None = None
        self._fails_once: tuple[How, int] = "", 0
        self._failed: Callable[[], None] = lambda: None

    def strike_before(self, process: Process, operations: int, call: Callable[[], None]) -> None:
        """Call a function before the operation of this number of a process, from 1.

        That happens within a call of the service, and the function cannot wait. It replaces another
        one that was not called yet.
        """
        self._armed = process, self.operations + operations, call

    def disarm(self) -> None:
        """Call no function, and let no single operation fail."""
        self._armed, self._fails_once = None, ("", 0)

    def fail_once(
        self, operations: int, how: How, failed: Callable[[], None] = lambda: None
    ) -> None:
        """Let the operation of this number fail, from 1, and call `failed` then."""
        self._fails_once, self._failed = (how, self.operations + operations), failed

    def copied(self, path: Path, copy: Path, *, power_fails: bool) -> list[str]:
        """Let a copy of a directory take its place, after a process or the whole machine has
        stopped. Returns what was lost.
        """
        if power_fails:
            self.boots += 1
            return self.unsynced.lose(path, copy, self._chance)
        self.unsynced.moved(path, copy)
        return []

    def operate(self, operation: Operation) -> bool:
        """Count an operation of the current task; return whether what it does counts.

        Raises OSError.
        """
        process = find_process()
        if process is None or not process.is_alive:
            return False
        self.operations += 1
        self.on_write()
        if not process.is_alive:
            return False
        if self._armed is not None:
            armed, number, call = self._armed
            if armed is process and self.operations >= number:
                self._armed = None
                call()
                return False
        how, number = self._fails_once
        if how and self.operations >= number:
            self._fails_once = "", 0
            self.broken_since_start = True
            self._failed()
        else:
            how = self.fails
        if how == "error" or (how == "full" and operation not in _FREE):
            raise OSError(_NUMBERS[how], os.strerror(_NUMBERS[how]))
        return True

    @property
    def is_full(self) -> bool:
        """Whether it is full for the current task."""
        process = find_process()
        return self.fails == "full" and process is not None and process.is_alive

    def path(self, name: Any, folder: int | None = None) -> str:
        """Return the absolute path of a name; empty if it is not on this disk."""
        path = os.fspath(name)
        if not isinstance(path, str):
            return ""
        if not path.startswith("/"):
            # What a link of /proc says is a path, too.
            here = Path.cwd() if folder is None else Path(f"/proc/self/fd/{folder}").readlink()
            path = str(here / path)
        return path if path.startswith(self._root) and not path.startswith(self._own) else ""


class _Connection(sqlite3.Connection):
    """A connection whose commits are operations of the disk. They are synced when they return.

    What makes a new journal or write-ahead log syncs the directory, too: the first commit, and the
    choice of that log for a new database.
    """

    disk: Disk

    def __init__(self, database: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(database, *arguments, **options)
        self._path = self.disk.path(database)
        self._changes = 0
        self._is_new = True
        if self._path:
            self.disk.unsynced.forget(self._path)

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.total_changes != self._changes:
            counts = self._operate()
            done = super().execute(sql, *arguments)
            if counts and self._is_new:
                self._is_new = False
                self._sync_directory()
            return done
        if sql.startswith("PRAGMA synchronous"):
            # Only this disk loses anything, and to sync the real one takes most of the time.
            sql = "PRAGMA synchronous = OFF"
        elif sql.startswith("BEGIN"):
            self._changes = self.total_changes
        elif sql.startswith("PRAGMA journal_mode") and not Path(self._path).stat().st_size:
            self._operate()  # it writes the first page
            self._sync_directory()
        return super().execute(sql, *arguments)

    def _operate(self) -> bool:
        try:
            return self.disk.operate("commit")
        except OSError as error:
            how = "full" if error.errno == errno.ENOSPC else "error"
            raised = sqlite3.OperationalError(_SAID[how])
            raised.sqlite_errorcode = _CODES[how]
            raise raised from None

    def _sync_directory(self) -> None:
        if self._path:
            self.disk.unsynced.synced_directory(str(Path(self._path).parent))


class _File(io.FileIO):
    """A file whose writes are operations of the disk."""

    def write(self, data: Any, /) -> int:
        return os.write(self.fileno(), data)

    def truncate(self, size: int | None = None, /) -> int:
        length = self.tell() if size is None else size
        os.ftruncate(self.fileno(), length)
        return length


class _Calls:
    """The functions of `os` that write, as services see them."""

    def __init__(self, disk: Disk) -> None:
        self._disk, self._unsynced = disk, disk.unsynced
        self._os = {name: getattr(os, name) for name in _PATCHED}
        self._file = io.open
        self._filled: set[int] = set()
        """The open files of which a full disk has written what fits."""

    def open(self, name: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """See `os.open`."""
        path = self._disk.path(name, dir_fd) if flags & _WRITES else ""
        if not path or flags & os.O_TMPFILE == os.O_TMPFILE:
            return int(self._os["open"](name, flags, mode, dir_fd=dir_fd))
        is_there = os.path.lexists(path)
        counts = self._disk.operate("open" if is_there else "name")
        if counts and not (flags & os.O_EXCL and is_there):
            self._unsynced.opens(path, flags)
        elif not counts:
            self._unsynced.forget(path)
        descriptor = int(self._os["open"](name, flags, mode, dir_fd=dir_fd))
        self._filled.discard(descriptor)
        if counts:
            self._unsynced.opened(descriptor)
        return descriptor

    def write(self, descriptor: int, data: Any) -> int:
        """See `os.write`."""
        return self._written("write", descriptor, data)

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        """See `os.pwrite`."""
        return self._written("pwrite", descriptor, data, offset)

    def ftruncate(self, descriptor: int, *arguments: Any) -> None:
        """See `os.ftruncate`."""
        self._written("ftruncate", descriptor, *arguments)

    def fsync(self, descriptor: int) -> None:
        """See `os.fsync`; the real disk is not synced."""
        if self._disk.operate("sync"):
            self._unsynced.synced(descriptor)

    fdatasync = fsync

    def replace(self, name: Any, to: Any, **folders: Any) -> None:
        """See `os.replace`."""
        path, target = self._disk.path(name), self._disk.path(to)
        if path and target and self._disk.operate("name"):
            self._unsynced.renames(path, target)
        self._os["replace"](name, to, **folders)

    rename = replace

    def unlink(self, name: Any, *, dir_fd: int | None = None) -> None:
        """See `os.unlink`."""
        path = self._disk.path(name, dir_fd)
        if path and self._disk.operate("remove"):
            self._unsynced.removes(path)
        self._os["unlink"](name, dir_fd=dir_fd)

    remove = unlink

    def mkdir(self, name: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """See `os.mkdir`."""
        path = self._disk.path(name, dir_fd)
        counts = path and self._disk.operate("name")
        self._os["mkdir"](name, mode, dir_fd=dir_fd)
        if counts:
            self._unsynced.made(path)

    def rmdir(self, name: Any, *, dir_fd: int | None = None) -> None:
        """See `os.rmdir`."""
        path = self._disk.path(name, dir_fd)
        counts = path and self._disk.operate("remove")
        self._os["rmdir"](name, dir_fd=dir_fd)
        if counts:
            self._unsynced.removed_directory(path)

    def open_file(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """See `io.open`."""
        if set(mode).isdisjoint("wax+") or not self._is_here(file):
            return self._file(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _File(file, mode.replace("t", ""), closefd, opener or _open_file)
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding, errors, newline)

    def _is_here(self, file: Any) -> bool:
        return self._unsynced.knows(file) if isinstance(file, int) else bool(self._disk.path(file))

    def _written(self, function: str, descriptor: int, given: Any, *arguments: Any) -> int:
        is_here = self._unsynced.knows(descriptor)
        operation: Operation = "write"
        if is_here and function == "ftruncate":
            operation = "cut" if given <= os.fstat(descriptor).st_size else "write"
        elif is_here and self._fits_in_part(descriptor, len(given)):
            operation, given = "part", memoryview(given)[: len(given) // 2]
        counts = is_here and self._disk.operate(operation)
        done = self._os[function](descriptor, given, *arguments)
        if counts:
            self._unsynced.wrote(descriptor)
        return int(done or 0)

    def _fits_in_part(self, descriptor: int, length: int) -> bool:
        """Return whether a part of it is written, after which the next write fails.

        Nothing fits into an empty file: it has no block.
        """
        fits = length > 1 and os.fstat(descriptor).st_size > 0
        if not self._disk.is_full or not fits or descriptor in self._filled:
            self._filled.discard(descriptor)
            return False
        self._filled.add(descriptor)
        return True


_PATCHED: Final = (
    *("open", "write", "pwrite", "ftruncate", "fsync", "fdatasync"),
    *("replace", "rename", "unlink", "remove", "mkdir", "rmdir"),
)


def _open_file(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CLOEXEC, 0o666)


@contextmanager
def simulated_disk(root: Path, now: Callable[[], float], seed: int = 0) -> Iterator[Disk]:
    """Let all services of the context write to a disk that can fail; see `Disk`."""
    disk = Disk(root, now, seed)

    class Connection(_Connection):
        pass

    Connection.disk = disk
    connect, calls = sqlite3.connect, _Calls(disk)

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, factory=Connection, **options)

    with ExitStack() as stack:
        stack.enter_context(patch.object(sqlite3, "connect", connected))
        for name in _PATCHED:
            stack.enter_context(patch.object(os, name, getattr(calls, name)))
        stack.enter_context(patch.object(directory, "boot_id", lambda: f"boot {disk.boots}"))
        for module in (io, builtins):
            stack.enter_context(patch.object(module, "open", calls.open_file))
        yield disk
