"""Name patterns in which only `*` (any characters) and `?` (any single one) are special."""

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache


def pattern(globs: Iterable[str]) -> re.Pattern[str]:
    """Compile globs into one pattern that matches names matching any of them."""
    return _pattern(tuple(globs))


@lru_cache(1024)  # an agent's globs are compiled for each skill in each turn
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    # Brackets are special for fnmatch, but not in the settings.
    return re.compile("|".join(fnmatch.translate(g.replace("[", "[[]")) for g in globs) or "(?!)")
