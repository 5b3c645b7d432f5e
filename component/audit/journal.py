"""Writes the files of the audit log: appends, syncs, rotates by size and day.

All functions block, and are called by one thread at a time.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from component.audit.files import DIRECTORY, name_of
from component.storage import StorageError

_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Journal:
    """Appends to the audit log.

    Appended lines are on disk when the method returns. After an error, the valid size of the file
    is unchanged: the next attempt overwrites partly written lines. It also reopens the file,
    because the state after a failed sync is unknown.

    Args:
        directory: the existing directory of the files.
        path: the file to continue, None to start one.
        size: its valid size in bytes.
        day: its day, in the format of lines.
        max_bytes: the size at which a new file is started.
    """

    def __init__(
        self,
        directory: Path,
        path: Path | None = None,
        size: int = 0,
        day: str = "",
        max_bytes: int = 67_108_864,
    ) -> None:
        self.directory = directory
        self._path = path
        self._size = size
        self._day = day
        self._max_bytes = max_bytes
        self._descriptor: int | None = None

    def append(self, lines: bytes, first: int, day: str) -> bool:
        """Write lines, the first with the number `first`; return whether that started a file.

        Raises StorageError.
        """
        with failing(self.directory):
            begins = self._path is None or (
                self._size > 0 and (self._size + len(lines) > self._max_bytes or day != self._day)
            )
            if begins:
                self._close()
                self._begin(self.directory / name_of(first), day)
            try:
                self._write(lines)
            except BaseException:
                self._close()
                raise
            return begins

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        self._close()

    def _begin(self, path: Path, day: str) -> None:
        descriptor = os.open(path, _CREATE | os.O_TRUNC, 0o600)
        self._descriptor, self._path, self._size, self._day = descriptor, path, 0, day
        sync_directory(self.directory)

    def _write(self, lines: bytes) -> None:
        if self._descriptor is None:
            assert self._path is not None, "a file was started"
            self._descriptor = os.open(self._path, _CREATE, 0o600)
        at, left = self._size, memoryview(lines)
        while left:
            written = os.pwrite(self._descriptor, left, at)
            at, left = at + written, left[written:]
        os.fsync(self._descriptor)
        self._size = at

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def sync_directory(directory: Path) -> None:
    """Sync a directory after files were created in or removed from it. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def failing(directory: Path) -> Iterator[None]:
    """Convert errors of the file system to StorageError."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise StorageError(
            f"The audit log cannot be written: {directory} is a file and should be a directory."
            " Move it away."
        ) from error
    except OSError as error:
        raise StorageError(
            f"The audit log in {directory} cannot be written: {error.strerror or error}. Free some"
            f" space, or check the disk and the permissions; `{DIRECTORY}` is part of the data"
            " directory."
        ) from error
