"""Finding memories: which words to look for, and in which order what was found comes.

FTS5 finds what may fit, the best by bm25; the order is then made here, of a few memories, with
figures of their owner alone. Words that an owner has in very many memories are no way to find one:
they only count in what the others have found, or all together.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from component.memory.index import Index, Owner, filters_of, rows_of
from component.memory.index_ranking import (
    CHARACTERS,
    OTHER_FORM,
    WEIGHTS,
    Word,
    asked_for,
    fields,
    is_everywhere,
    is_form,
    is_telling,
    score,
    worth,
)
from component.memory.index_words import begins
from component.memory.knowledge_lines import Item
from component.memory.vectors import Vectors

if TYPE_CHECKING:
    from sqlite3 import Connection

_SCORED: Final = 800  # memories that FTS5 ranks at most; it takes 2 µs for each
_CANDIDATES: Final = 30  # that are ranked here
_FORMS: Final = 40  # other forms of a word that are looked for
_RANK_CONSTANT: Final = 60  # of reciprocal rank fusion


class Search(NamedTuple):
    """What is looked for: words, or the newest if there are none, of a topic and with all tags.

    `common` looks for words that nearly every sentence has as well.
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
        self._frequent: dict[str, int] = {}

    def among(
        self, connection: "Connection", owners: Mapping[str, Owner], search: Search
    ) -> list[Hit]:
        """What fits best, of these owners and of nobody else."""
        asked = asked_for(search.text, common=search.common)
        filters = filters_of(search.topic, search.tags)
        by_id = {owner.id: name for name, owner in owners.items() if owner.items}
        if not by_id:
            return []
        if not asked:
            if search.text.strip():
                return []
            return self._newest(connection, by_id, filters, search.most)
        chosen = [owner for owner in owners.values() if owner.items]
        ranked, found = self._by_words(connection, chosen, asked, filters, search)
        if self._vectors is not None:
            ranked = self._with_meaning(connection, chosen, search, filters, ranked)
            missing = [number for number, _ in ranked if number not in found]
            found.update(rows_of(connection, missing))
        # Asked for by number: what is not of one of these owners is nobody's here.
        return [
            Hit(by_id[found[number][0]], found[number][1], score)
            for number, score in ranked
            if number in found and found[number][0] in by_id
        ][: search.most]

    def _newest(
        self, connection: "Connection", by_id: Mapping[int, str], filters: list[str], most: int
    ) -> list[Hit]:
        if filters:
            query = _any(_all(_term(owner, word) for word in filters) for owner in by_id)
            numbers = _matching(connection, query, most)
        else:
            numbers = []
            for owner in by_id:
                numbers += [
                    row[0]
                    for row in connection.execute(
                        "SELECT id FROM items WHERE owner = ? ORDER BY id DESC LIMIT ?",
                        (owner, most),
                    )
                ]
        found = rows_of(connection, sorted(numbers, reverse=True)[:most])
        return [
            Hit(by_id[found[number][0]], found[number][1], 0.0)
            for number in sorted(found, reverse=True)
            if found[number][0] in by_id
        ]

    def _by_words(
        self,
        connection: "Connection",
        owners: Sequence[Owner],
        asked: list[str],
        filters: list[str],
        search: Search,
    ) -> tuple[list[tuple[int, float]], dict[int, tuple[int, Item]]]:
        """What the words have found: the numbers and their scores in order, and the memories."""
        exact = {
            owner.id: self._known(connection, owner, asked, common=search.common)
            for owner in owners
        }
        numbers = _candidates(connection, exact, filters)
        if len(numbers) < search.most:
            for owner in owners:
                exact[owner.id] += self._other_forms(connection, owner, asked, exact[owner.id])
            numbers += _candidates(connection, exact, filters)
        found = rows_of(connection, list(dict.fromkeys(numbers)))
        now = time.time()
        scored = [
            (number, score(item, fields(item), exact.get(owner, []), search.text, now))
            for number, (owner, item) in found.items()
        ]
        # The newer one first among equals.
        return sorted(scored, key=lambda one: (one[1], one[0]), reverse=True), found

    def _known(
        self, connection: "Connection", owner: Owner, asked: list[str], *, common: bool
    ) -> list[Word]:
        """The words that an owner has, the rarest first."""
        known = []
        for place, word in enumerate(asked):
            count = self._count(connection, owner, word)
            if not count or (not common and is_everywhere(count, owner.items)):
                continue
            known.append(Word(word, place, count, worth(owner.items, count)))
        return sorted(known, key=lambda word: word.memories)

    def _count(self, connection: "Connection", owner: Owner, word: str) -> int:
        term = f"{owner.id}_{word}"
        if (count := self._frequent.get(term)) is not None:
            return count
        row = connection.execute("SELECT doc FROM vocabulary WHERE term = ?", (term,)).fetchone()
        count = 0 if row is None else int(row[0])
        if count > _SCORED // 10:
            # Counting them takes long, and a figure of some time ago is good enough to plan with.
            if len(self._frequent) >= 10000:
                self._frequent.clear()
            self._frequent[term] = count
        return count

    def _other_forms(
        self,
        connection: "Connection",
        owner: Owner,
        asked: list[str],
        known: Iterable[Word],
    ) -> list[Word]:
        """Words that begin as one that was asked for does."""
        have = {word.text for word in known}
        found = []
        for place, word in enumerate(asked):
            first = f"{owner.id}_{begins(word)}"
            rows = connection.execute(
                "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? LIMIT ?",
                (first, first + "\U0010ffff", _FORMS),
            )
            for term, count in rows:
                text = term.partition("_")[2]
                if text not in have and is_form(text, word) and is_telling(count, owner.items):
                    tells = worth(owner.items, count) * OTHER_FORM
                    found.append(Word(text, place, count, tells))
        return sorted(found, key=lambda word: word.memories)

    def _with_meaning(
        self,
        connection: "Connection",
        owners: Sequence[Owner],
        search: Search,
        filters: list[str],
        ranked: list[tuple[int, float]],
    ) -> list[tuple[int, float]]:
        """Both orders as one: reciprocal rank fusion (Cormack, Clarke, Büttcher, SIGIR 2009)."""
        assert self._vectors is not None
        assert self._index.embedder is not None
        vector = self._index.embedder.question(search.text[:CHARACTERS])
        near = [
            one
            for owner in owners
            for one in self._vectors.nearest(connection, owner.id, owner.items, vector, _CANDIDATES)
        ]
        if filters and near:
            fit = set()
            for owner in owners:
                query = _all(_term(owner.id, word) for word in filters)
                fit.update(_matching(connection, query, owner.items))
            near = [one for one in near if one.item in fit]
        near.sort(key=lambda one: one.likeness, reverse=True)
        scores: dict[int, float] = {}
        for numbers in ([number for number, _ in ranked], [one.item for one in near]):
            for rank, number in enumerate(numbers, 1):
                scores[number] = scores.get(number, 0.0) + 1 / (_RANK_CONSTANT + rank)
        return sorted(scores.items(), key=lambda one: (one[1], one[0]), reverse=True)


