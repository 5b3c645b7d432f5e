"""Patterns of names in which `*` stands for any characters and `?` for any one; nothing else."""

import fnmatch
import re
from collections.abc import Iterable


def pattern(globs: Iterable[str]) -> re.Pattern[str]:
    """One pattern for the names that match any of these; none does, if there are no globs."""
    # Brackets have a meaning for fnmatch which the settings do not promise.
    return re.compile("|".join(fnmatch.translate(g.replace("[", "[[]")) for g in globs) or "(?!)")
