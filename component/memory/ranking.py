"""The one ranking of memories: how well a text fits, and how two orders become one.

The words of a question are cut into groups of three characters (`index_words.grams`), so that
other forms of a word and compounds of it count in part. A memory fits as well as it has the groups
that are in the question, where a group that few of its owner's memories have says more.

Where there are vectors, the order by words and the order by meaning are combined by their
reciprocal ranks (Cormack, Clarke, Büttcher, SIGIR 2009). The reciprocal rank of the words counts in
proportion to how well they fit: a memory that shares one syllable with a question is no match for
one that means the same, and one that has all words of the question is.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from component.memory.index_words import grams, needle, wanted, words
from component.memory.knowledge_lines import Item, seconds_of

CHARACTERS: Final = 8000
"""Number of characters of a text whose words are looked for."""

_WORDS: Final = 40  # looked for at most
_READ: Final = 4000  # characters of a body that are ranked
_WEIGHTS: Final = (1.0, 0.95, 0.9, 0.8)  # of title, key, tags with topic, body
_MORE: Final = 20
_GROUPS: Final = 40  # of a longer question, a memory that has so many fits completely
_FRESH_S: Final = 30 * 86400.0
_FRESH: Final = 0.05  # what a memory of today counts more than an old one
_KEY: Final = 2.0  # the fit of a memory whose key is exactly the question
_LEAST: Final = 0.13  # what fits less well does not fit
_RANK_CONSTANT: Final = 10  # chosen on the development set of benchmarks/recall_set


class Asked(NamedTuple):
    """A question: its text, and the different groups of characters of its words."""

    text: str
    grams: tuple[str, ...]


class Ranked(NamedTuple):
    """A memory by its number; `score` grows with how well it fits."""

    number: int
    score: float


def asked_for(text: str, *, common: bool) -> Asked:
    """What a text asks for; `common` includes words that nearly every sentence has."""
    found = wanted(text[:CHARACTERS], common=common)[:_WORDS]
    return Asked(text.strip(), tuple(dict.fromkeys(gram for word in found for gram in grams(word))))


def all_grams(item: Item) -> list[str]:
    """The different groups of characters of a memory, as they are indexed."""
    texts = (item.title, item.key, " ".join((*item.tags, item.topic)), item.body)
    found = dict.fromkeys(word for text in texts for word in words(text))
    return list(dict.fromkeys(gram for word in found for gram in grams(word)))


def worth(memories: int, having: int) -> float:
    """How much a group says that `having` of so many memories have.

    This is the inverse document frequency of BM25, for an owner with some more memories than there
    are: with few, that none has a group would say more than that one has.
    """
    return math.log(1 + (memories + _MORE - having + 0.5) / (having + 0.5))


def fit(item: Item, asked: Asked, worths: Mapping[str, float], now: float) -> float:
    """How well the words of a memory fit a question: 0 for not at all, about 1 for all its words.

    `worths` says how much each group of the question says; `now` is in seconds since 1970.
    """
    if asked.text.casefold() == item.key.casefold():
        return _KEY
    left = dict(worths)
    found = 0.0
    texts = (item.title, item.key, " ".join((*item.tags, item.topic)), item.body[:_READ])
    for weight, text in zip(_WEIGHTS, texts, strict=True):
        if not text:
            continue
        # To search a text for the groups takes a tenth of the time of cutting it into groups.
        joined = f"_{'_'.join(words(text))}_"
        for gram in [gram for gram in left if needle(gram) in joined]:
            found += left.pop(gram) * weight
    total = sum(worths.values())
    if not found or not total:
        return 0.0
    if len(worths) > _GROUPS:
        total *= _GROUPS / len(worths)
    found = min(1.0, found / total)
    if found < _LEAST:
        return 0.0
    updated = seconds_of(item.updated)
    if updated is not None:
        found *= 1 + _FRESH * math.exp(-max(0.0, now - updated) / _FRESH_S)
    return found


def by_words(fits: Mapping[int, float]) -> list[Ranked]:
    """The memories that fit, the best first, the newer one first among equals."""
    found = [Ranked(number, score) for number, score in fits.items() if score > 0]
    return _sorted(found)


def combined(by_word: Sequence[Ranked], by_meaning: Iterable[int]) -> list[Ranked]:
    """One order of two: that by words with their fits, and that by meaning."""
    scores: dict[int, float] = {}
    for rank, (number, fits) in enumerate(by_word, 1):
        scores[number] = fits / (_RANK_CONSTANT + rank)
    for rank, number in enumerate(by_meaning, 1):
        scores[number] = scores.get(number, 0.0) + 1 / (_RANK_CONSTANT + rank)
    return _sorted([Ranked(number, score) for number, score in scores.items()])


def _sorted(found: list[Ranked]) -> list[Ranked]:
    return sorted(found, key=lambda one: (one.score, one.number), reverse=True)
