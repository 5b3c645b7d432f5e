"""The end of a session file, which is read backwards, so that the time does not depend on the size
of the file.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from component.conversations.lines import (
    MAX_LINE,
    Called,
    Correction,
    Header,
    Line,
    Resulted,
    Said,
    StoredLine,
    Summary,
    Told,
    corrected,
    corrected_summary,
    decode_line,
)
from component.memory.knowledge_lines import seconds_of
from component.memory_directory.files import FileState
from component.models.messages import OpaquePart, TextPart

_BLOCK = 1 << 15  # bytes read at a time
_REPORTED = 20  # damaged lines that are reported for one read
_BYTES_PER_TOKEN = 4  # of opaque parts, about
_FENCE_TOKENS: Final = 24
"""About how many tokens the fence around a text of others takes."""
_SEARCHED = 1 << 20  # bytes before the lines of the budget that are searched for a summary


class Damage(NamedTuple):
    """A line that cannot be read: the offset of its first byte, and the reason."""

    offset: int
    why: str


class Tail(NamedTuple):
    """The last lines of a session file, oldest first; `summary` replaces the lines before it.

    `left_out` says that some lines after the summary, or from the beginning, did not fit.
    """

    lines: list[Line]
    summary: Summary | None
    left_out: bool
    damage: list[Damage]


def tokens_of_each(lines: Iterable[Line], count: Callable[[str], int]) -> list[int]:
    """Estimate the number of tokens of each line, with `count` for texts."""
    return [_tokens_of(line, count) for line in lines]


def _tokens_of(line: Line, count: Callable[[str], int]) -> int:
    match line:
        case Called():
            parts = _opaque_bytes(line.before) // _BYTES_PER_TOKEN
            return count(line.name) + count(line.arguments) + count(line.text) + parts + 8
        case Said():
            context = count(line.context) if line.context else 0
            context += sum(one.size for one in line.memories) // _BYTES_PER_TOKEN
            context += sum(count(one.nick + one.text) + _FENCE_TOKENS for one in line.overheard)
            context += sum(one.tokens for one in line.attachments)
            text = line.sent_text if line.notice else line.content
            return count(text) + context + _opaque_bytes(line.parts) // _BYTES_PER_TOKEN + 4
        case Resulted(content=content, shown=int() as shown):
            return count(content[:shown]) + 4
        case Told():
            return count(line.context + line.content[: line.shown]) + _FENCE_TOKENS + 4
        case _:
            return count(line.content) + 4


def _opaque_bytes(parts: Sequence[TextPart | OpaquePart]) -> int:
    return sum(len(bytes(part.data)) for part in parts if isinstance(part, OpaquePart))


def read_tail(descriptor: int, end: int, budget: int, count: Callable[[str], int]) -> Tail:
    """Read the lines since the last summary and those that it keeps: the last ones, up to `budget`
    tokens, but at least one.
    """
    reader = _Reader(descriptor, end)
    lines: list[Line] = []
    summary: Summary | None = None
    corrections: dict[str | None, Said] = {}
    left_out = False
    spent = kept = 0
    for offset, raw in reader:
        line = reader.decode(offset, raw)
        if isinstance(line, Correction):
            corrections.setdefault(line.turn, line.message)
            continue
        if line is not None and corrections:
            line = corrected(line, corrections)
        if isinstance(line, Summary):
            if summary is None:
                summary, kept = line, line.kept
        elif line is not None:
            cost = _tokens_of(line, count)
            if lines and spent + cost > budget:
                left_out = True
                if summary is None and (above := reader.summary_above(offset)) is not None:
                    summary = corrected_summary(above, corrections)
                break
            spent += cost
            lines.append(line)
            kept -= 1
        if summary is not None and kept <= 0:
            break
    return Tail(lines[::-1], summary, left_out, reader.damage)


def read_turn(descriptor: int, end: int, turn: str) -> tuple[list[Line], bool, list[Damage]]:
    """Read the lines of a turn, oldest first, starting with the message that began it.

    The second value says whether that message was found.
    """
    reader = _Reader(descriptor, end)
    named = msgspec.json.encode(turn)
    lines: list[Line] = []
    corrections: dict[str | None, Said] = {}
    begun = False
    for offset, raw in reader:
        line = reader.decode(offset, raw) if named in raw else None
        if line is None or line.turn != turn:
            continue
        if isinstance(line, Correction):
            corrections.setdefault(turn, line.message)
        else:
            lines.append(corrected(line, corrections))
            begun = isinstance(line, Said) and line.role == "user"
            if begun:
                break
    return lines[::-1], begun, reader.damage


def read_told(descriptor: int, end: int, ids: Collection[str]) -> set[str]:
    """Return which of these messages, by the ids of their `told` lines, the file has."""
    reader = _Reader(descriptor, end)
    left = {id_: msgspec.json.encode(id_) for id_ in ids}
    for offset, raw in reader:
        if not any(named in raw for named in left.values()):
            continue
        line = reader.decode(offset, raw)
        if isinstance(line, Told) and left.pop(line.id, None) is not None and not left:
            break
    return {*ids} - left.keys()


def line_number(descriptor: int, offset: int) -> int:
    """Return the number, from 1, of the line that begins at a byte."""
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

    def decode(self, offset: int, raw: bytes) -> StoredLine | None:
        """Decode a line; None for a header and for a damaged one."""
        if not offset:
            raw = raw.removeprefix(b"\xef\xbb\xbf")  # some editors write a byte order mark
        try:
            line = decode_line(raw)
        except ValueError as error:
            self._damaged(offset, str(error))
            return None
        return None if isinstance(line, Header) else line

    def summary_above(self, end: int) -> Summary | None:
        """Return the last summary that ends before a byte, if it is near enough."""
        begin = max(0, end - _SEARCHED)
        data = os.pread(self._descriptor, end - begin, begin)
        last = len(data)
        while (at := data.rfind(b'"summary"', 0, last)) >= 0:
            first = data.rfind(b"\n", 0, at) + 1
            stop = data.find(b"\n", at, last)
            if first or not begin:
                line = self.decode(begin + first, data[first : last if stop < 0 else stop])
                if isinstance(line, Summary):
                    return line
            last = max(first - 1, 0)
        return None

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield each line that is not blank, from the last one, with its offset."""
        position = self._end
        pieces: list[bytes] = []  # of the line whose beginning is not read yet, the last one first
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
        if len(self.damage) < _REPORTED:
            self.damage.append(Damage(offset, why))

    def _line(self, offset: int, pieces: list[bytes], length: int) -> Iterator[tuple[int, bytes]]:
        if length > MAX_LINE:
            self._damaged(offset, f"it has more than {MAX_LINE} bytes")
            return
        line = b"".join(reversed(pieces))
        if line.strip():
            yield offset, line


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a conversation, for a model.

    Attributes:
        lines: the lines, oldest first, without summaries.
        costs: the tokens of each.
        summary: replaces the lines before them.
        left_out: whether lines between them were omitted, since they exceed the tokens requested.
        archived: where the conversation was archived, if it had been silent for too long.
        derived: what the reader has made of the lines; it lives as long as they are cached.
    """

    lines: tuple[Line, ...] = ()
    costs: tuple[int, ...] = ()
    summary: Summary | None = None
    left_out: bool = False
    archived: Path | None = None
    derived: dict[Any, Any] = msgspec.field(default_factory=dict)

    def without_messages(self, ids: Collection[str], turns: Collection[str]) -> list[StoredLine]:
        """Return the corrections that remove messages of a room by these ids, except for those of
        the turns `turns`.
        """
        earlier = () if self.summary is None else self.summary.requests
        found: list[StoredLine] = []
        for line in (*earlier, *self.lines):
            if not isinstance(line, Said) or line.role != "user" or line.turn is None:
                continue
            kept = tuple([one for one in line.overheard if one.id not in ids])
            is_removed = not {line.stanza_id, line.msg_id or ""}.isdisjoint(ids)
            if line.turn in turns or not (is_removed or len(kept) < len(line.overheard)):
                continue
            said = msgspec.structs.replace(line, overheard=kept)
            if is_removed:
                said = msgspec.structs.replace(said, content="", finding="", memories=())
            found.append(Correction(turn=line.turn, message=said))
        return found


class CachedTail:
    """The end of a session file in the state `seen`.

    Attributes:
        last: the time of the last line, in seconds since 1970.
    """

    __slots__ = ("_derived", "budget", "costs", "count", "last", "seen", "tail")

    def __init__(
        self, seen: FileState, tail: Tail, budget: int, count: Callable[[str], int]
    ) -> None:
        self.seen = seen
        self.tail = tail
        self.budget = budget
        self.count = count
        self._derived: dict[Any, Any] = {}
        self.costs = tokens_of_each(tail.lines, count)
        stamps = [line.ts for line in (*tail.lines[-1:], tail.summary) if line is not None]
        times = [seconds_of(each) for each in stamps]
        self.last = max((each for each in times if each is not None), default=seen.mtime / 1e9)

    def add(self, lines: Sequence[StoredLine], now: float) -> bool:
        """Add lines that were appended to the file; False if it has to be read again."""
        kept, summary, left_out, damage = self.tail
        for line in lines:
            if isinstance(line, Correction):
                return False
            if isinstance(line, Summary):
                if line.kept > len(kept):
                    return False
                begin = len(kept) - line.kept
                del kept[:begin], self.costs[:begin]
                summary, left_out = line, False
            else:
                kept.append(line)
                self.costs.append(_tokens_of(line, self.count))
        spent = sum(self.costs)
        drop = 0
        while spent > self.budget and drop < len(kept) - 1:
            spent -= self.costs[drop]
            drop += 1
        del kept[:drop], self.costs[:drop]
        self.tail = Tail(kept, summary, left_out or drop > 0, damage)
        self.last = now
        return True

    @property
    def is_empty(self) -> bool:
        """Whether the file has only a header."""
        return not (self.tail.lines or self.tail.summary or self.tail.damage)

    @property
    def history(self) -> History:
        """The lines for a model."""
        lines, summary, left_out, _ = self.tail
        return History(
            lines=tuple(lines),
            costs=tuple(self.costs),
            summary=summary,
            left_out=left_out,
            derived=self._derived,
        )
