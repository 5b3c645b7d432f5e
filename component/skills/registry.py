"""All skills of a service, and the view of each requester.

Requesters whose views have the same skills share one listing, which is made at the first discovery;
executing never needs it.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import log
from operator import attrgetter
from typing import TypeVar

from component.caches import LRUCache
from component.skills.declare import own_skill
from component.skills.errors import DuplicateSkillError, SearchError
from component.skills.skill import Skill

A = TypeVar("A", bound="Hashable")
K = TypeVar("K", bound="Hashable")

MOST_WORDS = 16

_SEARCHES_KEPT = 16
_LONGEST_KEPT = 1024
"""The maximum length of the words of a search whose result is cached."""
_name = attrgetter("name")


@own_skill(name="absent", inline=True, hidden=True)
def _absent() -> None:
    """Stand for a skill that does not exist: the policy is consulted in the same way."""


class Registry:
    """Skills by name. It caches at most `views` views, dropping the least recently used."""

    def __init__(self, skills: Iterable[Skill] = (), *, views: int = 256) -> None:
        """Create the registry with the first skills. Raises DuplicateSkillError."""
        self._skills: dict[str, Skill] = {}
        self._offered: dict[str, dict[str, Skill]] = {}
        self._ordered: tuple[Skill, ...] | None = None
        self._most_views = views
        self._views: LRUCache[Hashable, View] = LRUCache(views)
        self._listings: weakref.WeakValueDictionary[str, _Listing] = weakref.WeakValueDictionary()
        self._listeners: list[Callable[[], None]] = []
        for each in skills:
            self.add(each)

    def __len__(self) -> int:
        """Return the number of skills, hidden ones included."""
        return len(self._skills)

    def __iter__(self) -> Iterator[Skill]:
        """Iterate over all skills in the order of their names."""
        return iter(self._in_order())

    def add(self, declared: Skill) -> None:
        """Add a skill. Existing views do not list it. Raises DuplicateSkillError."""
        there = self._skills.get(declared.name)
        if there is not None:
            raise _duplicate(there, declared)
        self._skills[declared.name] = declared
        self.changed()

    def offer(self, source: str, skills: Sequence[Skill]) -> list[DuplicateSkillError]:
        """Make these the skills of a source, in place of those that it offered before.

        Existing views do not change, and calls under way keep their skills. Skills whose names
        belong to others are not added; an error for each is returned.
        """
        new, refused = self._sorted_out(source, skills)
        if new != self._offered.get(source, {}):
            kept = self._others(source)
            self._skills.clear()  # views hold this dictionary
            self._skills.update(kept | new)
            self._offered[source] = new
            self.changed()
        return refused

    def refused(self, source: str, skills: Sequence[Skill]) -> list[DuplicateSkillError]:
        """Return an error for each skill that `offer` would not add."""
        return self._sorted_out(source, skills)[1]

    def _sorted_out(
        self, source: str, skills: Sequence[Skill]
    ) -> tuple[dict[str, Skill], list[DuplicateSkillError]]:
        others, refused = self._others(source), list[DuplicateSkillError]()
        new: dict[str, Skill] = {}
        for each in skills:
            there = others.get(each.name) or new.get(each.name)
            if there is None:
                new[each.name] = each
            else:
                refused.append(_duplicate(there, each))
        return new, refused

    def _others(self, source: str) -> dict[str, Skill]:
        mine = self._offered.get(source, {})
        return {name: each for name, each in self._skills.items() if mine.get(name) is not each}

    def remove(self, name: str) -> None:
        """Remove a skill. Existing views may still list it. Raises KeyError."""
        del self._skills[name]
        self.changed()

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed`, which must not wait, whenever a skill is added or removed."""
        self._listeners.append(changed)

    def unlisten(self, changed: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._listeners.remove(changed)

    def changed(self) -> None:
        """Note that other skills are offered, or that others see them: views are made anew."""
        self._ordered = None
        self._views.clear()
        for listener in self._listeners:
            listener()

    def get(self, name: str) -> Skill | None:
        """Return a skill without checking who may see it; callers use a view instead."""
        return self._skills.get(name)

    def view(self, key: Hashable, visible: Callable[[Skill], bool]) -> View:
        """Return the view of a requester. Call it for each request: it is a cached look-up.

        `key` must determine the decision: requesters with equal keys share the view that was made
        with the first `visible`. A coarse key (the rule that applies) keeps more of them than a
        fine one (the principal). When the policy changes, the keys must change too.
        """
        views = self._views
        if key not in views:
            views[key] = View(self._skills, visible, self._listing)
        return views[key]

    def viewer(
        self, key_of: Callable[[A], K], may_use: Callable[[K, str], bool]
    ) -> Callable[[A], View]:
        """Return a function that returns the view of each requester; the latest requesters are
        cached.

        `key_of` returns the key of a requester, which must not change; `may_use` says whether
        requesters with a key see the skill of a name.
        """

        def view_of(asker: A) -> View:
            key = key_of(asker)
            return self.view(key, lambda declared: may_use(key, declared.name))

        remembering = lru_cache(self._most_views)(view_of)
        self._listeners.append(remembering.cache_clear)
        return remembering

    def names(self) -> tuple[str, ...]:
        """Return the names of all skills, hidden ones included, sorted."""
        return tuple([each.name for each in self._in_order()])

    def _in_order(self) -> tuple[Skill, ...]:
        if self._ordered is None:
            self._ordered = tuple(sorted(self._skills.values(), key=_name))
        return self._ordered

    def _listing(self, visible: Callable[[Skill], bool]) -> _Listing:
        seen = tuple(each for each in self._in_order() if not each.hidden and visible(each))
        digests = hashlib.sha256(b"".join(each.digest for each in seen))
        version = digests.hexdigest()[:32]
        listing = self._listings.get(version)
        if listing is None:
            listing = self._listings[version] = _Listing(seen, version)
        return listing


class _Seen(dict[str, "Skill"]):
    """Requested skills that the view contains, by name: there are no more of them than skills."""

    __slots__ = ("_skills", "_visible")

    def __init__(self, skills: Mapping[str, Skill], visible: Callable[[Skill], bool]) -> None:
        self._skills = skills
        self._visible = visible

    def __missing__(self, name: str) -> Skill | None:
        found = self._skills.get(name, _absent)
        if not self._visible(found) or found.hidden:
            return None
        self[name] = found
        return found


class View:
    """The skills that one requester sees. Created by `Registry.view`.

    Attributes:
        get: returns the skill of a name; None when it does not exist or is not visible. Both take
            the same path, so neither the answer nor its timing distinguishes them.
    """

    __slots__ = ("_list", "_listing", "_visible", "get")

    def __init__(
        self,
        skills: Mapping[str, Skill],
        visible: Callable[[Skill], bool],
        list_seen: Callable[[Callable[[Skill], bool]], _Listing],
    ) -> None:
        # Decided once for each skill: the key of a view determines the decisions.
        self._visible = lru_cache(maxsize=None)(visible)
        self._list = list_seen
        self._listing: _Listing | None = None
        self.get: Callable[[str], Skill | None] = _Seen(skills, self._visible).__getitem__

    @property
    def version(self) -> str:
        """A hash over the descriptions of all visible skills, the same in every process."""
        return self._listed().version

    def __len__(self) -> int:
        """Return the number of visible skills."""
        return len(self._listed().skills)

    def names(self, words: str = "") -> tuple[str, ...]:
        """Return the names of the visible skills, sorted; with words those in which all of them
        occur.

        The search covers name, title, description and tags, ignoring case. The words are separated
        by white space. Raises SearchError for more than 16 of them.
        """
        wanted = frozenset(word.casefold() for word in words.split())
        if len(wanted) > MOST_WORDS:
            raise SearchError(f"A search takes at most {MOST_WORDS} words, not {len(wanted)}.")
        return self._listed().names(wanted)

    def ranked(self, words: frozenset[str], among: frozenset[str]) -> tuple[tuple[str, ...], int]:
        """Return those of the names `among` in whose descriptions some of the words occur, the best
        matches first, and in how many of them all words do. The words are in lower case.

        It may run in another thread once `names` was called.
        """
        return self._listed().ranked(words, among)

    def _listed(self) -> _Listing:
        if self._listing is None:
            self._listing = self._list(self._visible)
        return self._listing


class _Listing:
    """Skills in order, their version, and the results of the latest searches."""

    __slots__ = ("__weakref__", "_searches", "skills", "version")

    def __init__(self, skills: tuple[Skill, ...], version: str) -> None:
        self.skills = skills
        self.version = version
        self._searches: LRUCache[frozenset[str], tuple[str, ...]] = LRUCache(_SEARCHES_KEPT)

    def names(self, words: frozenset[str]) -> tuple[str, ...]:
        if words in self._searches:
            return self._searches[words]
        found = self.skills
        for word in sorted(words, key=len, reverse=True):
            found = tuple([each for each in found if word in each.searched])
        names = tuple([each.name for each in found])
        if sum(map(len, words)) <= _LONGEST_KEPT:
            self._searches[words] = names
        return names

    def ranked(self, words: frozenset[str], among: frozenset[str]) -> tuple[tuple[str, ...], int]:
        """Rank skills by the words that occur in them, as `View.ranked`.

        All words come first. Otherwise a rare word counts more than one that many descriptions
        have, and a word of a name twice as much.
        """
        texts = [(each.name, each.searched) for each in self.skills if each.name in among]
        scores = [0.0] * len(texts)
        counts = [0] * len(texts)
        for word in words:
            found = [at for at, (_, text) in enumerate(texts) if word in text]
            weight = log(1 + len(texts) / len(found)) if found else 0.0
            for at in found:
                counts[at] += 1
                scores[at] += weight * (1 + (word in texts[at][0].casefold()))
        best = sorted(
            (at for at, count in enumerate(counts) if count),
            key=lambda at: (counts[at] < len(words), -scores[at], at),
        )
        return tuple([texts[at][0] for at in best]), counts.count(len(words)) if words else 0


def _duplicate(there: Skill, declared: Skill) -> DuplicateSkillError:
    return DuplicateSkillError(
        declared.name,
        f"Two skills are named {declared.name}, of {there.source} and {declared.source}:"
        " give one of them another name, or load only one.",
    )
