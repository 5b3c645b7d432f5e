"""Checks that patterns of parameters cannot block the event loop, whatever text a caller sends.

Python's `re` tries one way of matching after the other. A pattern that can match a text in many
ways, such as `(a+)+$`, takes exponential time to find out that none works (ReDoS). So a pattern is
analysed when a skill is declared, and must be one of two kinds:

- At each character there is at most one way to continue (a strongly deterministic expression, as
  in Brüggemann-Klein and Wood, "One-Unambiguous Regular Languages", 1998, where one way means one
  in the syntax as well). The time is linear in the length of the text.
- Each repetition is of that kind by itself. Then only the places where one repetition ends and the
  next begins are ambiguous, and the time is a power of the length, which `max_length` must limit.
"""

from __future__ import annotations

import re
from itertools import combinations
from re import _constants as codes  # type: ignore[attr-defined]  # not in the type stubs
from re import _parser as parser  # type: ignore[attr-defined]  # not in the type stubs
from typing import Any, Final

_MOST_STEPS: Final = 1_000_000
_MOST_CHARACTERS: Final = 262_144
"""The maximum number of characters of a text: `server.max_stanza_bytes`, by default."""
_MOST_PLACES: Final = 200
"""The maximum number of character positions in a pattern; all pairs are compared, which must not
take long.
"""
_MOST_COPIED: Final = 40
"""The maximum number of positions up to which a counted repetition is expanded."""
_SAMPLES: Final = [chr(code) for code in range(128)] + [
    "é",
    "É",
    "\u0660",
    "\u2003",
    "€",
    "\U0001f600",
]
_REPEATS: Final = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_FREE: Final = (codes.AT,)
_WHY: Final = (
    "Write it so that a character can be matched in one way only, begin it with '^', bound the"
    " length (max_length), or check the text in the function"
)


class _UnfitError(Exception):
    """The pattern is not supported, or is too ambiguous; the message says why."""


class _Part:
    """The positions where a part of a pattern can begin and end; whether it can be empty."""

    __slots__ = ("empty", "first", "last")

    def __init__(self, first: list[int], last: list[int], *, empty: bool) -> None:
        self.first = first
        self.last = last
        self.empty = empty


