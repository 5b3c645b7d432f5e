"""Search and ranking of memories: the full-text index and the vectors give candidates, which are
ranked here. The result depends on the memories of their owner alone, not on those of others.

The words of a question are cut into groups of three characters (`words.grams`), so that other forms
of a word and compounds of it match in part. The fit of a memory is the share of the question's
groups that it has; a group that few memories of the owner have has more weight.

With vectors, the order by words and the order by meaning are combined by their reciprocal ranks
(Cormack, Clarke, Büttcher, SIGIR 2009). The reciprocal rank of the words is multiplied by the fit:
a memory that shares one syllable with a question is worth less than one that means the same, and
one that has all words of the question is worth as much.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from component import system
from component.memory.index import Index, Owner, filters_of, items_by_number, placeholders
from component.memory.knowledge_lines import Item, seconds_of
from component.memory.vectors import Vectors
from component.memory.words import grams, needle, wanted, words

if TYPE_CHECKING:
    from sqlite3 import Connection

CHARACTERS: Final = 8000
"""Number of characters of a text whose words are searched for."""

_WORDS: Final = 40  # of a question, at most
_BODY_CHARACTERS: Final = 4000  # characters of a body that are ranked
_WEIGHTS: Final = (1.0, 0.95, 0.9, 0.8)  # of title, key, tags with topic, body
_MORE: Final = 20
_GROUPS: Final = 40  # of a longer question that a memory needs for a complete fit
_FRESH_S: Final = 30 * 86400.0
_FRESH: Final = 0.05  # additional fit of a memory of today
_KEY: Final = 2.0  # the fit of a memory whose key is exactly the question
_MINIMUM_FIT: Final = 0.13
_RANK_CONSTANT: Final = 10  # chosen on the development set of benchmarks/recall_set
_POSTINGS: Final = 2000  # numbers of memories that are read for the groups of a question
_CANDIDATES: Final = 30  # memories that are ranked
_RELATIVE: Final = 0.65  # minimum similarity of a vector, as a share of the best one
_COUNTS: Final = 20_000  # cached numbers of memories that have a group
_RARE: Final = 6  # groups that are searched for together if all are too frequent


class Search(NamedTuple):
    """A search for words, or for the newest memories without words, of a topic and with all tags.

    `common` includes words that nearly every sentence has.
    """

    text: str
    topic: str = ""
    tags: tuple[str, ...] = ()
    most: int = 5
    common: bool = False


class Hit(NamedTuple):
    """A memory that was found; a higher `score` is a better match."""

    owner: str
    item: Item
    score: float


class SearchTerms(NamedTuple):
    """A question: its text, and the different groups of characters of its words."""

    text: str
    grams: tuple[str, ...]


class Ranked(NamedTuple):
    """A memory by its number; a higher `score` is a better match."""

    number: int
    score: float


def search_terms(text: str, *, common: bool) -> SearchTerms:
    """Return the question in a text; `common` includes words that nearly every sentence has."""
    found = wanted(text[:CHARACTERS], common=common)[:_WORDS]
    return SearchTerms(
        text.strip(), tuple(dict.fromkeys(gram for word in found for gram in grams(word)))
    )


def weight_of(memories: int, having: int) -> float:
    """Return the weight of a group that `having` of so many memories have.

    This is the inverse document frequency of BM25 for an owner with some more memories. Otherwise,
    with few memories, a group that none has would get too much weight.
    """
    return math.log(1 + (memories + _MORE - having + 0.5) / (having + 0.5))


def fit(item: Item, terms: SearchTerms, weights: Mapping[str, float], now: float) -> float:
    """Return the fit of a memory to a question: 0 for none, about 1 if it has all words.

    `weights` has the weight of each group of the question; `now` is in seconds since 1970.
    """
    if terms.text.casefold() == item.key.casefold():
        return _KEY
    left = dict(weights)
    found = 0.0
    texts = (item.title, item.key, " ".join((*item.tags, item.topic)), item.body[:_BODY_CHARACTERS])
    for weight, text in zip(_WEIGHTS, texts, strict=True):
        if not text:
            continue
        # To search a text for the groups takes a tenth of the time to cut it into groups.
        joined = f"_{'_'.join(words(text))}_"
        for gram in [gram for gram in left if needle(gram) in joined]:
            found += left.pop(gram) * weight
    total = sum(weights.values())
    if not found or not total:
        return 0.0
    if len(weights) > _GROUPS:
        total *= _GROUPS / len(weights)
    found = min(1.0, found / total)
    if found < _MINIMUM_FIT:
        return 0.0
    updated = seconds_of(item.updated)
    if updated is not None:
        found *= 1 + _FRESH * math.exp(-max(0.0, now - updated) / _FRESH_S)
    return found


def by_words(fits: Mapping[int, float]) -> list[Ranked]:
    """Return the memories that fit, the best first; of equal ones, the newer one first."""
    found = [Ranked(number, score) for number, score in fits.items() if score > 0]
    return _sorted(found)


def combined(by_word: Sequence[Ranked], by_meaning: Iterable[int]) -> list[Ranked]:
    """Combine the order by words, with the fits, and the order by meaning."""
    scores: dict[int, float] = {}
    for rank, (number, fits) in enumerate(by_word, 1):
        scores[number] = fits / (_RANK_CONSTANT + rank)
    for rank, number in enumerate(by_meaning, 1):
        scores[number] = scores.get(number, 0.0) + 1 / (_RANK_CONSTANT + rank)
    return _sorted([Ranked(number, score) for number, score in scores.items()])


def _sorted(found: list[Ranked]) -> list[Ranked]:
    return sorted(found, key=lambda one: (one.score, one.number), reverse=True)


class Finder:
    """Searches an index. Its methods wait for the disk: call them in worker threads."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._vectors = None if index.embedder is None else Vectors()
        self._counts: dict[str, int] = {}

    def search_owners(
        self, connection: "Connection", owners: Mapping[str, Owner], search: Search
    ) -> list[Hit]:
        """Return the best matches among the memories of these owners, the best first."""
        terms = search_terms(search.text, common=search.common)
        filters = filters_of(search.topic, search.tags)
        by_id = {owner.id: name for name, owner in owners.items() if owner.items}
        chosen = [owner for owner in owners.values() if owner.items]
        if not chosen or (terms.text and not terms.grams):
            return []
        if not terms.grams:
            numbers = self._newest(connection, by_id, filters, search.most)
            ranked = [Ranked(number, 0.0) for number in sorted(numbers, reverse=True)]
            found = items_by_number(connection, numbers)
        else:
            ranked, found = self._by_words(connection, chosen, terms, filters)
            if self._vectors is not None:
                near = self._by_meaning(connection, chosen, search, filters)
                ranked = combined(ranked, near)
                missing = [one.number for one in ranked[: search.most] if one.number not in found]
                found.update(items_by_number(connection, missing))
        # A number of a deleted memory, or of one of another owner, is ignored.
        return [
            Hit(by_id[found[number][0]], found[number][1], score)
            for number, score in ranked
            if number in found and found[number][0] in by_id
        ][: search.most]

    def _newest(
        self, connection: "Connection", owners: Iterable[int], filters: list[str], most: int
    ) -> list[int]:
        numbers: list[int] = []
        for owner in owners:
            if filters:
                numbers += _matching(connection, _all(_term(owner, word) for word in filters), most)
                continue
            rows = connection.execute(
                "SELECT id FROM items WHERE owner = ? ORDER BY id DESC LIMIT ?", (owner, most)
            )
            numbers += [number for (number,) in rows]
        return sorted(numbers, reverse=True)[:most]

    def _by_words(
        self,
        connection: "Connection",
        owners: Sequence[Owner],
        terms: SearchTerms,
        filters: list[str],
    ) -> tuple[list[Ranked], dict[int, tuple[int, Item]]]:
        weights: dict[int, dict[str, float]] = {}
        numbers: list[int] = []
        for owner in owners:
            counts = self._counts_of(connection, owner.id, terms.grams)
            weights[owner.id] = {gram: weight_of(owner.items, counts[gram]) for gram in terms.grams}
            numbers += _candidates(connection, owner, counts, filters)
        found = items_by_number(connection, list(dict.fromkeys(numbers)))
        now = system.time()
        fits = {
            number: fit(item, terms, weights[owner], now)
            for number, (owner, item) in found.items()
            if owner in weights
        }
        return by_words(fits), found

    def _by_meaning(
        self, connection: "Connection", owners: Sequence[Owner], search: Search, filters: list[str]
    ) -> list[int]:
        assert self._vectors is not None
        assert self._index.embedder is not None
        vector = self._index.embedder.question(search.text[:CHARACTERS])
        if vector is None:
            return []
        near = [
            one
            for owner in owners
            for one in self._vectors.nearest(connection, owner.id, owner.items, vector, _CANDIDATES)
        ]
        if filters and near:
            fitting = set()
            for owner in owners:
                query = _all(_term(owner.id, word) for word in filters)
                fitting.update(_matching(connection, query, owner.items))
            near = [one for one in near if one.item in fitting]
        near.sort(key=lambda one: one.similarity, reverse=True)
        enough = near[0].similarity * _RELATIVE if near else 0.0
        return [one.item for one in near[:_CANDIDATES] if one.similarity >= enough]

    def _counts_of(
        self, connection: "Connection", owner: int, grams: Sequence[str]
    ) -> dict[str, int]:
        terms = {f"{owner}_{gram}": gram for gram in grams}
        counts = {term: self._counts.get(term, 0) for term in terms}
        unknown = [term for term in terms if not counts[term]]
        query = f"SELECT term, doc FROM vocabulary WHERE term IN ({placeholders(unknown)})"  # noqa: S608
        for term, count in connection.execute(query, unknown):
            counts[term] = count
            if count > _POSTINGS // 10:
                # To count them takes long, and an older count is good enough.
                if len(self._counts) >= _COUNTS:
                    self._counts.clear()
                self._counts[term] = count
        return {terms[term]: count for term, count in counts.items()}


