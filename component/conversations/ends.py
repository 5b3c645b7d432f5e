"""The end of a conversation as it is kept in memory, and what a model may be shown of it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from component.conversations.coding import moment
from component.conversations.lines import Line, Summary
from component.conversations.tail import Tail, tokens_of
from component.memory_directory.files import FileState


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a conversation for a model.

    `lines` are oldest first and hold no summaries; `summary` stands for what is above them.
    `left_out` tells that lines in between did not fit in the tokens that were asked for.
    `archived` is where a conversation went that had been silent for too long. `tokens` is about how
    many `lines` have, as they were counted.
    """

    lines: tuple[Line, ...] = ()
    summary: Summary | None = None
    left_out: bool = False
    archived: Path | None = None
    tokens: int = 0


class End:
    """The end of a session file as it was at `seen`."""

    __slots__ = ("budget", "costs", "count", "last", "seen", "tail")

    def __init__(
        self, seen: FileState, tail: Tail, budget: int, count: Callable[[str], int]
    ) -> None:
        self.seen = seen
        self.tail = tail
        self.budget = budget
        self.count = count
        self.costs = [tokens_of(line, count) for line in tail.lines]
        times = [moment(line.ts) for line in (*tail.lines[-1:], tail.summary) if line is not None]
        self.last = max((each for each in times if each is not None), default=seen.mtime / 1e9)

    def add(self, lines: Sequence[Line], now: float) -> bool:
        """Go on as the file does; False if it has to be read again."""
        kept, summary, left_out, damage = self.tail
        for line in lines:
            if isinstance(line, Summary):
                if line.kept > len(kept):
                    return False
                begin = len(kept) - line.kept
                del kept[:begin], self.costs[:begin]
                summary, left_out = line, False
            else:
                kept.append(line)
                self.costs.append(tokens_of(line, self.count))
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
    def empty(self) -> bool:
        """Whether nothing but a header is in the file."""
        return not (self.tail.lines or self.tail.summary or self.tail.damage)


def shown(end: End | None) -> History:
    """What a model may be shown of it."""
    if end is None:
        return History()
    lines, summary, left_out, _damage = end.tail
    return History(lines=tuple(lines), summary=summary, left_out=left_out, tokens=sum(end.costs))
