"""The files as they are written: appended, synced, begun anew by size and day.

Everything here blocks, and is used by one thread at a time.
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
    """Appends to the record.

    What is appended is on disk when the method returns. After an error the file counts for as much
    as before: the next attempt writes over what was written in part. It also opens the file anew,
    because what a failed sync has left is not known.

    Args:
        directory: where the files are; it exists.
        path: the file to go on with, None to begin one.
        size: how much of it counts.
        day: the day of it, as lines have it.
        max_bytes: from what size on a new file is begun.
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
        """Write lines, of which the first has the number `first`; return if that began a file.

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
        """Give the file back; another `append` opens it again."""
        self._close()

    def _begin(self, path: Path, day: str) -> None:
        descriptor = os.open(path, _CREATE | os.O_TRUNC, 0o600)
        self._descriptor, self._path, self._size, self._day = descriptor, path, 0, day
        sync_directory(self.directory)

    def _write(self, lines: bytes) -> None:
        if self._descriptor is None:
            assert self._path is not None, "a file was begun"
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
    """Have it on disk that files were made in it or taken from it. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def failing(directory: Path) -> Iterator[None]:
    """Turn what the disk does to us into a StorageError."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise StorageError(
            f"The record cannot be written: {directory} is a file and should be a directory. Move"
            " it away."
        ) from error
    except OSError as error:
        raise StorageError(
            f"The record in {directory} cannot be written: {error.strerror or error}. Free some"
            f" space there, or mend the disk and the permissions; `{DIRECTORY}` is part of the data"
            " directory."
        ) from error
