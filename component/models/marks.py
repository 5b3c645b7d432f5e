"""Finds markup that models write into their text, such as `<think>`, while the text arrives."""

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Final

_FENCE: Final = "```"


@functools.cache
def _tables(marks: tuple[str, ...]) -> tuple[re.Pattern[str], frozenset[str], frozenset[str], int]:
    """Return a pattern of the marks, the beginnings of them, their first characters, and the length
    of the longest beginning. There are few sets of marks, and several objects for each answer.
    """
    alternatives = "|".join(map(re.escape, marks))
    pattern = re.compile(f"`?({alternatives})|{_FENCE}", re.IGNORECASE | re.ASCII)
    whole = (_FENCE, *marks, *(f"`{mark}" for mark in marks))
    beginnings = frozenset(each[:end].lower() for each in whole for end in range(1, len(each)))
    return (
        pattern,
        beginnings,
        frozenset(one[0].lower() for one in whole),
        max(map(len, beginnings)),
    )


class Marks:
    """Splits a text that arrives in pieces at certain marks, which may span pieces.

    A mark in code is text: inside a fence of Markdown, or right after a backtick.

    Args:
        marks: the marks; upper and lower case are the same.

    Attributes:
        in_code: whether code is recognized. In reasoning it is not: fences may lack their end.
            Setting it ends a fence.
    """

    def __init__(self, marks: Iterable[str]) -> None:
        tables = _tables(tuple(marks))
        self._pattern, self._beginnings, self._first, self._longest = tables
        self._rest = ""
        self._fenced = False
        self._in_code = True

    @property
    def in_code(self) -> bool:
        """See above."""
        return self._in_code

    @in_code.setter
    def in_code(self, value: bool) -> None:
        self._in_code, self._fenced = value, False

    def feed(self, piece: str, *, last: bool = False) -> Iterator[tuple[str, str]]:
        """Process the next piece. Yields texts, each with the mark that follows it, or an empty
        mark.

        The beginning of a mark is held back until the next piece, unless this is the `last` one.
        """
        text, self._rest = self._rest + piece, ""
        if text and self._first.isdisjoint(text):  # nearly always
            yield text, ""
            return
        begin = at = 0
        held = len(text)
        while match := self._pattern.search(text, at):
            if match[1] is None and not (last or self._fenced) and self._may_go_on(text, match):
                held = match.start()
                break
            at = match.end()
            in_code = self._in_code and (self._fenced or match.start() < match.start(1))
            if match[1] is None or (in_code and match[1].startswith(_FENCE)):
                self._fenced ^= self._in_code
            elif not in_code:
                yield text[begin : match.start(1)], match[1]
                begin = at
        end = held if last or held < len(text) else held - self._unfinished(text, at)
        self._rest = text[end:]
        if end > begin:
            yield text[begin:end], ""

    def rest(self) -> str:
        """Return and clear the text that is held back."""
        text, self._rest = self._rest, ""
        return text

    def _may_go_on(self, text: str, fence: re.Match[str]) -> bool:
        """Whether a fence may be the beginning of a mark, such as that of `tool_code`."""
        rest = text[fence.start() : fence.start() + self._longest + 1]
        return rest.lower() in self._beginnings

    def _unfinished(self, text: str, at: int) -> int:
        """The length of the end of the text that may be the beginning of a mark."""
        tail = text[max(at, len(text) - self._longest) :]
        if self._first.isdisjoint(tail):
            return 0
        for start in range(len(tail)):
            if tail[start:].lower() in self._beginnings:
                return len(tail) - start
        return 0
