"""Renders values for people who have to decide: complete, or with a statement of what is missing.

A value comes from the principal who requests the work, and is shown to a person who has to approve
it. So every value is quoted as JSON, stays on one line, and hides nothing: characters that are
invisible or change the direction of writing are escaped, letters that look like others are named.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

WHOLE: Final = 4_000
"""The maximum number of characters that are shown unabridged, all values together; clients truncate
longer messages themselves.
"""
_LONGEST_CUT: Final = 500
_LONGEST_NAME: Final = 100
_MOST_MARKS: Final = 4
"""The maximum number of combining marks in a row that a script needs; more would cover the text
around them.
"""
_MOST_NAMED: Final = 3
_REMEMBERED: Final = 4_096
# Printable in Python's sense, but invisible (Default_Ignorable_Code_Point, and the empty Braille
# pattern).
_UNSEEN: Final = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
_WORD: Final = r"\w+"
_LIKE_LATIN: Final = frozenset(("ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "GREEK", "LISU"))


class ShownParameters(msgspec.Struct, frozen=True):
    """Parameters as texts: one for each, and whether any was truncated."""

    lines: tuple[str, ...]
    cut: bool


def shown_parameters(values: Mapping[str, Any]) -> ShownParameters:
    """Return each parameter as `name: value`.

    All are complete if they fit; otherwise long ones are truncated, which is stated before the
    value, with the SHA-256 of the JSON of the complete value.
    """
    texts = [quoted(value) for value in values.values()]
    fits = sum(map(len, texts)) <= WHOLE
    lines = []
    cut = False
    for (name, value), said in zip(values.items(), texts, strict=True):
        label, text = printable_name(name), said
        if not fits and len(text) > _LONGEST_CUT:
            cut = True
            whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
            label += f" (first {_LONGEST_CUT} of {len(whole):,} characters shown; SHA-256 {digest})"
            text = quoted(whole[:_LONGEST_CUT])
        lines.append(f"{label}: {text}{look_alikes(value)}")
    return ShownParameters(tuple(lines), cut)


def quoted(value: object) -> str:
    """Return a value as JSON, on one line and without invisible characters."""
    return visible(json.dumps(value, ensure_ascii=False))


def visible(text: str, keep: str = "") -> str:
    """The text, with an escape for each character that cannot be seen, but for those to `keep`.

    The escapes are those of JSON, `\\u202e`.
    """
    if text.isascii() and text.isprintable():
        return text
    found: list[str] = []
    marks = 0
    for character in text:
        seen, is_mark = (True, False) if " " <= character <= "~" else _looks(character)
        marks = marks + 1 if is_mark else 0
        seen = (seen and marks <= _MOST_MARKS) or character in keep
        found.append(character if seen else _escape(character))
    return "".join(found)


def printable_name(name: str) -> str:
    """Return the name of a parameter or a skill, or an address, on one line."""
    text = visible(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


@lru_cache(_REMEMBERED)
def _looks(character: str) -> tuple[bool, bool]:
    """Return whether a character is visible, and whether it combines with another one."""
    seen = character.isprintable() and not re.match(_UNSEEN, character)
    return seen, unicodedata.category(character) in ("Mn", "Me")


@lru_cache(_REMEMBERED)
def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def look_alikes(value: object) -> str:
    """Return a note on the letters in a value that look like others; empty if there are none."""
    from component.policy.provenance import texts_in  # noqa: PLC0415 - only for confirmations

    named = dict.fromkeys(character for text in texts_in(value) for character in _disguised(text))
    if not named:
        return ""
    first = [f'"{one}" is {unicodedata.name(one)}' for one in list(named)[:_MOST_NAMED]]
    more = f", and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f" (careful, look-alike letters: {', '.join(first)}{more})"


def _disguised(text: str) -> Iterator[str]:
    """Yield letters of another script within a word with Latin ones, and disguised Latin
    letters.
    """
    if text.isascii():
        return
    for word in re.findall(_WORD, text):
        if word.isascii():
            continue
        strange = [one for one in word if _script(one) in _LIKE_LATIN]
        if any(_script(one) == "LATIN" for one in word):
            yield from strange
        for one in dict.fromkeys(word):
            plain = unicodedata.normalize("NFKC", one)
            if (
                one not in ("ª", "º", plain)
                and len(plain) == 1
                and plain.isascii()
                and plain.isalpha()
            ):
                yield one


@lru_cache(_REMEMBERED)
def _script(character: str) -> str:
    name = unicodedata.name(character, "") if character.isalpha() else ""
    return name.partition(" ")[0]


def listed(names: Sequence[str]) -> str:
    """Return names as an enumeration: `a, b and c`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
