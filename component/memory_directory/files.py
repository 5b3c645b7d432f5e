"""Files below the root of the memory: written as a whole or not at all, never through a link.

The functions wait for the disk and are called in worker threads. `state_of`, `check_folder` and a
short `append` without sync take a few microseconds and may be called without one. They raise
MemoryStoreError for errors of the disk.
"""

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Generic, NamedTuple, TypeVar

import anyio

from component.private import make_directory
from component.store.directory import sync_directory
from component.store.errors import StorageError

K = TypeVar("K", bound=Hashable)

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe put in place of a file never blocks


class MemoryStoreError(StorageError):
    """A file of the memory cannot be read or written; the message names it and says what to do."""


class FileState(NamedTuple):
    """The state of a file, which differs after each change; times in nanoseconds."""

    mtime: int
    ctime: int
    size: int
    inode: int


class KeyLocks(Generic[K]):
    """A lock for each key, in order of request. Unused locks are not kept."""

    def __init__(self) -> None:
        self._locks: dict[K, tuple[anyio.Lock, int]] = {}

    def __len__(self) -> int:
        """The number of locks that are held or waited for."""
        return len(self._locks)

    def __contains__(self, key: K) -> bool:
        """Whether the lock of a key is held or waited for."""
        return key in self._locks

    def hold(self, key: K) -> AbstractAsyncContextManager[None]:
        """Hold the lock of one key within the context."""
        return _Held(self._locks, key)


class _Held(Generic[K]):
    # A class, because a generator takes as long as the rest of a read from memory.
    __slots__ = ("_key", "_lock", "_locks")

    def __init__(self, locks: dict[K, tuple[anyio.Lock, int]], key: K) -> None:
        self._locks = locks
        self._key = key

    async def __aenter__(self) -> None:
        self._lock, users = self._locks.get(self._key) or (anyio.Lock(fast_acquire=True), 0)
        self._locks[self._key] = self._lock, users + 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        lock, users = self._locks.pop(self._key)
        if users > 1:
            self._locks[self._key] = lock, users - 1


def open_root(path: Path) -> Path:
    """Create the root if it does not exist; return its path without symbolic links.

    The given path may lead through symbolic links: it is the operator's.
    """
    with explained(path, "made or opened"):
        make_directory(path)
        return path.resolve(strict=True)


@functools.lru_cache(maxsize=1024)
def steps(root: Path, folder: Path) -> tuple[Path, ...]:
    """The directories from below the root to a folder in it, itself included."""
    found: list[Path] = []
    while folder != root:
        if folder == folder.parent:
            raise ValueError(f"{folder} is not below {root}")
        found.append(folder)
        folder = folder.parent
    return tuple(reversed(found))


def check_folder(root: Path, folder: Path) -> bool:
    """Whether this directory exists below the root. Raises MemoryStoreError for a symbolic link."""
    for step in steps(root, folder):
        found = _found(step)
        if found is None:
            return False
        _must_be_directory(step, found)
    return True


def make_folder(root: Path, folder: Path) -> None:
    """Create a directory below the root, with its parents, where they do not exist."""
    for step in steps(root, folder):
        found = _found(step)
        if found is None:
            with explained(step, "made"):
                with contextlib.suppress(FileExistsError):
                    step.mkdir(mode=0o700)
                sync_directory(step.parent)
                found = step.lstat()
        _must_be_directory(step, found)


def state_of(path: Path) -> FileState | None:
    """Return the state of a file, or None if it does not exist; a link is not followed."""
    found = _found(path)
    return None if found is None else _state(found)


def _found(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)  # half the time of a Path's
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise disk_error(path, "looked at", error) from error


def state_of_open(descriptor: int) -> FileState:
    """Return the state of an open file. Raises OSError."""
    return _state(os.fstat(descriptor))


def read(path: Path, limit: int) -> tuple[bytes, FileState] | None:
    """Return the content of a file and its state when it was read; None if it does not exist.

    Raises MemoryStoreError if it has more than `limit` bytes, or is a link or not a regular file.
    """
    with explained(path, "read"):
        try:
            descriptor = open_file(path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            found = os.fstat(descriptor)
            if found.st_size > limit:
                raise MemoryStoreError(
                    f"{path} has {found.st_size} bytes, and at most {limit} are read. Shorten it."
                )
            return b"".join(_pieces(descriptor, limit)), _state(found)
        finally:
            os.close(descriptor)


def replace(path: Path, data: bytes) -> None:
    """Replace a whole file: others see the old content or the new one, also after a crash.

    Each path has one writer at a time: the content is first written to `.{name}.new` beside it.
    """
    new = path.with_name(f".{path.name}.new")
    with explained(path, "written"):
        try:
            descriptor = open_file(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                _write(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            new.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def append(
    path: Path, data: bytes, *, first: Callable[[], bytes] = bytes, sync: bool = False
) -> tuple[FileState, FileState]:
    """Append lines to a file with one write; return its states before and afterwards.

    In a new or empty file, the result of `first` goes before them. An incomplete last line, left by
    a crash, is ended first. With `sync`, and if the file is new, the lines are on the disk when
    this returns. If it raises, the file is unchanged.
    """
    with explained(path, "written"):
        descriptor = open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            before = os.fstat(descriptor)
            size = before.st_size
            if not size:
                data, sync = first() + data, True
            elif os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data
            try:
                _write(descriptor, data)
                if sync:
                    os.fdatasync(descriptor)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
            if not size:
                sync_directory(path.parent)
            return _state(before), state_of_open(descriptor)
        finally:
            os.close(descriptor)


def remove(path: Path) -> bool:
    """Remove a file or a symbolic link; return whether it existed."""
    with explained(path, "removed"):
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def open_file(path: Path, flags: int) -> int:
    """Open a regular file. Raises OSError for a link, MemoryStoreError for anything else."""
    descriptor = os.open(path, flags | _FLAGS, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise MemoryStoreError(f"{path} is not a regular file; remove it.")
    return descriptor


@contextlib.contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Turn an OSError about `path` into a MemoryStoreError that says that it cannot be `what`."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, what, error) from error


def disk_error(path: Path, what: str, error: OSError) -> MemoryStoreError:
    """Return an error that says that `path` cannot be `what`, and what to do."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            why = "the disk or the quota is full. Free some space"
        case errno.ELOOP:
            why = "it is a symbolic link, and links are not followed. Put the file itself there"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            why = (
                f"{error.strerror}. Correct the owner and permissions of the file and its directory"
            )
        case errno.EEXIST | errno.ENOTDIR:
            why = "there is a file where a directory should be. Move it away"
        case errno.EISDIR:
            why = "there is a directory where a file should be. Move it away"
        case _:
            why = f"{error.strerror or error}. Check the disk"
    return MemoryStoreError(f"{path} cannot be {what}: {why}.")


def _must_be_directory(path: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise MemoryStoreError(
            f"{path} is a symbolic link, and links are not followed: they could lead to the memory"
            " of somebody else. Put the directory itself there."
        )
    if not stat.S_ISDIR(found.st_mode):
        raise MemoryStoreError(f"{path} is not a directory; move it away.")


def _state(found: os.stat_result) -> FileState:
    return FileState(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _pieces(descriptor: int, limit: int) -> Iterator[bytes]:
    while limit > 0 and (piece := os.read(descriptor, min(limit, 1 << 20))):
        limit -= len(piece)
        yield piece


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
