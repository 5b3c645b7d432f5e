"""The data directory: its lock, which limits it to one process, and its id."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from component import system
from component.private import make_directory, open_private
from component.store.errors import DirectoryInUseError, StorageError, explained

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The id of the current boot on Linux."""
_NAME: Final = "home"
_ID: Final = re.compile(rb"[0-9a-f]{32}")


def boot_id() -> str:
    """The unique id of the current boot; "" if unknown."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


class DirectoryLock:
    """An exclusive lock on a directory, held until `release` or the end of the process.

    The file `agent.lock` is not removed: otherwise two processes could lock two files of the
    same name. It contains the process id of the holder, for people and for the error below.
    """

    def __init__(self, descriptor: int) -> None:
        """Use `acquire`; `descriptor` is that of the locked file."""
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, directory: Path) -> Self:
        """Lock the directory.

        Raises DirectoryInUseError with the holder's process id if another process has it, and
        OSError if the file cannot be created or the file system does not support locks.
        """
        descriptor = os.open(directory / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # The holder may not have written its id yet.
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                who = f"process {holder}" if holder.isdecimal() else "another process"
                raise DirectoryInUseError(
                    f"The data directory {directory} is in use by {who}. Stop that process, or"
                    " use another directory: set path in [storage]."
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            stack.pop_all()
        return cls(descriptor)

    @property
    def place(self) -> str | None:
        """Identifies the locked file and the running kernel; None if unknown.

        The holder of a place knows that the previous holder has ended or has released it: while a
        process has the file open, no other file of that kernel has its numbers, and no other
        kernel has that boot id. A copy of the directory or a shared disk gets a different place.
        """
        boot = boot_id()
        file = os.fstat(self._descriptor)
        return f"{boot}/{file.st_dev}/{file.st_ino}" if boot else None

    def release(self) -> None:
        """Release the lock, also if the disk fails: a lock that nobody holds is free, whatever the
        file contains.
        """
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[DirectoryLock]:
    """Hold the lock of a data directory, which is made if it is missing. Raises StorageError."""
    with explained(directory):
        make_directory(directory)
    with explained(directory / "agent.lock"):
        lock = DirectoryLock.acquire(directory)
    try:
        yield lock
    finally:
        lock.release()


def home_of(directory: Path) -> str:
    """Return the id of the data directory; create it at the first call.

    Rows that belong to this directory, and not to other processes that share the database, have
    this id. Blocks. Raises StorageError, also if the file is damaged: with another id, nobody would
    continue what this directory has begun.
    """
    path = directory / _NAME
    with explained(path):
        try:
            found = path.read_bytes().strip()
        except FileNotFoundError:
            found = system.token_hex(16).encode()
            fresh = path.with_suffix(".new")
            with open_private(fresh, "wb") as file:
                file.write(found + b"\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
            sync_directory(directory)
    if _ID.fullmatch(found) is None:
        raise StorageError(
            f"The file {path} is damaged: it should have 32 hexadecimal digits, the id of the data"
            " directory. Put it back from a backup. If there is none, delete the file: a new id is"
            " made, and conversations and notifications that have not ended are not continued."
        )
    return found.decode()


def sync_directory(directory: Path) -> None:
    """Sync a directory after files were created in or removed from it. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_used(directory: Path) -> bool:
    """Whether a service has used the data directory before. Blocks."""
    return (directory / _NAME).exists()


_ROOM_BYTES: Final = 1_000_000


def has_room(directory: Path) -> bool:
    """Return whether the disk of a directory has space for more than a few transactions."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return True  # the next write says what is wrong
    return disk.f_bavail * disk.f_frsize >= _ROOM_BYTES
