"""Yes and no in words, as people write them (specification, "In Words")."""

import re
import unicodedata
from typing import Final, Literal

import msgspec

YES: Final = frozenset(("yes", "y"))
NO: Final = frozenset(("no", "n"))
COURTESY: Final = frozenset(("please", "thanks", "thank you"))
"""What may follow a yes without making it less of one."""

_FIRST: Final = re.compile("\\w+(?:[\u2019'-]\\w+)*")
"""A word; one that goes on after an apostrophe or a hyphen is another word."""
_AFTER: Final = " \t\r\n,.:;!-\u2013\u2014"
_END: Final = re.compile(
    rf"(?:\s*,?\s+(?:{'|'.join(sorted(COURTESY))}))?\s*"
    "(?:[.\u3002\uff0e\uff61]|[!\uff01]+)?",
)
"""All that may follow a word for yes: courtesy, one full stop or exclamation marks. White space
after it is cut off before.
"""
_LONGEST_END: Final = 40
"""Characters; also a bound on the time that the expression takes."""


class Said(msgspec.Struct, frozen=True):
    """An answer in words. `unclear` begins like a yes and goes on, which is none (CNF-024)."""

    value: Literal["approve", "deny", "unclear"]
    reason: str | None = None


def said_in(body: str) -> Said | None:
    """The answer that a body gives; None if it is none.

    A yes stands alone, with no more than `_END` after it: a question mark, an ellipsis, a quotation
    mark or an invisible character can turn its meaning. A no may have any punctuation around it,
    and what follows it is the reason, as it was written (CNF-023): a no taken for a no too often
    does no harm. Case does not matter.
    """
    start, end = 0, len(body)
    while start < end and _is_around(body[start]):
        start += 1
    while end > start and _is_around(body[end - 1]):
        end -= 1
    first = _FIRST.match(body, start, end)
    if first is None:
        return None
    word = first.group().lower()
    if word in NO:
        reason = body[first.end() :].strip().lstrip(_AFTER)
        # What stands around the answer as a whole, "no." or "(no)", is no reason.
        said = any(not _is_around(character) for character in reason)
        return Said("deny", reason if said else None)
    if word in YES:
        alone = not body[:start].strip() and _is_end(body[first.end() :])
        return Said("approve" if alone else "unclear")
    return None


def yes_or_no(text: str) -> bool | None:
    """The answer to a question whose answers are both of weight: yes or no, each alone."""
    first = _FIRST.match(text.lstrip())
    word = "" if first is None else first.group().lower()
    if first is None or word not in YES | NO or not _is_end(text.lstrip()[first.end() :]):
        return None
    return word in YES


def _is_end(rest: str) -> bool:
    rest = rest.rstrip()
    return len(rest) <= _LONGEST_END and _END.fullmatch(rest.lower()) is not None


def _is_around(character: str) -> bool:
    return character.isspace() or unicodedata.category(character).startswith("P")
