"""Finds memories: FTS5 and the vectors name candidates, `ranking` puts them in order.

The order depends on the memories of their owner alone, not on what others have stored.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from component import system
from component.memory.index import Index, Owner, filters_of, rows_of
from component.memory.knowledge_lines import Item
from component.memory.ranking import (
    CHARACTERS,
    Asked,
    Ranked,
    all_grams,
    asked_for,
    by_words,
    combined,
    fit,
    worth,
)
from component.memory.vectors import Vectors

if TYPE_CHECKING:
    from sqlite3 import Connection

_POSTINGS: Final = 2000  # numbers of memories that are read for the groups of a question
_CANDIDATES: Final = 30  # memories that are ranked here
_BESIDE: Final = 0.65  # of the greatest likeness: what is less like the question is left out
_COUNTS: Final = 20_000  # numbers of memories that have a group, kept in memory
_RARE: Final = 6  # groups that are looked for together if all are too frequent


class Search(NamedTuple):
    """What is looked for: words, or the newest if there are none, of a topic and with all tags.

    `common` includes words that nearly every sentence has.
    """

    text: str
    topic: str = ""
    tags: tuple[str, ...] = ()
    most: int = 5
    common: bool = False


class Hit(NamedTuple):
    """A memory that was found; `score` grows with how well it fits."""

    owner: str
    item: Item
    score: float


class Finder:
    """Searches an index. Its methods wait for the disk: call them in worker threads."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._vectors = None if index.embedder is None else Vectors()
        self._counts: dict[str, int] = {}

    def among(
        self, connection: "Connection", owners: Mapping[str, Owner], search: Search
    ) -> list[Hit]:
        """The memories of these owners that fit best, the best first."""
        asked = asked_for(search.text, common=search.common)
        filters = filters_of(search.topic, search.tags)
        by_id = {owner.id: name for name, owner in owners.items() if owner.items}
        chosen = [owner for owner in owners.values() if owner.items]
        if not chosen or (asked.text and not asked.grams):
            return []
        if not asked.grams:
            numbers = self._newest(connection, by_id, filters, search.most)
            ranked = [Ranked(number, 0.0) for number in sorted(numbers, reverse=True)]
            found = rows_of(connection, numbers)
        else:
            ranked, found = self._by_words(connection, chosen, asked, filters)
            if self._vectors is not None:
                near = self._by_meaning(connection, chosen, search, filters)
                ranked = combined(ranked, near)
                missing = [one.number for one in ranked[: search.most] if one.number not in found]
                found.update(rows_of(connection, missing))
        # A number of a memory that is gone, or of another owner, gives no hit.
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
        asked: Asked,
        filters: list[str],
    ) -> tuple[list[Ranked], dict[int, tuple[int, Item]]]:
        worths: dict[int, dict[str, float]] = {}
        numbers: list[int] = []
        for owner in owners:
            counts = {gram: self._count(connection, owner.id, gram) for gram in asked.grams}
            worths[owner.id] = {gram: worth(owner.items, counts[gram]) for gram in asked.grams}
            numbers += _candidates(connection, owner, counts, filters)
        found = rows_of(connection, list(dict.fromkeys(numbers)))
        now = system.time()
        fits = {
            number: fit(item, asked, worths[owner], now)
            for number, (owner, item) in found.items()
            if owner in worths
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
        near.sort(key=lambda one: one.likeness, reverse=True)
        enough = near[0].likeness * _BESIDE if near else 0.0
        return [one.item for one in near[:_CANDIDATES] if one.likeness >= enough]

    def _count(self, connection: "Connection", owner: int, gram: str) -> int:
        """The number of an owner's memories that have a group of characters."""
        term = f"{owner}_{gram}"
        if (count := self._counts.get(term)) is not None:
            return count
        row = connection.execute("SELECT doc FROM vocabulary WHERE term = ?", (term,)).fetchone()
        count = 0 if row is None else int(row[0])
        if count > _POSTINGS // 10:
            # Counting them takes long, and an older count is good enough.
            if len(self._counts) >= _COUNTS:
                self._counts.clear()
            self._counts[term] = count
        return count


def among_items(items: Sequence[Item], search: Search) -> list[Item]:
    """Those of a few memories that fit best by their words, without an index."""
    topic, tags = search.topic.casefold(), {tag.casefold() for tag in search.tags}
    items = [
        item
        for item in items
        if (not topic or item.topic.casefold() == topic)
        and tags.issubset(map(str.casefold, item.tags))
    ]
    asked = asked_for(search.text, common=search.common)
    if not asked.grams:
        return [] if asked.text else list(reversed(items))[: search.most]
    having = Counter(gram for item in items for gram in all_grams(item))
    worths = {gram: worth(len(items), having[gram]) for gram in asked.grams}
    now = system.time()
    ranked = by_words({at: fit(item, asked, worths, now) for at, item in enumerate(items)})
    return [items[one.number] for one in ranked[: search.most]]


def _candidates(
    connection: "Connection", owner: Owner, counts: Mapping[str, int], filters: list[str]
) -> list[int]:
    """Numbers of an owner's memories that may fit: those that have the rarest groups."""
    known = sorted((count, gram) for gram, count in counts.items() if count)
    narrow = [_term(owner.id, word) for word in filters]
    sums: dict[int, float] = {}
    left = _POSTINGS
    looked = 0
    for count, gram in known:
        if count > left:
            break
        left -= count
        looked += 1
        weight = worth(owner.items, count)
        for number in _matching(connection, _all([_term(owner.id, gram), *narrow]), _POSTINGS):
            sums[number] = sums.get(number, 0.0) + weight
    numbers = heapq.nlargest(_CANDIDATES, sums, key=lambda number: (sums[number], number))
    if looked < len(known):
        rarest = [_term(owner.id, gram) for _, gram in known[:_RARE]]
        numbers += _matching(connection, _all([*rarest, *narrow]), _CANDIDATES)
        if not numbers:
            numbers += _matching(connection, _all([*rarest[:1], *narrow]), _CANDIDATES)
    return numbers


def _matching(connection: "Connection", query: str, most: int) -> list[int]:
    """Numbers of the memories that match, the newest first."""
    rows = connection.execute(
        "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT ?", (query, most)
    )
    return [number for (number,) in rows]


def _term(owner: int, word: str) -> str:
    # A word has letters, digits, marks and underscores, and no quotation mark.
    return f'"{owner}_{word}"'


def _all(terms: Iterable[str]) -> str:
    return f"({' AND '.join(terms)})"
