"""The interface of the store of a person's memories, and what is common to all stores.

A store has one list of memories for each agent and person.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from component.memory.knowledge_lines import Item, MemoryLine
from component.memory_directory.layout import SessionKey
from component.policy.taint import Taint, worst
from component.store.errors import StorageError

Expected: TypeAlias = Item | Literal["absent"] | None
"""The memory that a writer has read. With None, any stored memory is replaced."""

Watcher: TypeAlias = Callable[[SessionKey, Collection[str] | None], None]
"""Called with the changed keys; None if they are unknown. It must not wait."""

MissingDecision: TypeAlias = Literal["restore", "delete"]
"""What an admin decides about memories that an account lacks without a reason."""


class Generation(NamedTuple):
    """The identity of a store, and the number of its changes.

    A store with another identity is a new one, and one with fewer changes is an older state of the
    same one, such as a backup: memories that it lacks were not deleted.

    Attributes:
        identity: differs between stores; empty for one that was never written to.
    """

    identity: str
    changes: int

    def is_before(self, other: "Generation") -> bool:
        """Whether this is another store than `other`, or an older state of it."""
        return self.identity != other.identity or self.changes < other.changes


class Past(NamedTuple):
    """What a store knows about earlier changes.

    Attributes:
        generation: None if the store has none.
        retracted: the memories that the person has deleted there, and when, in seconds since 1970.
        is_emptied: whether the person has deleted all at once.
    """

    generation: Generation | None
    retracted: Mapping[str, float]
    is_emptied: bool = False


class KnowledgeError(Exception):
    """A memory cannot be stored or forgotten; the message is for the requester."""


class StoreUnavailableError(StorageError):
    """The service with the memories cannot be reached or refuses; a later request may succeed."""


class VersionConflictError(Exception):
    """A memory is not in the version that the writer has read."""


class MemoryStore(Protocol):
    """The store of people's own memories. All methods but `watch` and `is_reachable` raise
    StorageError.

    `expected` is the memory that the writer has read. If the store has another version or another
    text, VersionConflictError is raised and nothing changes. The text is compared, too, because
    people may edit an item without changing its version.
    """

    async def get(self, whose: SessionKey, key: str) -> Item | None:
        """Return one memory by its key."""

    async def items(self, whose: SessionKey) -> Sequence[Item]:
        """Return all memories."""

    async def put(self, whose: SessionKey, entry: MemoryLine, *, expected: Expected = None) -> Item:
        """Store a memory, and return it as it is stored. Raises KnowledgeError: it does not fit."""

    async def forget(self, whose: SessionKey, key: str, *, expected: Expected = None) -> bool:
        """Delete a memory; return whether it existed."""

    async def erase(self, whose: SessionKey) -> None:
        """Delete all memories."""

    async def past(self, whose: SessionKey) -> Past:
        """Return what the store knows about earlier changes."""

    async def settled(self, whose: SessionKey, past: Past) -> None:
        """Discard what `past` says about deleted memories: they are deleted in the files, too."""

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` after changes that the store detects."""

    def is_reachable(self, whose: SessionKey) -> bool:
        """Whether the store can probably be reached now."""


class Remembered(NamedTuple):
    """A memory that a principal has found, with its scope and its taint. A higher `score` is a
    better match.
    """

    scope: str
    item: Item
    taint: Taint | None = None
    score: float = 0.0

    @property
    def key(self) -> str:
        """Its key."""
        return self.item.key

    def of_room(self) -> "Remembered":
        """Return it for a room, where anybody may have had it stored."""
        return self._replace(taint=worst((self.taint, "room")))

    @property
    def text(self) -> str:
        """The title and the body."""
        return "\n".join(part for part in (self.item.title, self.item.body) if part)

    @property
    def digest(self) -> str:
        """A digest of the text, which detects changes."""
        data = self.text.encode(errors="surrogatepass")
        return hashlib.blake2b(data, digest_size=8).hexdigest()


def missing_sentence(whose: SessionKey, count: int) -> str:
    """Return what an admin has to decide about memories that a person's account lacks."""
    are = "1 memory is" if count == 1 else f"{count} memories are"
    of = f" --agent {whose.agent}"
    return (
        f"{are} missing in the account of {whose.who}, and the server does not say why. They stay"
        f" in the files. Restore them there, or delete them if {whose.who} has deleted them:"
        f" xmpp-agent memory missing restore (or delete) --for {whose.who}{of}"
    )


def check_expected(stored: Item | None, expected: Expected) -> None:
    """Raise VersionConflictError if the stored memory is not the one that the writer has read."""
    match expected:
        case None:
            return
        case "absent":
            if stored is None:
                return
        case Item(version=version):
            if (
                stored is not None
                and stored.version == version
                and stored.contents == expected.contents
            ):
                return
    raise VersionConflictError
