"""Finds text in data that models read but people do not see.

It does not find attacks in plain words; no list of words does so reliably. People are protected by
the rules on what data may reach (`component.policy.flows`) and by their confirmation. Another
scanner, such as a maintained classifier, can replace this one (`policy.scanner`).
"""

import importlib
import re
from typing import Final

from component.agent.protocol import Scanner

_TAGS: Final = re.compile("(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0020-\U000e007f]{4,}")
"""Tag characters (Unicode §23.9) that are not the flag of a region."""
_OVERRIDES: Final = re.compile("[\u202d\u202e]")
"""Characters that reverse the order of letters (Unicode Standard Annex #9 §2.2)."""
_BETWEEN_LETTERS: Final = re.compile("[A-Za-z][\u200b-\u200d\u2060\u2063\ufeff]+(?=[A-Za-z])")
_VARIATIONS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3,}")
"""Variation selectors; no character is followed by several of them."""
_FEW: Final = 3


class HiddenTextScanner:
    """Implements `component.agent.protocol.Scanner`, in time proportional to the text."""

    def scan(self, text: str) -> str | None:
        """Return what is hidden in a text, in a few words, or None."""
        if text.isascii():
            return None
        found = []
        if _TAGS.search(text) or _VARIATIONS.search(text):
            found.append("invisible characters that hold a text")
        if _OVERRIDES.search(text):
            found.append("characters that turn the order of letters around")
        parted = zip(range(_FEW), _BETWEEN_LETTERS.finditer(text), strict=False)
        if sum(1 for _ in parted) == _FEW:
            found.append("invisible characters between letters")
        return ", ".join(found) or None


class ScannerError(Exception):
    """The scanner of the settings cannot be used; the text says why."""


def load_scanner(name: str) -> Scanner:
    """Make the scanner `package.module:object`, a class or function that is called without
    arguments; an empty name stands for the built-in one. Raises ScannerError.
    """
    if not name:
        return HiddenTextScanner()
    module, _, attribute = name.partition(":")
    try:
        made: object = getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        raise ScannerError(
            f"The scanner {name} cannot be made: {type(error).__name__}: {error}"
        ) from error
    if not callable(getattr(made, "scan", None)):
        raise ScannerError(f"The scanner {name} has no method scan(text).")
    return made  # type: ignore[return-value]  # it has been checked
