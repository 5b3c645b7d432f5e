"""Which memories a principal may read and write: private ones, those of an agent for everybody, and
those of a scope.

This is decided before any access: a search gets the places that it may read, and knows no others.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from component.config.memory import MemoryScope
from component.memory.knowledge_lines import FILE_NAME, Item
from component.memory_directory.layout import KNOWLEDGE, Layout, SessionKey, file_name
from component.policy.entries import EntryReader
from component.policy.taint import Taint
from xep.jid import JID

PRIVATE: Final = "private"
AGENT: Final = "agent"
DOCUMENTS: Final = "documents"
"""The documents of an agent, which no skill can store."""


class Place(NamedTuple):
    """A file of memories, for one principal.

    `owner` is the directory below the root. `may_write` says whether the principal may store there,
    and delete what others have stored.
    """

    scope: str
    folder: Path
    file: Path
    owner: str
    may_write: bool


class _Scope(NamedTuple):
    members: "_Group | None"
    writers: "_Group | None"


class _Group:
    """Addresses and domains; `everybody` if the list is `["*"]`."""

    def __init__(self, reader: EntryReader, key: str, entries: Sequence[str]) -> None:
        self.everybody = list(entries) == ["*"]
        people = [] if self.everybody else [entry for entry in entries if "@" in entry]
        domains = [] if self.everybody else [entry for entry in entries if "@" not in entry]
        self._jids = reader.jids(key, people) or frozenset()
        self._domains = reader.domains(key, domains) or frozenset()

    def has(self, principal: JID) -> bool:
        return self.everybody or principal in self._jids or principal.domain in self._domains


class Sharing:
    """The places of memories, and the rights in them.

    Args:
        admins: the bare addresses that may delete memories of all scopes.

    Raises PolicyError: an entry of a scope is not an address.
    """

    def __init__(
        self, layout: Layout, scopes: Sequence[MemoryScope] = (), admins: Collection[JID] = ()
    ) -> None:
        self.layout = layout
        self._admins = admins
        self.root = layout.root
        self._scopes: dict[str, _Scope] = {}
        reader = EntryReader()
        for scope in scopes:
            key = f"memory.scopes.{scope.name}"
            members = _Group(reader, f"{key}.members", scope.members)
            writers = (
                None if scope.writers is None else _Group(reader, f"{key}.writers", scope.writers)
            )
            self._scopes[scope.name] = _Scope(members, writers)
        reader.finish()
        # Each turn asks for these, and to make a path takes longer than to call `stat` for it.
        self._visible = lru_cache(maxsize=1024)(self._make_visible)
        self.documents = lru_cache(maxsize=64)(self._make_documents)

    def visible(self, whose: SessionKey) -> tuple[Place, ...]:
        """Return all places that the principal may read with this agent, its own first.

        A sub-agent has only private memories.
        """
        return self._visible(whose)

    def _make_visible(self, whose: SessionKey) -> tuple[Place, ...]:
        places = [self.private(whose)]
        if "/" not in whose.agent:
            names = dict.fromkeys((AGENT, *self._scopes))
            found = (self._shared(name, whose) for name in names)
            places += [place for place in found if place is not None]
        return tuple(places)

    def place(self, scope: str, whose: SessionKey) -> Place | None:
        """Return a place by the name of its scope; None if the principal may read none."""
        if scope == PRIVATE:
            return self.private(whose)
        return None if "/" in whose.agent else self._shared(scope, whose)

    def private(self, whose: SessionKey) -> Place:
        """Return the place of the private memories of an agent about a person."""
        return self._place(PRIVATE, self.layout.folder(whose), may_write=True)

    def deletable(self, scope: str, whose: SessionKey) -> Place | None:
        """Return the place whose memories the principal may delete, by the name of its scope. An
        admin may in every scope. None if the principal may read none.
        """
        if whose.who in self._admins and scope != PRIVATE and "/" not in whose.agent:
            if scope != AGENT and scope not in self._scopes:
                return None
            return self._folder_of(scope, whose.agent, may_write=True)
        return self.place(scope, whose)

    def _make_documents(self, agent: str) -> Place | None:
        if "/" in agent:
            return None
        folder = self.layout.agent_directory(agent) / KNOWLEDGE
        return self._place(DOCUMENTS, folder, may_write=False)

    def _shared(self, name: str, whose: SessionKey) -> Place | None:
        scope = self._scopes.get(name)
        if scope is None:
            if name != AGENT:
                return None
            scope = _Scope(None, None)
        if scope.members is not None and not scope.members.has(whose.who):
            return None
        may_write = scope.writers is None or scope.writers.has(whose.who)
        return self._folder_of(name, whose.agent, may_write=may_write)

    def _folder_of(self, name: str, agent: str, *, may_write: bool) -> Place:
        if name == AGENT:
            folder = self.layout.agent_directory(agent) / "_all"
        else:
            folder = self.layout.root / "_shared" / file_name(name)
        return self._place(name, folder, may_write=may_write)

    def _place(self, scope: str, folder: Path, *, may_write: bool) -> Place:
        owner = folder.relative_to(self.layout.root).as_posix()
        return Place(scope, folder, folder / FILE_NAME, owner, may_write)


def taint_for(item: Item, place: Place, principal: JID) -> Taint | None:
    """Return the taint of a memory for a principal.

    A memory of a shared scope that somebody else has written has at least the taint of a file by
    somebody else.
    """
    if place.scope in {PRIVATE, DOCUMENTS} or item.by == str(principal.bare):
        return item.taint
    return item.taint if item.taint in {"peer", "web"} else "file"
