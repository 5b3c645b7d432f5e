"""All skills of a service, and what each asker sees of them.

What one asker sees is a View. Askers whose views hold the same skills share one listing, which is
made when somebody first discovers; executing never needs it.
"""

from __future__ import annotations

import hashlib
import weakref
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from component.skills.declare import AnySkill, Skill, skill
from component.skills.errors import DuplicateSkillError, SearchError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

MOST_PER_PAGE = 50
MOST_WORDS = 16

_SEARCHES_KEPT = 16
_name = attrgetter("name")


@skill(name="absent", inline=True, hidden=True)
def _absent() -> None:
    """Stand in for names that are not there, so that policy is asked for them just the same."""


class Page(msgspec.Struct, frozen=True):
    """One page of skills in the order of their names, with what XEP-0059 wants to know of it.

    `index` is the position of the first skill in the whole list, `count` the length of that list.
    """

    skills: tuple[AnySkill, ...]
    index: int
    count: int

    @property
    def first(self) -> str | None:
        """The name of the first skill, None on an empty page."""
        return self.skills[0].name if self.skills else None

    @property
    def last(self) -> str | None:
        """The name of the last skill, None on an empty page."""
        return self.skills[-1].name if self.skills else None


class Registry:
    """Skills by name. Holds at most `views` views, dropping what was not asked for longest."""

    def __init__(self, skills: Iterable[AnySkill] = (), *, views: int = 256) -> None:
        """Take the first skills. Raises DuplicateSkillError when two have one name."""
        self._skills: dict[str, AnySkill] = {}
        self._ordered: tuple[AnySkill, ...] | None = None
        self._most_views = views
        self._views: OrderedDict[Hashable, View] = OrderedDict()
        self._listings: weakref.WeakValueDictionary[str, _Listing] = weakref.WeakValueDictionary()
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


class View:
    """What one asker sees. Made by `Registry.view`."""

    __slots__ = ("_list", "_listing", "_skills", "_visible")

    def __init__(
        self,
        skills: Mapping[str, AnySkill],
        visible: Callable[[AnySkill], bool],
        list_seen: Callable[[Callable[[AnySkill], bool]], _Listing],
    ) -> None:
        """Take all skills by name, the decision about each, and what lists those seen."""
        self._skills = skills
        self._visible = visible
        self._list = list_seen
        self._listing: _Listing | None = None

    def get(self, name: str) -> AnySkill | None:
        """Return the skill of this name, None when it is not there or not for this asker.

        Both take the same path, so neither the answer nor its time tells them apart.
        """
        found = self._skills.get(name, _absent)
        return found if self._visible(found) and not found.hidden else None

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

    def page(
        self, after: str | None = None, before: str | None = None, limit: int = MOST_PER_PAGE
    ) -> Page:
        """Return at most `limit` skills, and never more than 50 (XEP-0059 §2).

        `after` and `before` are names and need not exist (any more): the page begins after the one
        or ends before the other. An empty `before` is the last page; both None the first.
        """
        return _page(self._listed().skills, after, before, limit)

    def search(
        self,
        words: str | Iterable[str],
        after: str | None = None,
        before: str | None = None,
        limit: int = MOST_PER_PAGE,
    ) -> Page:
        """Return a page of the skills in which every word occurs, whatever its case.

        Looked at are name, title, description and tags. A text is taken apart at white space.
        Raises SearchError for more than 16 words.
        """
        parts = words.split() if isinstance(words, str) else words
        wanted = frozenset(word.casefold() for word in parts)
        if len(wanted) > MOST_WORDS:
            raise SearchError(f"A search takes at most {MOST_WORDS} words, not {len(wanted)}.")
        return _page(self._listed().matching(wanted), after, before, limit)

    def _listed(self) -> _Listing:
        if self._listing is None:
            self._listing = self._list(self._visible)
        return self._listing


class _Listing:
    """Skills in order, their version, and the latest searches among them, for paging on."""

    __slots__ = ("__weakref__", "_names", "_searches", "skills", "version")

    def __init__(self, skills: tuple[AnySkill, ...], version: str) -> None:
        self.skills = skills
        self.version = version
        self._names: OrderedDict[frozenset[str], tuple[str, ...]] = OrderedDict()
        self._searches: OrderedDict[frozenset[str], tuple[AnySkill, ...]] = OrderedDict()

    def names(self, words: frozenset[str]) -> tuple[str, ...]:
        found = self._names.get(words)
        if found is None:
            found = self._names[words] = tuple(each.name for each in self.matching(words))
            if len(self._names) > _SEARCHES_KEPT:
                self._names.popitem(last=False)
        return found

    def matching(self, words: frozenset[str]) -> tuple[AnySkill, ...]:
        found = self._searches.get(words)
        if found is not None:
            self._searches.move_to_end(words)
            return found
        found = self.skills
        for word in sorted(words, key=len, reverse=True):
            found = tuple([each for each in found if word in each.searched])
        self._searches[words] = found
        if len(self._searches) > _SEARCHES_KEPT:
            self._searches.popitem(last=False)
        return found


def _page(skills: Sequence[AnySkill], after: str | None, before: str | None, limit: int) -> Page:
    limit = max(0, min(limit, MOST_PER_PAGE))
    start = bisect_right(skills, after, key=_name) if after is not None else 0
    end = bisect_left(skills, before, key=_name) if before else len(skills)
    if before is not None:
        start = max(start, end - limit)
    return Page(tuple(skills[start : min(end, start + limit)]), start, len(skills))


def _home(declared: Skill[..., object]) -> str:
    return f"{declared.function.__module__}.{declared.function.__qualname__}"
