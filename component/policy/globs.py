"""Name patterns in which only `*` (any characters) and `?` (any single one) are special.

Sets of patterns are compared where an agent passes on a part of its rights.
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")


def pattern(globs: Iterable[str]) -> re.Pattern[str]:
    """Compile globs into one pattern that matches names matching any of them."""
    return _pattern(tuple(globs))


@lru_cache(1024)  # an agent's globs are compiled for each skill in each turn
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    # Brackets are special for fnmatch, but not in the settings.
    return re.compile("|".join(fnmatch.translate(g.replace("[", "[[]")) for g in globs) or "(?!)")


def first_match(values: Mapping[str, T], name: str) -> T | None:
    """Return the value of the first glob that matches a name; None if none does."""
    return next((one for glob, one in values.items() if pattern((glob,)).fullmatch(name)), None)


def within(asked: Sequence[str], had: Sequence[str]) -> str | None:
    """Return the first of the patterns `asked` that is not covered by one of `had`, or None.

    This errs on the strict side: a pattern with `?` in `had` covers only an identical one, and
    several patterns never cover one together.
    """
    covering = pattern(glob for glob in had if "?" not in glob)
    return next((one for one in asked if one not in had and not covering.fullmatch(one)), None)


def narrowed(asked: Sequence[str], had: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Restrict the patterns `asked` to those within `had`.

    A pattern that is not within is replaced by those of the `names` that match it and `had`.
    """
    both, mine = [one for one in asked if within((one,), had) is None], pattern(had)
    beyond = [one for one in asked if one not in both]
    if beyond:
        match = pattern(beyond).fullmatch
        both += [name for name in names if match(name) and mine.fullmatch(name)]
    return tuple(both)


def common(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of both lists that are within the other one, each once."""
    mine = [each for each in one if within((each,), other) is None]
    its = [each for each in other if within((each,), one) is None]
    return tuple(dict.fromkeys((*mine, *its)))
