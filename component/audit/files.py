"""The files of the record: their names, and what the last of them ends with."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from component.audit.lines import Link, Sealed, read_line

DIRECTORY: Final = "audit"
"""Where they are in the data directory."""
_NAME: Final = re.compile(r"audit-(\d{12,})\.jsonl")
_BLOCK: Final = 65536


def name_of(seq: int) -> str:
    """The name of the file that begins with this line: the order of names is that of the chain."""
    return f"audit-{seq:012}.jsonl"


def first_of(path: Path) -> int:
    """The number of the first line of a file, by its name."""
    found = _NAME.fullmatch(path.name)
    assert found is not None, f"{path} is none of the record"
    return int(found[1])


def files_in(directory: Path) -> list[Path]:
    """The files of the record, the oldest first. Raises OSError, but not if there is none."""
    try:
        found = [path for path in directory.iterdir() if _NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    return sorted(found, key=first_of)


class End(msgspec.Struct, frozen=True):
    """What a file ends with.

    `last` is the last line that has its own hash, None if the file has no such line; it ends at
    byte `size`. `rest` are the bytes after it: what a write left that did not come to its end.
    """

    last: Sealed | None
    size: int
    rest: bytes = b""

    @property
    def link(self) -> Link | None:
        """Where the chain goes on after the file."""
        return None if self.last is None else Link(self.last.line.seq, self.last.hash)


def end_of(path: Path) -> End:
    """What a file ends with, read from its end. Raises OSError."""
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
    """The lines of a file, the last one first, without their line breaks. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        for _, raw, whole in _backwards(file.fileno(), size):
            if whole:
                yield raw


def _backwards(descriptor: int, size: int) -> Iterator[tuple[int, bytes, bool]]:
    """Each line with the byte where it starts, and whether it has its line break."""
    whole = False
    held: list[bytes] = []
    """Pieces of the line whose start is still to be found, the last one first."""
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
