"""The working directories of confined children, in one directory of each running service.

A service that is killed cannot remove its own. So each locks its directory while it runs, and the
next one of the same user removes those that nobody locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "xmpp-agent-skills-"


class WorkDirectories:
    """Makes working directories. Methods block.

    Raises OSError if no directory can be made.
    """

    def __init__(self) -> None:
        _remove_stale()
        self._path, self._lock = _make()

    def new(self) -> str:
        """Return a new empty directory. Raises OSError."""
        return tempfile.mkdtemp(dir=self._path)

    def close(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def _make() -> tuple[str, int]:
    """Make a directory, and lock it."""
    while True:
        path = tempfile.mkdtemp(prefix=_PREFIX)
        lock = _locked(path)
        # Another service may have removed it before it was locked.
        if lock is not None and _is_at(lock, path):
            # Children can have other user ids.
            os.chmod(path, 0o711)  # noqa: PTH101, S103 - a string; it has no names to read
            return path, lock
        if lock is not None:
            os.close(lock)


def _remove_stale() -> None:
    """Remove the directories of services of this user that have ended."""
    for found in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if found.lstat().st_uid != os.geteuid():
                continue
            lock = _locked(str(found))
            if lock is not None:
                shutil.rmtree(found, ignore_errors=True)
                os.close(lock)


def _locked(path: str) -> int | None:
    """Lock a directory, and return its descriptor; None if it is locked, or no directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False
