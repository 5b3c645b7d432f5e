"""Yes and no in words, as people write them (specification, "In Words")."""

import re
import unicodedata
from typing import Final, Literal

import msgspec

YES: Final = frozenset(("yes", "y"))
NO: Final = frozenset(("no", "n"))

_FIRST: Final = re.compile("\\w+(?:[\u2019'-]\\w+)*")
"""A word; one that goes on after an apostrophe or a hyphen is another word."""
_AFTER: Final = " \t\r\n,.:;!-\u2013\u2014"


class Said(msgspec.Struct, frozen=True):
    """An answer in words. `unclear` begins like a yes and goes on, which is none (CNF-024)."""

    value: Literal["approve", "deny", "unclear"]
    reason: str | None = None


def said_in(body: str) -> Said | None:
    """The answer that a body gives; None if it is none.

    White space, punctuation around it and case do not matter. What follows a no is the reason
    (CNF-023), as it was written.
    """
    start, end = 0, len(body)
    while start < end and _is_around(body[start]):
        start += 1
    while end > start and _is_around(body[end - 1]):
        end -= 1
    first = _FIRST.match(body, start, end)
    if first is None:
        return None
    word = first.group().casefold()
    if word in NO:
        reason = body[first.end() :].strip().lstrip(_AFTER)
        # What stands around the answer as a whole, "no." or "(no)", is no reason.
        said = any(not _is_around(character) for character in reason)
        return Said("deny", reason if said else None)
    if word in YES:
        return Said("approve" if first.end() == end else "unclear")
    return None


def _is_around(character: str) -> bool:
    return character.isspace() or unicodedata.category(character).startswith("P")