def _candidates(
    connection: "Connection", known: Mapping[int, Sequence[Word]], filters: list[str]
) -> list[int]:
    """Numbers of memories that may fit."""
    some: list[str] = []
    every: list[str] = []
    room = _SCORED
    for owner, words_ in known.items():
        narrow = [_term(owner, word) for word in filters]
        few = []
        for word in words_:
            if word.memories > room:
                break
            room -= word.memories
            few.append(_term(owner, word.text))
        if few:
            some.append(_all([_any(few), *narrow]))
        if len(few) < len(words_):
            rarest = [_term(owner, word.text) for word in words_[:6]]
            every.append(_all([*rarest, *narrow]))
            if not few:
                some.append(_all([*rarest[:1], *narrow]))
    numbers: list[int] = []
    if some:
        numbers += _matching(connection, _any(some), _CANDIDATES, ranked=room < _SCORED)
    if every:
        numbers += _matching(connection, _any(every), _CANDIDATES)
    return numbers


def _matching(
    connection: "Connection", query: str, most: int, *, ranked: bool = False
) -> list[int]:
    """Numbers of what matches: the best by bm25, or the newest."""
    weights = ", ".join(map(str, WEIGHTS))
    order = f"bm25(texts, {weights})" if ranked else "rowid DESC"
    rows = connection.execute(
        f"SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY {order} LIMIT ?",  # noqa: S608
        (query, most),
    )
    return [number for (number,) in rows]


def _term(owner: int, word: str) -> str:
    # A word holds letters, digits and marks, and no quotation mark.
    return f'"{owner}_{word}"'


def _all(terms: Iterable[str]) -> str:
    return f"({' AND '.join(terms)})"


def _any(terms: Iterable[str]) -> str:
    return f"({' OR '.join(terms)})"
