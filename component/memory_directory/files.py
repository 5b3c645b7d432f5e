"""Files as memory needs them: whole or not at all, inside the root, and never through a link.

All of these wait for the disk, so they are called in worker threads; `seen`, `check_folder` and a
short `append` that is not synced take a few microseconds and may be called without one.
Everything here raises MemoryStoreError when the disk refuses.
"""

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from component.private import make_directory
from component.storage.errors import StorageError

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe put in place of a file never blocks


class MemoryStoreError(StorageError):
    """A file of the memory cannot be read or written; the message names it and says what to do."""


class Seen(NamedTuple):
    """What tells one state of a file from another; times in nanoseconds."""

    mtime: int
    ctime: int
    size: int
    inode: int


def open_root(path: Path) -> Path:
    """Make the directory of all memory if it is missing; returns where it really is.

    The path itself may lead through symbolic links: it is the operator's.
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
    """Whether there is such a directory below the root, reached through no symbolic link."""
    for step in steps(root, folder):
        with explained(step, "opened"):
            try:
                found = step.lstat()
            except FileNotFoundError:
                return False
        _must_be_directory(step, found)
    return True


def make_folder(root: Path, folder: Path) -> None:
    """Make a directory below the root, and those above it, as far as they are missing."""
    for step in steps(root, folder):
        with explained(step, "made"):
            try:
                found = step.lstat()
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    step.mkdir(mode=0o700)
                sync_folder(step.parent)
                found = step.lstat()
        _must_be_directory(step, found)


def seen(path: Path) -> Seen | None:
    """The state of a file, or None if there is none; a link is not followed."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise refused(path, "looked at", error) from error
    return seen_as(found)


def state(descriptor: int) -> Seen:
    """The state of an open file. Raises OSError."""
    return seen_as(os.fstat(descriptor))


def read(path: Path, limit: int) -> tuple[bytes, Seen] | None:
    """The content of a file of `limit` bytes at most, and the state it had; None if there is none.

    Raises MemoryStoreError for more, for a link, and for what is no file.
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
            return b"".join(_pieces(descriptor, limit)), seen_as(found)
        finally:
            os.close(descriptor)


def replace(path: Path, data: bytes) -> None:
    """Write a whole file: others see the old content or the new, also after a crash.

    One writer at a time for each path: the new content is first written to `.{name}.new` beside it.
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
        sync_folder(path.parent)


def append(
    path: Path, data: bytes, *, first: Callable[[], bytes] = bytes, sync: bool = False
) -> Seen:
    """Add lines to a file with one write; returns its state afterwards.

    What `first` gives goes before them if the file is empty or new. A last line that a crash has
    cut in the middle is ended first. With `sync`, and whenever the file is new, they are on the
    disk when this returns. If it raises, the file is as it was.
    """
    with explained(path, "written"):
        descriptor = open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
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
                sync_folder(path.parent)
            return state(descriptor)
        finally:
            os.close(descriptor)


def remove(path: Path) -> bool:
    """Remove a file, or the link in its place; False if there was none."""
    with explained(path, "removed"):
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def sync_folder(folder: Path) -> None:
    """Have the names in a directory on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_file(path: Path, flags: int) -> int:
    """Open a regular file and no link to one. Raises OSError, MemoryStoreError for what is none."""
    descriptor = os.open(path, flags | _FLAGS, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise MemoryStoreError(f"{path} is no file. Remove what is there in its place.")
    return descriptor


@contextlib.contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Turn an OSError about `path` into a MemoryStoreError: it cannot be `what`."""
    try:
        yield
    except OSError as error:
        raise refused(path, what, error) from error


def refused(path: Path, what: str, error: OSError) -> MemoryStoreError:
    """The error that says that `path` cannot be `what`, and what to do."""
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
        raise MemoryStoreError(f"{path} is no directory. Move away what is there in its place.")


def seen_as(found: os.stat_result) -> Seen:
    """What `found` says of the state of a file."""
    return Seen(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _pieces(descriptor: int, limit: int) -> Iterator[bytes]:
    while limit > 0 and (piece := os.read(descriptor, min(limit, 1 << 20))):
        limit -= len(piece)
        yield piece


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
