"""All skills of a service, and the view of each requester.

Requesters whose views have the same skills share one listing, which is made at the first discovery;
executing never needs it.

Of the skills of a `Catalogue`, only names, digests and texts to search are kept. A skill of it is
made when it is looked up by its name, and only those that were used last are kept.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from math import log
from operator import attrgetter
from typing import ClassVar, Final, TypeAlias, TypeVar

import msgspec

from component.caches import LRUCache
from component.skills.declare import own_skill
from component.skills.errors import DuplicateSkillError, SearchError
from component.skills.skill import Skill

DIGEST_BYTES: Final = 16
"""The size of the digest of a skill in a catalogue."""
BETWEEN: Final = "\0"
"""What is between the texts of the skills of a catalogue; no text contains it."""

A = TypeVar("A", bound="Hashable")
K = TypeVar("K", bound="Hashable")

MOST_WORDS = 16

_SEARCHES_KEPT = 16
_LONGEST_KEPT = 1024
"""The maximum length of the words of a search whose result is cached."""
_MADE_KEPT: Final = 1024
_DECISIONS_KEPT: Final = 4096
_HASHED_AT_ONCE: Final = 1000
"""Digests that are in memory together: there may be a hundred thousand."""
_name = attrgetter("name")


@own_skill(name="absent", inline=True, hidden=True)
def _absent() -> None:
    """Stand for a skill that does not exist: the policy is consulted in the same way."""


class Catalogue:
    """Makes skills when they are first used.

    Attributes:
        source: where the skills come from, for admins.
        digests: the digests of all skills, one after the other.
        searched: the texts of all skills as in `SkillSpec.searched`, with `BETWEEN` between them.
    """

    source: str
    digests: bytes
    searched: str

    def make(self, name: str, number: int) -> Skill | None:
        """Return the skill with this name and number; None, with an entry in the log, if it cannot
        be made.
        """
        raise NotImplementedError

    def title(self, number: int) -> str:
        """Return the title of the skill with this number."""
        raise NotImplementedError


class ListedSkill(msgspec.Struct, frozen=True, eq=False):
    """A skill of a catalogue that is not made yet: what discovery needs of it. `number` is its
    number in the catalogue, from 0.
    """

    hidden: ClassVar = False

    name: str
    number: int
    catalogue: Catalogue

    @property
    def source(self) -> str:
        """Where it comes from, for admins."""
        return self.catalogue.source

    @property
    def title(self) -> str:
        """A short name for people."""
        return self.catalogue.title(self.number)

    @property
    def digest(self) -> bytes:
        """A hash over everything that a caller can see of it."""
        begin = self.number * DIGEST_BYTES
        return self.catalogue.digests[begin : begin + DIGEST_BYTES]


Entry: TypeAlias = Skill | ListedSkill


class Registry:
    """Skills by name. It caches at most `views` views, dropping the least recently used."""

    def __init__(self, skills: Iterable[Skill] = (), *, views: int = 256) -> None:
        """Create the registry with the first skills. Raises DuplicateSkillError."""
        self._skills: dict[str, Entry] = {}
        self._offered: dict[str, tuple[Entry, ...]] = {}
        self._made: LRUCache[str, tuple[ListedSkill, Skill]] = LRUCache(_MADE_KEPT)
        self._ordered: tuple[Entry, ...] | None = None
        self._ordered_made: tuple[Skill, ...] | None = None
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
        """Iterate over all skills in the order of their names. All of them are made."""
        return filter(None, map(self.get, self.names()))

    def add(self, declared: Skill) -> None:
        """Add a skill. Existing views do not list it. Raises DuplicateSkillError."""
        there = self._skills.get(declared.name)
        if there is not None:
            raise _duplicate(there, declared)
        self._skills[declared.name] = declared
        self.changed()

    def offer(self, source: str, skills: Iterable[Entry]) -> list[DuplicateSkillError]:
        """Make these the skills of a source, in place of those that it offered before.

        Existing views do not change, and calls under way keep their skills. Skills whose names
        belong to others are not added; an error for each is returned. The skills of other sources
        are not touched.
        """
        new, refused = self._sorted_out(source, skills)
        before = self._offered.pop(source, ())
        if new:
            self._offered[source] = tuple(new.values())
        if new != _by_name(before):
            for each in before:
                del self._skills[each.name]  # views hold this dictionary
            self._skills.update(new)
            self.changed()
        return refused

    def refused(self, source: str, skills: Iterable[Entry]) -> list[DuplicateSkillError]:
        """Return an error for each skill that `offer` would not add."""
        return self._sorted_out(source, skills)[1]

    def _sorted_out(
        self, source: str, skills: Iterable[Entry]
    ) -> tuple[dict[str, Entry], list[DuplicateSkillError]]:
        mine, refused = _by_name(self._offered.get(source, ())), list[DuplicateSkillError]()
        new: dict[str, Entry] = {}
        for each in skills:
            there = self._skills.get(each.name)
            if there is None or there is mine.get(each.name):
                there = new.get(each.name)
            if there is None:
                new[each.name] = each
            else:
                refused.append(_duplicate(there, each))
        return new, refused

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
        self._ordered = self._ordered_made = None
        self._views.clear()
        for listener in self._listeners:
            listener()

    def get(self, name: str) -> Skill | None:
        """Return a skill without checking who may see it; callers use a view instead."""
        found = self._skills.get(name)
        return self._make(found) if isinstance(found, ListedSkill) else found

    def _make(self, listed: ListedSkill) -> Skill | None:
        """Return the skill of a catalogue, made now or a short time ago."""
        made = self._made.get(listed.name)
        if made is not None and made[0] is listed:
            return made[1]
        skill = listed.catalogue.make(listed.name, listed.number)
        if skill is not None:
            self._made[listed.name] = listed, skill
        return skill

    def view(
        self, key: Hashable, visible: Callable[[str], bool], *, catalogues: bool = True
    ) -> View:
        """Return the view of a requester. Call it for each request: it is a cached look-up.

        `visible` says whether the requester sees the skill of a name. `key` must determine the
        decision: requesters with equal keys share the view that was made with the first `visible`.
        A coarse key (the rule that applies) keeps more of them than a fine one (the principal).
        When the policy changes, the keys must change too. Without `catalogues`, the view has no
        skills of these, and listing it does not cost a look at them.
        """
        views = self._views
        if key not in views:
            seen = _Seen(self._skills, visible, self._make if catalogues else None)
            views[key] = View(seen, partial(self._listing, visible, catalogues=catalogues))
        return views[key]

    def viewer(
        self,
        key_of: Callable[[A], K],
        may_use: Callable[[K, str], bool],
        sees_catalogues: Callable[[K], bool] = lambda _key: True,
    ) -> Callable[[A], View]:
        """Return a function that returns the view of each requester; the latest requesters are
        cached.

        `key_of` returns the key of a requester, which must not change; `may_use` says whether
        requesters with a key see the skill of a name, and `sees_catalogues` whether they see any
        skill of a catalogue.
        """

        def view_of(asker: A) -> View:
            key = key_of(asker)
            return self.view(key, partial(may_use, key), catalogues=sees_catalogues(key))

        remembering = lru_cache(self._most_views)(view_of)
        self._listeners.append(remembering.cache_clear)
        return remembering

    def names(self) -> tuple[str, ...]:
        """Return the names of all skills, hidden ones included, sorted."""
        return tuple([each.name for each in self._in_order()])

    def _in_order(self) -> tuple[Entry, ...]:
        if self._ordered is None:
            self._ordered = tuple(sorted(self._skills.values(), key=_name))
        return self._ordered

    def _made_in_order(self) -> tuple[Skill, ...]:
        if self._ordered_made is None:
            found = [one for one in self._skills.values() if not isinstance(one, ListedSkill)]
            self._ordered_made = tuple(sorted(found, key=_name))
        return self._ordered_made

    def _listing(self, visible: Callable[[str], bool], *, catalogues: bool) -> _Listing:
        entries = self._in_order() if catalogues else self._made_in_order()
        seen = tuple([one for one in entries if not one.hidden and visible(one.name)])
        digests = hashlib.sha256()
        for start in range(0, len(seen), _HASHED_AT_ONCE):
            part = seen[start : start + _HASHED_AT_ONCE]
            digests.update(b"".join([each.digest for each in part]))
        version = digests.hexdigest()[:32]
        listing = self._listings.get(version)
        if listing is None:
            listing = self._listings[version] = _Listing(seen, version)
        return listing


class _Seen(dict[str, "Skill"]):
    """Requested skills that the view contains, by name: there are no more of them than skills.
    Those of catalogues are not in it.
    """

    __slots__ = ("_make", "_skills", "_visible")

    def __init__(
        self,
        skills: Mapping[str, Entry],
        visible: Callable[[str], bool],
        make: Callable[[ListedSkill], Skill | None] | None,
    ) -> None:
        self._skills = skills
        # Decided once for most skills: the key of a view determines the decisions.
        self._visible = lru_cache(_DECISIONS_KEPT)(visible)
        self._make = make

    def __missing__(self, name: str) -> Skill | None:
        found = self.entry(name)
        if isinstance(found, ListedSkill):
            assert self._make is not None, "no entry is one of a catalogue otherwise"
            return self._make(found)
        if found is not None:
            self[name] = found
        return found

    def entry(self, name: str) -> Entry | None:
        """Return what is known of a skill that the view contains, without making it."""
        found = self._skills.get(name, _absent)
        if self._make is None and isinstance(found, ListedSkill):
            found = _absent
        return found if self._visible(found.name) and not found.hidden else None


class View:
    """The skills that one requester sees. Created by `Registry.view`.

    Attributes:
        get: returns the skill of a name; None when it does not exist or is not visible. Both take
            the same path, so neither the answer nor its timing distinguishes them.
        entry: returns the same, but a skill of a catalogue as it is listed, without making it.
    """

    __slots__ = ("_list", "_listing", "entry", "get")

    def __init__(
        self,
        seen: _Seen,
        list_seen: Callable[[], _Listing],
    ) -> None:
        self._list = list_seen
        self._listing: _Listing | None = None
        self.get: Callable[[str], Skill | None] = seen.__getitem__
        self.entry: Callable[[str], Entry | None] = seen.entry

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

    def made(self) -> tuple[Skill, ...]:
        """Return the visible skills that are not in catalogues, sorted by name."""
        return self._listed().made

    def entries(self) -> tuple[Entry, ...]:
        """Return all visible skills, sorted by name; those of catalogues are not made."""
        return self._listed().skills

    def _listed(self) -> _Listing:
        if self._listing is None:
            self._listing = self._list()
        return self._listing


class _Listing:
    """Skills in order, their version, and the results of the latest searches."""

    def __init__(self, skills: tuple[Entry, ...], version: str) -> None:
        self.skills = skills
        self.made = tuple([one for one in skills if not isinstance(one, ListedSkill)])
        self.version = version
        self._searches: LRUCache[frozenset[str], tuple[str, ...]] = LRUCache(_SEARCHES_KEPT)

    def names(self, words: frozenset[str]) -> tuple[str, ...]:
        if words in self._searches:
            return self._searches[words]
        if words:
            names = tuple(sorted(self._found(sorted(words, key=len, reverse=True))))
        else:
            names = tuple([each.name for each in self.skills])
        if sum(map(len, words)) <= _LONGEST_KEPT:
            self._searches[words] = names
        return names

    def ranked(self, words: frozenset[str], among: frozenset[str]) -> tuple[tuple[str, ...], int]:
        """Rank skills by the words that occur in them, as `View.ranked`.

        All words come first. Otherwise a rare word counts more than one that many descriptions
        have, and a word of a name twice as much.
        """
        texts = [one for one in self._texts() if one[0] in among]
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

    def _texts(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each skill, and the texts that are searched."""
        yield from [(each.name, each.searched) for each in self.made]
        for catalogue, listed in self._listed.items():
            texts = catalogue.searched.split(BETWEEN)
            yield from [(each.name, texts[each.number]) for each in listed]

    def _found(self, words: Sequence[str]) -> Iterator[str]:
        made = self.made
        for word in words:
            made = tuple([each for each in made if word in each.searched])
        yield from [each.name for each in made]
        for catalogue, listed in self._listed.items():
            if all(word in catalogue.searched for word in words):
                texts, left = catalogue.searched.split(BETWEEN), listed
                for word in words:
                    left = [each for each in left if word in texts[each.number]]
                yield from [each.name for each in left]

    @cached_property
    def _listed(self) -> Mapping[Catalogue, list[ListedSkill]]:
        found: dict[Catalogue, list[ListedSkill]] = {}
        for each in self.skills:
            if isinstance(each, ListedSkill):
                found.setdefault(each.catalogue, []).append(each)
        return found


def _by_name(skills: Iterable[Entry]) -> dict[str, Entry]:
    return {each.name: each for each in skills}


def _duplicate(there: Entry, declared: Entry) -> DuplicateSkillError:
    return DuplicateSkillError(
        declared.name,
        f"Two skills are named {declared.name}, of {there.source} and {declared.source}:"
        " give one of them another name, or load only one.",
    )
