"""The files of the audit log: their names, and how to read them from the end."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from component.audit.lines import Link, Sealed, read_line

DIRECTORY: Final = "audit"
"""The directory of the files, within the data directory."""
_NAME: Final = re.compile(r"audit-(\d{12,})\.jsonl")
_BLOCK: Final = 65536


def name_of(seq: int) -> str:
    """The name of the file that begins with this line; names sort in the order of the chain."""
    return f"audit-{seq:012}.jsonl"


def first_of(path: Path) -> int:
    """The number of the first line of a file, by its name."""
    found = _NAME.fullmatch(path.name)
    assert found is not None, f"{path} is not a file of the audit log"
    return int(found[1])


def files_in(directory: Path) -> list[Path]:
    """The files of the audit log, the oldest first; empty without a directory. Raises OSError."""
    try:
        found = [path for path in directory.iterdir() if _NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    return sorted(found, key=first_of)


class End(msgspec.Struct, frozen=True):
    """The end of a file.

    `last` is the last line whose hash matches, None if the file has no such line; it ends at
    byte `size`. `rest` are the bytes after it, which an interrupted write has left.
    """

    last: Sealed | None
    size: int
    rest: bytes = b""

    @property
    def link(self) -> Link | None:
        """The link with which the chain continues after the file."""
        return None if self.last is None else Link(self.last.line.seq, self.last.hash)


def end_of(path: Path) -> End:
    """Read the end of a file, backwards. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        for start, raw, whole in _backwards(file.fileno(), size):
            sealed = read_line(raw) if whole else None
            if sealed is not None and sealed.matches:
                good = start + len(raw) + 1
                return End(sealed, good, os.pread(file.fileno(), size - good, good))
            end = start
        return End(None, end, os.pread(file.fileno(), size - end, end))


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
