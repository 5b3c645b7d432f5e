"""The words of a text, for the index: the same for memories and searches.

Letters are compared without case, and without the marks that people leave out when they type: the
accents of Latin, Greek and Cyrillic, the vowel points of Hebrew and Arabic. Scripts that are
written without spaces between words, and Hangul, whose words carry their particles, are cut into
overlapping pairs of characters.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_COMMON: Final = Path(__file__).with_name("common_words.txt")
_LONGEST = 48  # characters of a word; longer ones are hashes or URLs, and are cut

# Han, kana, Hangul, Thai, Lao, Burmese, Khmer.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_WORD = re.compile(r"[a-z0-9]+")

_LEFT_OUT = (
    (0x0300, 0x036F),  # accents
    (0x0591, 0x05C7),  # Hebrew points
    (0x064B, 0x065F),  # Arabic vowels
    (0x0670, 0x0670),
    (0x0640, 0x0640),  # the stroke that only makes an Arabic word longer
)


class _Letters(dict[int, str | None]):
    """Replaces each character: it stays, is dropped, or ends a word."""

    def __missing__(self, code: int) -> str | None:
        character: str | None = chr(code)
        if any(first <= code <= last for first, last in _LEFT_OUT):
            character = None
        elif unicodedata.category(chr(code))[0] not in "LNM":
            character = " "
        self[code] = character
        return character


_letters = _Letters()


# Compiled for the first text that is not ASCII: each takes 5 milliseconds.
@functools.cache
def _runs() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED} ]+")


@functools.cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]")


def words(text: str) -> list[str]:
    """Return the words of a text, in their order and with repetitions."""
    if text.isascii():
        return [word[:_LONGEST] for word in _ASCII_WORD.findall(text.lower())]
    folded = unicodedata.normalize("NFKD", text.casefold()).casefold().translate(_letters)
    found: list[str] = []
    for run in _runs().findall(unicodedata.normalize("NFC", folded)):
        if not _unspaced().match(run):
            found.append(run[:_LONGEST])
            continue
        found += [run[at : at + 2] for at in range(len(run) - 1)]
        # Alone, too, so that a single character is found at the end of a run.
        found.append(run[-1])
    return found


def wanted(text: str, *, common: bool) -> list[str]:
    """Return the different words of a text to search for, in their order.

    Words that nearly every sentence has are included only with `common`. A single letter is
    ignored; a single character of a script without spaces is a word.
    """
    found = dict.fromkeys(_without_ends(words(text)))
    if not common:
        for word in _common().intersection(found):
            del found[word]
    return [word for word in found if len(word) > 1 or not word.isascii()]


@functools.lru_cache(maxsize=16384)
def grams(word: str) -> tuple[str, ...]:
    """Return the parts that a word shares with its other forms and compounds.

    These are its overlapping groups of three characters, with `_` before its beginning and after
    its end. A word of one or two characters is its only part; a pair of a script without spaces
    has its characters as parts, too.
    """
    if len(word) < 3:
        return (word,) if len(word) == 1 or not _unspaced().match(word) else (word, *word)
    padded = f"_{word}_"
    return tuple([padded[at : at + 3] for at in range(len(padded) - 2)])


def grams_of(texts: Iterable[str]) -> list[str]:
    """Return the different groups of characters of some texts."""
    found = dict.fromkeys(word for text in texts for word in words(text))
    return list(dict.fromkeys(gram for word in found for gram in grams(word)))


@functools.lru_cache(maxsize=4096)
def needle(gram: str) -> str:
    """Return the string to search for a group of characters in a text whose words are joined and
    surrounded by `_`.

    A word of one or two characters must be a whole word, but a single character of a script without
    spaces may be anywhere.
    """
    if len(gram) > 2 or (len(gram) == 1 and _unspaced().match(gram)):
        return gram
    return f"_{gram}_"


def _without_ends(found: list[str]) -> Iterator[str]:
    # `words` adds the last character of a run; a search for the run needs only its pairs.
    previous = ""
    for word in found:
        if not (previous[1:] == word and _unspaced().match(word)):
            yield word
        previous = word


@functools.cache
def _common() -> frozenset[str]:
    lines = _COMMON.read_text(encoding="utf-8").splitlines()
    found = (word for line in lines if not line.startswith("#") for word in line.split())
    return frozenset(next(_without_ends(words(word))) for word in found)
