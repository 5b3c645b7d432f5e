"""Recognises yes and no in words, as people write them (specification, "In Words")."""

import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec


def _any_of(phrases: Iterable[str]) -> str:
    return "|".join(sorted(phrase.replace(" ", r"\s+") for phrase in phrases))


_PHRASES: Final = frozenset(("go ahead", "do it", "please do"))
YES: Final = frozenset(("yes", "y", "yep", "yeah", "yup", "ok", "okay", "sure")) | _PHRASES
NO: Final = frozenset(("no", "n", "nope", "nah"))
COURTESY: Final = frozenset(("please", "thanks", "thank you")) | _PHRASES
"""Phrases after a yes that do not change its meaning."""
_SAID_OF_NOTHING_ELSE: Final = frozenset(("yes", "y"))
"""Words for yes that people rarely use to begin another sentence."""

_FIRST: Final = re.compile(
    f"(?:{_any_of(_PHRASES)})(?![\\w\u2019'-])|\\w+(?:[\u2019'-]\\w+)*",
    re.IGNORECASE,
)
"""Matches a phrase or a word; a word that continues after an apostrophe or a hyphen is another
word.
"""
_AFTER: Final = " \t\r\n,.:;!-\u2013\u2014"
_END: Final = (
    rf"(?:\s*,?\s+(?:{_any_of(COURTESY)}))?\s*"
    "(?:[.\u3002\uff0e\uff61]|[!\uff01]+)?"
)
"""Everything that may follow a word for yes: courtesy, one full stop or exclamation marks. White
space after it is removed before.
"""
_LONGEST_END: Final = 40
"""The maximum number of characters; also limits the running time of the expression."""


class SpokenYesNo(msgspec.Struct, frozen=True):
    """An answer in words. An `unclear` one begins with a yes and continues, so it does not count
    (CNF-024).
    """

    value: Literal["approve", "deny", "unclear"]
    reason: str | None = None


def said_in(body: str) -> SpokenYesNo | None:
    """Return the answer in a body; None if there is none.

    A yes stands alone, with no more than `_END` after it: a question mark, an ellipsis, a quotation
    mark or an invisible character can change its meaning. A no may have anything around it but
    letters, digits and the mark of a quotation, and the text after it is the reason, unchanged
    (CNF-023): to read a no too often does no harm. Case does not matter.
    """
    start, end = 0, len(body)
    while start < end and _is_around(body[start]):
        start += 1
    while end > start and _is_around(body[end - 1]):
        end -= 1
    first = _FIRST.match(body, start, end)
    if first is None:
        return None
    word = _word(first)
    if word in NO:
        reason = body[first.end() :].strip().lstrip(_AFTER)
        # Punctuation around the whole answer, "no." or "(no)", is not a reason.
        said = any(not _is_around(character) for character in reason)
        return SpokenYesNo("deny", reason if said else None)
    if word in YES:
        rest = body[first.end() :]
        if not body[:start].strip() and _is_end(rest):
            return SpokenYesNo("approve")
        goes_on = any(character.isalnum() for character in rest)
        return None if goes_on and word not in _SAID_OF_NOTHING_ELSE else SpokenYesNo("unclear")
    return None


def yes_or_no(text: str) -> bool | None:
    """Return the answer to a question with two significant answers: yes or no, each alone."""
    first = _FIRST.match(text.lstrip())
    word = "" if first is None else _word(first)
    if first is None or word not in YES | NO or not _is_end(text.lstrip()[first.end() :]):
        return None
    return word in YES


def _word(found: re.Match[str]) -> str:
    return " ".join(found.group().lower().split())


def _is_end(rest: str) -> bool:
    rest = rest.rstrip()
    return len(rest) <= _LONGEST_END and re.fullmatch(_END, rest.lower()) is not None


def _is_around(character: str) -> bool:
    return not character.isalnum() and character != ">"
