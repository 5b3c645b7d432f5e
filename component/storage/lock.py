"""One process to a data directory: a lock that the system takes back when the process ends."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final, Self

from component.storage.errors import DirectoryInUseError

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""What Linux calls itself until it ends."""


class DirectoryLock:
    """An exclusive lock on a directory, held until `release` or the end of the process.

    The file `agent.lock` stays behind: removing it would let two processes lock two files of the
    same name. It holds the process id of its holder, for people and for the error below.
    """

    def __init__(self, descriptor: int) -> None:
        """Keep the descriptor of a file that is locked; `acquire` makes one."""
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, directory: Path) -> Self:
        """Lock the directory.

        Raises StorageError naming the holder's process id if another one has it, and OSError if
        the file cannot be made or the file system knows no locks.
        """
        descriptor = os.open(directory / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # The holder may not have come to writing its id yet.
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                who = f"process {holder}" if holder.isdecimal() else "another process"
                raise DirectoryInUseError(
                    f"The data directory {directory} is in use by {who}. Stop that one, or give"
                    " this one a directory of its own: path in [storage]."
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            stack.pop_all()
        return cls(descriptor)

    @property
    def place(self) -> str | None:
        """Which file of which running kernel is locked; None where nobody can tell.

        Who holds a place knows that whoever held it before has ended or has let go: while a
        process has the file open, no other file of that kernel has its numbers, and no other
        kernel has that boot id. Neither a copy of the directory nor a shared disk looks the same.
        """
        try:
            boot = _BOOT_ID.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
        file = os.fstat(self._descriptor)
        return f"{boot}/{file.st_dev}/{file.st_ino}" if boot else None

    def release(self) -> None:
        """Let others have the directory."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
