"""A lock that limits a data directory to one process; the kernel releases it when that ends."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final, Self

from component.storage.errors import DirectoryInUseError

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The id of the current boot on Linux."""


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
        """Release the lock."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
