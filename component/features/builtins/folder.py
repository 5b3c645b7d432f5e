"""A folder for the files of one owner, out of which no path leads: no `..`, no symbolic links, and
limits of size and number.

Each directory is opened relative to the one above it, without following links, so that nothing
depends on a path that could change in between.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from component.skills.errors import SkillError

_NAME: Final = re.compile(r"(?![\s.])[^/\\:\x00-\x1f\x7f\ud800-\udfff]{1,100}(?<![\s.])")
_DEEPEST: Final = 6
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class FolderError(SkillError):
    """Something cannot be done. The text is a sentence for the caller."""


class FileEntry(msgspec.Struct, frozen=True):
    """A file: its path in the folder, its size in bytes, and when it was changed (UTC)."""

    path: str
    size: int
    changed: str


class FolderLimits(msgspec.Struct, frozen=True):
    """Limits of a folder: bytes of all files, number of files, and bytes of one file."""

    bytes: int
    files: int
    file_bytes: int


class Folder:
    """The files of one owner. Its methods block, so they are called in a thread.

    Args:
        root: the directory, which is created with the first file.
        lock: held while something is written.
    """

    def __init__(self, root: Path, limits: FolderLimits, lock: threading.Lock) -> None:
        self._root = root
        self._limits = limits
        self._lock = lock

    def entries(self) -> list[FileEntry]:
        """Return all files, in the order of their paths."""
        if not self._root.exists():
            return []
        with self._opened(()) as root:
            return sorted(self._entries(root, "", 0), key=lambda entry: entry.path)

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises FolderError."""
        *above, name = _parts(path)
        with self._told(path), self._opened(above) as directory:
            descriptor = os.open(name, os.O_RDONLY | _FILE, dir_fd=directory)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise FolderError(f"{path} is not a file.")
                data = file.read(self._limits.file_bytes + 1)
        if len(data) > self._limits.file_bytes:
            raise FolderError(f"{path} has more than {self._limits.file_bytes:,} bytes.")
        return data

    def write(self, path: str, data: bytes, *, append: bool) -> int:
        """Create a file, or append to one, and return its new size. Raises FolderError if it exists
        and nothing is to be appended, or if a limit is exceeded.
        """
        *above, name = _parts(path)
        with self._lock, self._told(path):
            entries = {entry.path: entry.size for entry in self.entries()}
            size = entries.get(path, 0) + len(data)
            self._check(path, entries, size, len(data))
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._opened(above, create=True) as directory:
                how = os.O_APPEND if append else os.O_EXCL
                descriptor = os.open(
                    name, os.O_WRONLY | os.O_CREAT | how | _FILE, 0o600, dir_fd=directory
                )
                with os.fdopen(descriptor, "wb") as file:
                    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        raise FolderError(f"{path} is not a file.")
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.fsync(directory)
        return size

    def delete(self, path: str) -> None:
        """Delete a file, and directories above it that are empty then. Raises FolderError."""
        *above, name = _parts(path)
        with self._lock:
            with self._told(path), self._opened(above) as directory:
                os.unlink(name, dir_fd=directory)  # a link, not what it leads to
                os.fsync(directory)
            for depth in range(len(above), 0, -1):
                with suppress(OSError), self._opened(above[: depth - 1]) as directory:
                    os.rmdir(above[depth - 1], dir_fd=directory)

    def _check(self, path: str, entries: dict[str, int], size: int, more: int) -> None:
        limits = self._limits
        if size > limits.file_bytes:
            raise FolderError(f"{path} would have {size:,} bytes, over {limits.file_bytes:,}.")
        if path not in entries and len(entries) >= limits.files:
            raise FolderError(f"There are {len(entries)} files already, which is the maximum.")
        if sum(entries.values()) + more > limits.bytes:
            raise FolderError(f"All files together would have more than {limits.bytes:,} bytes.")

    @contextmanager
    def _opened(self, above: Sequence[str], *, create: bool = False) -> Iterator[int]:
        """Yield the descriptor of a directory below the root."""
        descriptor = os.open(self._root, _DIRECTORY)
        try:
            for name in above:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=descriptor)
                below = os.open(name, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _entries(self, directory: int, prefix: str, depth: int) -> Iterator[FileEntry]:
        with os.scandir(directory) as found:
            for each in list(found):
                status = each.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    changed = datetime.fromtimestamp(status.st_mtime, UTC)
                    yield FileEntry(
                        prefix + each.name, status.st_size, f"{changed:%Y-%m-%d %H:%M:%S}"
                    )
                elif stat.S_ISDIR(status.st_mode) and depth < _DEEPEST:
                    below = os.open(each.name, _DIRECTORY, dir_fd=directory)
                    try:
                        yield from self._entries(below, f"{prefix}{each.name}/", depth + 1)
                    finally:
                        os.close(below)

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """Turn an error of the system into a sentence without paths of this machine."""
        try:
            yield
        except FileNotFoundError:
            raise FolderError(f"There is no file {path}.") from None
        except FileExistsError:
            raise FolderError(f"There is a file {path} already.") from None
        except IsADirectoryError:
            raise FolderError(f"{path} is a directory.") from None
        except OSError as error:
            links = error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
            reason = "it leads through no directory or file" if links else error.strerror
            raise FolderError(f"{path} cannot be used: {reason}.") from None


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    if len(parts) > _DEEPEST or not all(_NAME.fullmatch(part) for part in parts):
        raise FolderError(
            "Write the path like notes.txt or travel/paris.md: names without leading or trailing"
            f" dots and spaces, with at most {_DEEPEST - 1} directories."
        )
    if any(len(part.encode(errors="replace")) > 255 for part in parts):
        raise FolderError("A name in the path is too long.")
    return parts
