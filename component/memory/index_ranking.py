"""How well a memory fits: what words tell, and bm25 over the fields of a memory."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from component.memory.index_words import wanted, words
from component.memory.knowledge_lines import Item, seconds_of

CHARACTERS: Final = 8000
"""Of a text in which words are looked for."""
WEIGHTS: Final = (3.0, 2.5, 2.0, 1.0, 0.0)
"""As in the columns of the index: title, key, tags with topic, body, filters."""
OTHER_FORM: Final = 0.5
"""What another form of a word tells, beside the word itself."""

_WORDS: Final = 40  # looked for at most
_ENDING: Final = 3  # characters that another form may be longer or shorter
_READ: Final = 4000  # characters of a body that are looked at to rank it
_MANY: Final = 20  # memories; with less of them every word is frequent
_SATURATION: Final = 1.2
_USUAL_LENGTH: Final = 40  # words of a body
_FRESH_S: Final = 30 * 86400.0

Fields: TypeAlias = tuple[list[str], list[str], list[str], list[str]]
"""The words of a memory: title, key, tags with topic, body."""


class Word(NamedTuple):
    """A word as an owner has it: `asked` is the place of the one it stands for, `memories`
    counts those that have it, `worth` is what it tells."""

    text: str
    asked: int
    memories: int
    worth: float


def asked_for(text: str, *, common: bool) -> list[str]:
    """The words that a text has looked for."""
    return wanted(text[:CHARACTERS], common=common)[:_WORDS]


def is_everywhere(memories: int, of: int) -> bool:
    """Whether a word is in so many of the memories that it tells nothing."""
    return of >= _MANY and memories * 2 > of


def is_telling(memories: int, of: int) -> bool:
    """Whether a form of a word is in so few of the memories that it is worth looking for."""
    return memories * 2 <= max(of, _MANY)


def is_form(text: str, word: str) -> bool:
    """Whether one of two words that begin alike may be a form of the other."""
    return abs(len(text) - len(word)) <= _ENDING


def worth(of: int, memories: int) -> float:
    """How much a word tells: the less of the memories have it, the more."""
    return math.log(1 + (of + 0.5) / (memories + 0.5))


def fields(item: Item) -> Fields:
    """The words of a memory by which it is ranked."""
    return (
        words(item.title),
        words(item.key),
        words(" ".join((*item.tags, item.topic))),
        words(item.body[:_READ]),
    )


def score(item: Item, told: Fields, known: Sequence[Word], text: str, now: float) -> float:
    """How well a memory fits a text: more for what is fresh or is named."""
    lookup = {word.text: word for word in known}
    best: dict[int, float] = {}
    for place, found in enumerate(told):
        long = 1.0 if place < 3 else 2 / (1 + max(1.0, len(found) / _USUAL_LENGTH))
        counted: dict[str, int] = {}
        for one in found:
            if one in lookup:
                counted[one] = counted.get(one, 0) + 1
        for one, times in counted.items():
            word = lookup[one]
            weight = WEIGHTS[place] * times * long
            value = word.worth * weight / (weight + _SATURATION)
            best[word.asked] = max(best.get(word.asked, 0.0), value)
    total = sum(best.values())
    if told[1] and all(one in lookup for one in told[1]):
        total *= 1.3
    if text.strip().casefold() == item.key.casefold():
        total += 100
    updated = seconds_of(item.updated)
    if updated is not None:
        total *= 1 + 0.25 * math.exp(-max(0.0, now - updated) / _FRESH_S)
    return total
