"""Patterns of names in which `*` stands for any characters and `?` for any one; nothing else."""

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache


def pattern(globs: Iterable[str]) -> re.Pattern[str]:
    """One pattern for the names that match any of these; none does, if there are no globs."""
    return _pattern(tuple(globs))


@lru_cache(1024)  # an agent's are asked about for each skill in each turn
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    # Brackets have a meaning for fnmatch which the settings do not promise.
    return re.compile("|".join(fnmatch.translate(g.replace("[", "[[]")) for g in globs) or "(?!)")
