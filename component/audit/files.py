"""The files of the audit log: their names, reading them from the end, appending, and removal.

All functions block; those that write are called by one thread at a time.
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from component.audit.lines import ChainLink, Line, Sealed, read_line, timestamp
from component.audit.protocol import AuditEvent
from component.store import StorageError
from component.store.directory import sync_directory

DIRECTORY: Final = "audit"
"""The directory of the files, within the data directory."""
_NAME: Final = r"audit-(\d{12,})\.jsonl"
_BLOCK: Final = 65536
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_DAY_MS: Final = 86_400_000
_REMOVED: Final = r"lines up to (\d+) ([0-9a-f]{64})"


def name_of(seq: int) -> str:
    """The name of the file that begins with this line; names sort in the order of the chain."""
    return f"audit-{seq:012}.jsonl"


def first_of(path: Path) -> int:
    """The number of the first line of a file, by its name."""
    found = re.fullmatch(_NAME, path.name)
    assert found is not None, f"{path} is not a file of the audit log"
    return int(found[1])


def files_in(directory: Path) -> list[Path]:
    """The files of the audit log, the oldest first; empty without a directory. Raises OSError."""
    try:
        found = [path for path in directory.iterdir() if re.fullmatch(_NAME, path.name)]
    except FileNotFoundError:
        return []
    return sorted(found, key=first_of)


class FileEnd(msgspec.Struct, frozen=True):
    """The end of a file.

    `last` is the last line whose hash matches, None if the file has no such line; it ends at
    byte `size`. `rest` are the bytes after it, which an interrupted write has left.
    """

    last: Sealed | None
    size: int
    rest: bytes = b""

    @property
    def link(self) -> ChainLink | None:
        """The link with which the chain continues after the file."""
        return None if self.last is None else ChainLink(self.last.line.seq, self.last.hash)


def end_of(path: Path) -> FileEnd:
    """Read the end of a file, backwards. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        for start, raw, whole in _backwards(file.fileno(), size):
            sealed = read_line(raw) if whole else None
            if sealed is not None and sealed.matches:
                good = start + len(raw) + 1
                return FileEnd(sealed, good, os.pread(file.fileno(), size - good, good))
            end = start
        return FileEnd(None, end, os.pread(file.fileno(), size - end, end))


def lines_backwards(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, the last one first, without line breaks. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        for _, raw, whole in _backwards(file.fileno(), size):
            if whole:
                yield raw


def _backwards(descriptor: int, size: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yield each line with the byte where it starts, and whether it has a line break."""
    whole = False
    held: list[bytes] = []
    """Pieces of the line whose start is not found yet, the last one first."""
    at = size
    while at > 0:
        begin = max(0, at - _BLOCK)
        block = os.pread(descriptor, at - begin, begin)
        end = len(block)
        while (found := block.rfind(b"\n", 0, end)) >= 0:
            held.append(block[found + 1 : end])
            raw = b"".join(reversed(held))
            if raw or whole:
                yield begin + found + 1, raw, whole
            held.clear()
            whole, end = True, found
        held.append(block[:end])
        at = begin
    raw = b"".join(reversed(held))
    if raw or whole:
        yield 0, raw, whole


# -- writing -------------------------------------------------------------------------------------


class LogWriter:
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
                self.close()
                self._begin(self.directory / name_of(first), day)
            try:
                self._write(lines)
            except BaseException:
                self.close()
                raise
            return begins

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

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


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


# -- removal -------------------------------------------------------------------------------------


def old_files(directory: Path, keep_days: int, now_ms: int) -> tuple[list[Path], ChainLink | None]:
    """The files whose lines are all older than `keep_days` days, and their last line.

    The last file is never included. Raises StorageError.
    """
    before = timestamp(now_ms - keep_days * _DAY_MS)
    with failing(directory):
        files = files_in(directory)
        old: list[Path] = []
        for path, following in itertools.pairwise(files):
            since = began(following)
            if since is None or since >= before:
                break
            old.append(path)
        return old, end_of(old[-1]).link if old else None


def began(path: Path) -> str | None:
    """The time of the first line of a file; None if it has no line. Raises OSError."""
    with path.open("rb") as file:
        sealed = read_line(file.readline().rstrip(b"\n"))
    return None if sealed is None else sealed.line.time


def removal_of(files: Sequence[Path], last: ChainLink) -> AuditEvent:
    """The event to record before the files, whose last line is `last`, are removed."""
    return AuditEvent(
        kind="record",
        outcome="removed",
        subject=f"{files[0].name} to {files[-1].name}" if len(files) > 1 else files[0].name,
        detail=f"lines up to {last.seq} {last.hash}",
    )


def removed_by(line: Line) -> ChainLink | None:
    """The last removed line, if `line` records a removal."""
    if (line.kind, line.outcome) != ("record", "removed"):
        return None
    found = re.fullmatch(_REMOVED, line.detail)
    return None if found is None else ChainLink(int(found[1]), found[2])


def remove_files(files: Sequence[Path]) -> None:
    """Remove files, the oldest first. Raises StorageError."""
    with failing(files[0].parent):
        for path in files:
            path.unlink(missing_ok=True)
        sync_directory(files[0].parent)