def _candidates(
    connection: "Connection", owner: Owner, counts: Mapping[str, int], filters: list[str]
) -> list[int]:
    """Return numbers of memories of an owner that may fit: those that have the rarest groups."""
    known = sorted((count, gram) for gram, count in counts.items() if count)
    narrow = [_term(owner.id, word) for word in filters]
    sums: dict[int, float] = {}
    left = _POSTINGS
    read = 0
    for count, gram in known:
        if count > left:
            break
        left -= count
        read += 1
        weight = weight_of(owner.items, count)
        for number in _matching(connection, _all([_term(owner.id, gram), *narrow]), _POSTINGS):
            sums[number] = sums.get(number, 0.0) + weight
    numbers = heapq.nlargest(_CANDIDATES, sums, key=lambda number: (sums[number], number))
    if read < len(known):
        rarest = [_term(owner.id, gram) for _, gram in known[:_RARE]]
        numbers += _matching(connection, _all([*rarest, *narrow]), _CANDIDATES)
        if not numbers:
            numbers += _matching(connection, _all([*rarest[:1], *narrow]), _CANDIDATES)
    return numbers


def _matching(connection: "Connection", query: str, most: int) -> list[int]:
    rows = connection.execute(
        "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT ?", (query, most)
    )
    return [number for (number,) in rows]


def _term(owner: int, word: str) -> str:
    # A word has letters, digits, marks and underscores, and no quotation mark.
    return f'"{owner}_{word}"'


def _all(terms: Iterable[str]) -> str:
    return f"({' AND '.join(terms)})"
