"""Memories of those who have few, kept in memory: what somebody who talks now has told before is
found without the disk. The order is that of `index_search`.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from component.memory.files import Seen
from component.memory.index_ranking import (
    OTHER_FORM,
    Fields,
    Word,
    asked_for,
    fields,
    is_everywhere,
    is_form,
    is_telling,
    score,
    worth,
)
from component.memory.index_search import Hit, Search
from component.memory.index_words import begins
from component.memory.knowledge_lines import Item

_MOST: Final = 16  # memories that are few
_BYTES: Final = 8192  # of a file of few
_KEPT: Final = 128  # owners


class _One(NamedTuple):
    number: int
    item: Item
    fields: Fields
    words: frozenset[str]


class Few:
    """All memories of an owner, as they are in the state of its file that was `seen`.

    Args:
        seen: that state.
        rows: the memories by their numbers in the index.
    """

    __slots__ = ("_counts", "_ones", "seen")

    def __init__(self, seen: Seen, rows: Iterable[tuple[int, Item]]) -> None:
        self.seen = seen
        self._ones = []
        for number, item in rows:
            told = fields(item)
            words = frozenset(word for field in told for word in field)
            self._ones.append(_One(number, item, told, words))
        self._counts = Counter(word for one in self._ones for word in one.words)

    def fitting(self, search: Search) -> list[_One]:
        """Those of the topic and with the tags that are looked for."""
        topic, tags = search.topic.casefold(), {tag.casefold() for tag in search.tags}
        return [
            one
            for one in self._ones
            if (not topic or one.item.topic.casefold() == topic)
            and (not tags or tags.issubset(map(str.casefold, one.item.tags)))
        ]

    def known(self, asked: Sequence[str], *, common: bool) -> list[Word]:
        """The words that are there."""
        of = len(self._ones)
        return [
            Word(word, place, count, worth(of, count))
            for place, word in enumerate(asked)
            if (count := self._counts.get(word, 0)) and (common or not is_everywhere(count, of))
        ]

    def other_forms(self, asked: Sequence[str], known: Sequence[Word]) -> Iterator[Word]:
        """Words that begin as one that was asked for does."""
        have, of = {word.text for word in known}, len(self._ones)
        for place, word in enumerate(asked):
            beginning = begins(word)
            for text, count in self._counts.items():
                if (
                    text.startswith(beginning)
                    and text not in have
                    and is_form(text, word)
                    and is_telling(count, of)
                ):
                    yield Word(text, place, count, worth(of, count) * OTHER_FORM)


class AtHand:
    """The few memories of those who were looked for last."""

    def __init__(self) -> None:
        self._few: OrderedDict[str, Few] = OrderedDict()

    def of(self, owner: str, seen: Seen) -> Few | None:
        """Those of an owner, if they are as its file is now."""
        found = self._few.get(owner)
        if found is None:
            return None
        if found.seen != seen:
            del self._few[owner]
            return None
        self._few.move_to_end(owner)
        return found

    def keep(self, few: Mapping[str, Few]) -> None:
        """Keep them until others push them out."""
        self._few.update(few)
        while len(self._few) > _KEPT:
            self._few.popitem(last=False)

    def drop(self, owner: str) -> None:
        """There are none any more."""
        self._few.pop(owner, None)


def is_small(items: int, seen: Seen) -> bool:
    """Whether so many memories, in a file of that state, are kept in memory."""
    return items <= _MOST and seen.size <= _BYTES


def find(owners: Mapping[str, Few], search: Search, now: float) -> list[Hit]:
    """What fits best, of these owners; `now` is in seconds since 1970."""
    asked = asked_for(search.text, common=search.common)
    there = {name: few.fitting(search) for name, few in owners.items()}
    if not asked and search.text.strip():
        return []
    ranked: list[tuple[float, int, Hit]] = []
    if not asked:
        ranked = [
            (0.0, one.number, Hit(name, one.item, 0.0))
            for name, ones in there.items()
            for one in ones
        ]
    else:
        known = {name: few.known(asked, common=search.common) for name, few in owners.items()}
        if sum(len(_having(ones, known[name])) for name, ones in there.items()) < search.most:
            for name, few in owners.items():
                known[name] += few.other_forms(asked, known[name])
        for name, ones in there.items():
            for one in _having(ones, known[name]):
                fits = score(one.item, one.fields, known[name], search.text, now)
                ranked.append((fits, one.number, Hit(name, one.item, fits)))
    ranked.sort(key=lambda one: one[:2], reverse=True)  # the newer one first among equals
    return [hit for _, _, hit in ranked[: search.most]]


def _having(ones: Sequence[_One], known: Sequence[Word]) -> list[_One]:
    texts = {word.text for word in known}
    return [one for one in ones if not texts.isdisjoint(one.words)]
