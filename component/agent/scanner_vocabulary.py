"""Which ideas a word stands for."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

EAST: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
"""Letters of Chinese and Japanese, which parts no words, as a class of a regular expression."""

_PLURALS: Final = ("", "s", "e", "en")
IN_EAST: Final = re.compile(f"[{EAST}]")
PHRASE: Final = 1 << 62
"""Stands for nothing by itself: the first word of a phrase."""


class Vocabulary:
    """Words and the ideas they stand for.

    Args:
        words: ideas, and the words of each, as `component.agent.scanner_words` writes them.

    Attributes:
        phrases: by their first word, the further words of each and its ideas.
        east: Chinese and Japanese words, the longest first.
    """

    def __init__(self, words: Iterable[tuple[int, str]]) -> None:
        self._whole: dict[str, int] = {}
        self._beginnings: dict[str, int] = {}
        phrases: dict[str, list[tuple[list[str], int]]] = {}
        for idea, written in words:
            for word in written.split():
                first, *rest = word.split("_")
                if rest:
                    last = rest[-1].rstrip("*")
                    for ending in _PLURALS if rest[-1].endswith("*") else ("",):
                        known = phrases.setdefault(first, [])
                        known.append(([*rest[:-1], last + ending], idea))
                elif word.endswith("*"):
                    begin = word[:-1]
                    self._beginnings[begin] = self._beginnings.get(begin, 0) | idea
                else:
                    self._whole[word] = self._whole.get(word, 0) | idea
        for first in phrases:
            self._whole[first] = self._whole.get(first, 0) | PHRASE
        self.phrases: Mapping[str, list[tuple[list[str], int]]] = phrases
        self.east = sorted(filter(IN_EAST.search, self._whole), key=len, reverse=True)
        self._lengths = sorted({len(begin) for begin in self._beginnings})

    def meaning(self, word: str) -> int:
        """The ideas that a word stands for."""
        if word == "\n":
            return self._whole["."]
        ideas = self._whole.get(word, 0)
        for length in self._lengths:
            if length > len(word):
                break
            ideas |= self._beginnings.get(word[:length], 0)
        return ideas
