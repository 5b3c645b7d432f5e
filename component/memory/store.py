"""The interface of stores of memories, which files and PubSub nodes implement.

A store has one list of memories for each agent and person. `component.memory.replica` synchronises
two stores.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from component.memory.index_search import Search
from component.memory.knowledge_lines import Entry, Item
from component.memory_directory.layout import SessionKey
from component.storage.errors import StorageError

Whose: TypeAlias = SessionKey
"""An agent and the person whose memories it keeps."""

Expected: TypeAlias = Item | Literal["absent"] | None
"""The memory that a writer has read. With None, any stored memory is replaced."""

Watcher: TypeAlias = Callable[[Whose, Collection[str] | None], None]
"""Called with the changed keys; None if they are unknown. It must not wait."""


MissingDecision: TypeAlias = Literal["restore", "delete"]
"""What an admin decides about memories that an account lacks without a reason."""


class Generation(NamedTuple):
    """Which store it is, and how far it has come.

    A store with another identity is a new one, and one with fewer changes is an older state of the
    same one, such as a backup: what either lacks was not deleted.

    Attributes:
        identity: differs between stores; empty for an empty one that nobody has written to yet.
        changes: counts the changes of the store.
    """

    identity: str
    changes: int

    def is_before(self, other: "Generation") -> bool:
        """Whether this is not the store that `other` was, or not yet."""
        return self.identity != other.identity or self.changes < other.changes


class Past(NamedTuple):
    """What a store knows of its past.

    Attributes:
        generation: None if the store does not tell.
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
    """A memory is not in the version that the writer has read.

    Attributes:
        stored: the current memory; None if there is none.
    """

    def __init__(self, stored: Item | None) -> None:
        super().__init__(f"version {0 if stored is None else stored.version} is stored")
        self.stored = stored


class MemoryStore(Protocol):
    """Stores the memories of agents about people. All methods raise StorageError.

    `expected` is the memory that the writer has read. If the store has another version or another
    text, VersionConflictError is raised and nothing changes. The text is compared, too, because
    people may edit an item without changing its version.
    """

    async def get(self, whose: Whose, key: str) -> Item | None:
        """Return one memory by its key."""

    async def items(self, whose: Whose) -> Sequence[Item]:
        """Return all memories, in the order of their last change if the store knows it."""

    async def search(self, whose: Whose, search: Search) -> Sequence[Item]:
        """Return the best matches, the best first."""

    async def put(self, whose: Whose, entry: Entry, *, expected: Expected = None) -> Item:
        """Store a memory, and return it as it is stored. Raises KnowledgeError: it does not fit."""

    async def forget(self, whose: Whose, key: str, *, expected: Expected = None) -> bool:
        """Delete a memory; False if there was none."""

    async def erase(self, whose: Whose) -> None:
        """Delete all memories."""

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` after changes that the store detects."""


def missing_sentence(whose: Whose, count: int) -> str:
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
            if stored is not None and stored.version == version and stored.says_as(expected):
                return
    raise VersionConflictError(stored)
