"""All skills of a service, and what each asker sees of them.

What one asker sees is a View. Askers whose views hold the same skills share one listing, which is
made when somebody first discovers; executing never needs it.
"""

from __future__ import annotations

import hashlib
import weakref
from collections import OrderedDict
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from component.skills.declare import AnySkill, Skill, skill
from component.skills.errors import DuplicateSkillError, SearchError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

A = TypeVar("A", bound="Hashable")
K = TypeVar("K", bound="Hashable")

MOST_WORDS = 16

_SEARCHES_KEPT = 16
_name = attrgetter("name")


@skill(name="absent", inline=True, hidden=True)
def _absent() -> None:
    """Stand in for names that are not there, so that policy is asked for them just the same."""


class Registry:
    """Skills by name. Holds at most `views` views, dropping what was not asked for longest."""

    def __init__(self, skills: Iterable[AnySkill] = (), *, views: int = 256) -> None:
        """Take the first skills. Raises DuplicateSkillError when two have one name."""
        self._skills: dict[str, AnySkill] = {}
        self._ordered: tuple[AnySkill, ...] | None = None
        self._most_views = views
        self._views: OrderedDict[Hashable, View] = OrderedDict()
        self._listings: weakref.WeakValueDictionary[str, _Listing] = weakref.WeakValueDictionary()
        self._forget: list[Callable[[], None]] = []
        for each in skills:
            self.add(each)

    def __len__(self) -> int:
        """Return how many skills there are, the hidden ones included."""
        return len(self._skills)

    def __iter__(self) -> Iterator[AnySkill]:
        """Go through all skills in the order of their names."""
        return iter(self._in_order())

    def add(self, declared: AnySkill) -> None:
        """Offer a skill. Views taken before do not list it. Raises DuplicateSkillError."""
        there = self._skills.get(declared.name)
        if there is not None:
            raise DuplicateSkillError(
                f"Two skills are named {declared.name}, of {_home(there)} and {_home(declared)}: "
                f"give one of them another name with @skill(name=…), or load only one."
            )
        self._skills[declared.name] = declared
        self._ordered = None
        self._views.clear()
        for forget in self._forget:
            forget()

    def get(self, name: str) -> AnySkill | None:
        """Return a skill whoever asks. For the service itself; callers go through a view."""
        return self._skills.get(name)

    def view(self, key: Hashable, visible: Callable[[AnySkill], bool]) -> View:
        """Return what an asker sees. Ask again for each request: it is a look-up.

        `key` must stand for the decision: askers with equal keys share the view that was made with
        the first `visible`. A coarse key (the rule that applies) keeps more of them than a fine one
        (the principal). When policy changes, so must the keys.
        """
        views = self._views
        found = views.get(key)
        if found is not None:
            views.move_to_end(key)
            return found
        found = views[key] = View(self._skills, visible, self._listing)
        if len(views) > self._most_views:
            views.popitem(last=False)
        return found

    def viewer(
        self, key_of: Callable[[A], K], may_use: Callable[[K, str], bool]
    ) -> Callable[[A], View]:
        """Return what gives the view of each asker; the latest askers are remembered.

        `key_of` gives the key of an asker, which must stay the same; `may_use` says whether askers
        of a key see the skill of a name.
        """

        def view_of(asker: A) -> View:
            key = key_of(asker)
            return self.view(key, lambda declared: may_use(key, declared.name))

        remembering = lru_cache(self._most_views)(view_of)
        self._forget.append(remembering.cache_clear)
        return remembering

    def _in_order(self) -> tuple[AnySkill, ...]:
        if self._ordered is None:
            self._ordered = tuple(sorted(self._skills.values(), key=_name))
        return self._ordered

    def _listing(self, visible: Callable[[AnySkill], bool]) -> _Listing:
        seen = tuple(each for each in self._in_order() if not each.hidden and visible(each))
        digests = hashlib.sha256(b"".join(each.digest for each in seen))
        version = digests.hexdigest()[:32]
        listing = self._listings.get(version)
        if listing is None:
            listing = self._listings[version] = _Listing(seen, version)
        return listing


class _Seen(dict[str, "AnySkill"]):
    """Skills that were asked for and seen, by name: there are no more of them than skills."""

    __slots__ = ("_skills", "_visible")

    def __init__(self, skills: Mapping[str, AnySkill], visible: Callable[[AnySkill], bool]) -> None:
        self._skills = skills
        self._visible = visible

    def __missing__(self, name: str) -> AnySkill | None:
        found = self._skills.get(name, _absent)
        if not self._visible(found) or found.hidden:
            return None
        self[name] = found
        return found


class View:
    """What one asker sees. Made by `Registry.view`.

    Attributes:
        get: gives the skill of a name; None when it is not there or not for this asker. Both take
            the same path, so neither the answer nor its time tells them apart.
    """

    __slots__ = ("_list", "_listing", "_visible", "get")

    def __init__(
        self,
        skills: Mapping[str, AnySkill],
        visible: Callable[[AnySkill], bool],
        list_seen: Callable[[Callable[[AnySkill], bool]], _Listing],
    ) -> None:
        """Take all skills by name, the decision about each, and what lists those seen."""
        # Decided once for each skill: the key of a view stands for the decisions.
        self._visible = lru_cache(maxsize=None)(visible)
        self._list = list_seen
        self._listing: _Listing | None = None
        self.get: Callable[[str], AnySkill | None] = _Seen(skills, self._visible).__getitem__

    @property
    def version(self) -> str:
        """A hash over the description of every skill seen, the same in every process."""
        return self._listed().version

    def __len__(self) -> int:
        """Return how many skills this asker sees."""
        return len(self._listed().skills)

    def names(self, words: str = "") -> tuple[str, ...]:
        """Return the names of the skills seen, sorted; with words those in which all of them occur.

        Looked at are name, title, description and tags, whatever the case. The words are taken
        apart at white space. Raises SearchError for more than 16 of them.
        """
        wanted = frozenset(word.casefold() for word in words.split())
        if len(wanted) > MOST_WORDS:
            raise SearchError(f"A search takes at most {MOST_WORDS} words, not {len(wanted)}.")
        return self._listed().names(wanted)

    def _listed(self) -> _Listing:
        if self._listing is None:
            self._listing = self._list(self._visible)
        return self._listing


class _Listing:
    """Skills in order, their version, and the names that the latest searches among them found."""

    __slots__ = ("__weakref__", "_searches", "skills", "version")

    def __init__(self, skills: tuple[AnySkill, ...], version: str) -> None:
        self.skills = skills
        self.version = version
        self._searches: OrderedDict[frozenset[str], tuple[str, ...]] = OrderedDict()

    def names(self, words: frozenset[str]) -> tuple[str, ...]:
        names = self._searches.get(words)
        if names is not None:
            self._searches.move_to_end(words)
            return names
        found = self.skills
        for word in sorted(words, key=len, reverse=True):
            found = tuple([each for each in found if word in each.searched])
        names = self._searches[words] = tuple([each.name for each in found])
        if len(self._searches) > _SEARCHES_KEPT:
            self._searches.popitem(last=False)
        return names


def _home(declared: Skill[..., object]) -> str:
    return f"{declared.function.__module__}.{declared.function.__qualname__}"
