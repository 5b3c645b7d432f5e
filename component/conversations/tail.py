"""Reads the end of a session file backwards, so that the time does not depend on its size."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from component.conversations.coding import MAX_LINE, decoded
from component.conversations.lines import Called, Header, Line, Resulted, Said, Summary
from component.models.messages import OpaquePart, TextPart

_BLOCK = 1 << 15  # bytes read at a time
_TOLD = 20  # damaged lines that are reported for one read
_BYTES_PER_TOKEN = 4  # of opaque parts, about
_SEARCHED = 1 << 20  # bytes above the budget in which a summary is still looked for


class Damage(NamedTuple):
    """A line that cannot be read: the offset of its first byte, and the reason."""

    offset: int
    why: str


class Tail(NamedTuple):
    """The end of a session file, oldest line first; `summary` replaces the lines before it.

    `left_out` says that some lines after the summary (or of all, without one) did not fit.
    """

    lines: list[Line]
    summary: Summary | None
    left_out: bool
    damage: list[Damage]


def tokens_of(line: Line, count: Callable[[str], int]) -> int:
    """Estimate the number of tokens of a line, with `count` for texts."""
    match line:
        case Called():
            parts = _opaque_bytes(line.before) // _BYTES_PER_TOKEN
            return count(line.name) + count(line.arguments) + count(line.text) + parts + 8
        case Said():
            context = count(line.context) if line.context else 0
            context += sum(one.size for one in line.memories) // _BYTES_PER_TOKEN
            return count(line.told) + context + _opaque_bytes(line.parts) // _BYTES_PER_TOKEN + 4
        case Resulted(content=content, shown=int() as shown):
            return count(content[:shown]) + 4
        case _:
            return count(line.content) + 4


def _opaque_bytes(parts: Sequence[TextPart | OpaquePart]) -> int:
    return sum(len(bytes(part.data)) for part in parts if isinstance(part, OpaquePart))


def read_tail(descriptor: int, end: int, budget: int, count: Callable[[str], int]) -> Tail:
    """Read the lines since the last summary, and those that it has kept: the last ones up to
    `budget` tokens, but at least one.
    """
    reader = _Reader(descriptor, end)
    lines: list[Line] = []
    summary: Summary | None = None
    left_out = False
    spent = kept = 0
    for offset, raw in reader:
        line = reader.decoded(offset, raw)
        if isinstance(line, Summary):
            if summary is None:
                summary, kept = line, line.kept
        elif line is not None:
            cost = tokens_of(line, count)
            if lines and spent + cost > budget:
                left_out = True
                summary = summary or reader.summary_above(offset)
                break
            spent += cost
            lines.append(line)
            kept -= 1
        if summary is not None and kept <= 0:
            break
    return Tail(lines[::-1], summary, left_out, reader.damage)


def read_turn(descriptor: int, end: int, turn: str) -> tuple[list[Line], bool, list[Damage]]:
    """Read the lines of a turn from the message that began it; oldest first.

    The second value says whether that message was found.
    """
    reader = _Reader(descriptor, end)
    named = msgspec.json.encode(turn)
    lines: list[Line] = []
    begun = False
    for offset, raw in reader:
        line = reader.decoded(offset, raw) if named in raw else None
        if line is not None and not isinstance(line, Summary) and line.turn == turn:
            lines.append(line)
            begun = isinstance(line, Said) and line.role == "user"
            if begun:
                break
    return lines[::-1], begun, reader.damage


def line_number(descriptor: int, offset: int) -> int:
    """Which line it is that begins at a byte, counted from 1."""
    number, position = 1, 0
    while position < offset:
        data = os.pread(descriptor, min(1 << 20, offset - position), position)
        if not data:
            break
        number += data.count(b"\n")
        position += len(data)
    return number


class _Reader:
    """Yields the lines of a file from its end, and collects damaged ones."""

    def __init__(self, descriptor: int, end: int) -> None:
        self._descriptor = descriptor
        self._end = end
        self.damage: list[Damage] = []

    def decoded(self, offset: int, raw: bytes) -> Line | None:
        """The line, or None for a header and for damage."""
        if not offset:
            raw = raw.removeprefix(b"\xef\xbb\xbf")  # as some editors begin a file
        try:
            line = decoded(raw)
        except ValueError as error:
            self._damaged(offset, str(error))
            return None
        return None if isinstance(line, Header) else line

    def summary_above(self, end: int) -> Summary | None:
        """The last summary that ends before a byte, if it is not too far above."""
        begin = max(0, end - _SEARCHED)
        data = os.pread(self._descriptor, end - begin, begin)
        last = len(data)
        while (at := data.rfind(b'"summary"', 0, last)) >= 0:
            first = data.rfind(b"\n", 0, at) + 1
            stop = data.find(b"\n", at, last)
            if first or not begin:
                line = self.decoded(begin + first, data[first : last if stop < 0 else stop])
                if isinstance(line, Summary):
                    return line
            last = max(first - 1, 0)
        return None

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Each line that is not blank, the last first, with the byte at which it begins."""
        position = self._end
        pieces: list[bytes] = []  # of the line whose beginning is not reached, the last one first
        length = 0
        while position > 0:
            size = min(_BLOCK, position)
            position -= size
            data = os.pread(self._descriptor, size, position)
            cut = len(data)
            while (at := data.rfind(b"\n", 0, cut)) >= 0:
                yield from self._line(position + at + 1, [*pieces, data[at + 1 : cut]], length)
                pieces.clear()
                length, cut = 0, at
            length += cut
            if length > MAX_LINE:
                pieces.clear()
            pieces.append(data[:cut])
        yield from self._line(0, pieces, length)

    def _damaged(self, offset: int, why: str) -> None:
        if len(self.damage) < _TOLD:
            self.damage.append(Damage(offset, why))

    def _line(self, offset: int, pieces: list[bytes], length: int) -> Iterator[tuple[int, bytes]]:
        if length > MAX_LINE:
            self._damaged(offset, f"it has more than {MAX_LINE} bytes")
            return
        line = b"".join(reversed(pieces))
        if line.strip():
            yield offset, line