class _Pattern:
    """The characters at each position of a pattern, and the positions that can follow it."""

    def __init__(self, text: str) -> None:
        self.tree = parser.parse(text)
        self.ignore_case = bool(self.tree.state.flags & re.IGNORECASE)
        self.places: list[frozenset[str]] = []
        self.follow: dict[int, list[int]] = {}
        self.repeats = 0
        """The number of unlimited repetitions."""
        self.ways = 1
        """The number of ways through the rest."""
        self._samples = [*_SAMPLES, *set(text)]
        self.top = self._sequence(self.tree)

    @property
    def deterministic(self) -> bool:
        """Return whether there is only one way to continue everywhere."""
        return self._apart(self.top.first) and all(map(self._apart, self.follow.values()))

    def _apart(self, places: list[int]) -> bool:
        return all(
            self.places[one].isdisjoint(self.places[other])
            for one, other in combinations(places, 2)
        )

    def _sequence(self, nodes: Any) -> _Part:
        part = _Part([], [], empty=True)
        for node in nodes:
            following = self._node(*node)
            for place in part.last:
                self.follow[place] += following.first
            part = _Part(
                part.first + following.first if part.empty else part.first,
                part.last + following.last if following.empty else following.last,
                empty=part.empty and following.empty,
            )
        return part

    def _node(self, code: Any, value: Any) -> _Part:
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN):
            return self._character(code, value)
        if code in _FREE:
            return _Part([], [], empty=True)
        if code is codes.SUBPATTERN:
            return self._sequence(value[-1])
        if code is codes.ATOMIC_GROUP:
            return self._sequence(value)
        if code is codes.BRANCH:
            parts = [self._sequence(each) for each in value[1]]
            self.ways *= len(parts)
            return _Part(
                [place for part in parts for place in part.first],
                [place for part in parts for place in part.last],
                empty=any(part.empty for part in parts),
            )
        if code in _REPEATS:
            return self._repeat(*value)
        raise _UnfitError(f"it holds {str(code).lower().replace('_', ' ')}, which takes time that"
                          " cannot be told beforehand")  # fmt: skip

    def _character(self, code: Any, value: Any) -> _Part:
        place = len(self.places)
        if place >= _MOST_PLACES:
            raise _UnfitError(f"it has more than {_MOST_PLACES} places for a character")
        self.places.append(
            frozenset(each for each in self._samples if self._matches(code, value, each))
        )
        self.follow[place] = []
        return _Part([place], [place], empty=False)

    def _repeat(self, least: int, most: int, nodes: Any) -> _Part:
        start = len(self.places)
        part = self._sequence(nodes)
        if most <= 1:
            self.ways *= 2 - least
            return _Part(part.first, part.last, empty=part.empty or not least)
        if part.empty:
            raise _UnfitError("a repeated part of it can be empty")
        size = len(self.places) - start
        if most * size <= _MOST_COPIED:
            return self._copies(least, most, nodes, [part])
        for place in part.last:
            self.follow[place] += part.first
        inside = range(start, len(self.places))
        if not (self._apart(part.first) and all(self._apart(self.follow[n]) for n in inside)):
            raise _UnfitError("a repeated part of it can match one text in several ways")
        self.repeats += most != least or size != 1
        return _Part(part.first, part.last, empty=not least)

    def _copies(self, least: int, most: int, nodes: Any, parts: list[_Part]) -> _Part:
        """Return a counted repetition, expanded."""
        self.ways *= 1 + most - least
        for _ in range(most - 1):
            following = self._sequence(nodes)
            for place in parts[-1].last:
                self.follow[place] += following.first
            parts.append(following)
        last = [place for part in parts[max(least - 1, 0) :] for place in part.last]
        return _Part(parts[0].first, last, empty=not least)

    def _matches(self, code: Any, value: Any, character: str) -> bool:
        if self.ignore_case:
            either = {character.lower(), character.upper()}
            return any(_is_in(code, value, each) for each in either)
        return _is_in(code, value, character)


def _is_in(code: Any, value: Any, character: str) -> bool:
    if code is codes.ANY:
        return True
    if code is codes.LITERAL:
        return chr(value) == character
    if code is codes.NOT_LITERAL:
        return chr(value) != character
    if code is codes.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    if code is codes.CATEGORY:
        return _is_of(value, character)
    assert code is codes.IN, code
    members = [each for each in value if each[0] is not codes.NEGATE]
    negated = len(members) < len(value)
    return negated != any(_is_in(code, value, character) for code, value in members)


def _is_of(category: Any, character: str) -> bool:
    name = str(category)
    if name.endswith("DIGIT"):
        found = character.isdecimal()
    elif name.endswith("SPACE"):
        found = character.isspace()
    else:
        found = character.isalnum() or character == "_"
    return found != ("_NOT_" in name)


def unfit(pattern: str, max_length: int | None = None) -> str | None:
    """Return why a pattern must not be used on texts of up to `max_length` characters; None if it
    may be.

    The text is searched for the pattern, as JSON Schema defines it.
    """
    try:
        found = _Pattern(pattern)
    except _UnfitError as error:
        return f"{error}. {_WHY}"
    except (re.error, RecursionError, OverflowError) as error:
        return f"it is not a regular expression: {error}"
    length = _MOST_CHARACTERS if max_length is None else max_length
    starts = 1 if _is_anchored(found.tree) or not found.repeats else length
    if found.deterministic:
        if starts * length <= max(_MOST_STEPS, length):
            return None
    elif starts * found.ways * length**found.repeats <= _MOST_STEPS:
        return None
    return f"to search a text of {length} characters for it can take too long. {_WHY}"


def _is_anchored(nodes: Any) -> bool:
    """Return whether it can match at the beginning of the text only."""
    for code, value in nodes:
        if code is codes.AT:
            return value in (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING)
        if code is codes.SUBPATTERN:
            return _is_anchored(value[-1])
        if code is codes.BRANCH:
            return all(map(_is_anchored, value[1]))
        return False
    return False
