"""The interface of nodes with the memories of people, at our own addresses or in accounts."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from component.memory.store import Past, Watcher, Whose
from xep.binding import RawXML


class ItemChangedError(Exception):
    """An item has changed since the writer has read it."""


class NodeItem(NamedTuple):
    """An item of a node: its id, and its payload as XML text (empty without one)."""

    id: str
    payload: str


class MemoryNodes(Protocol):
    """The node of each agent and person. All methods but `is_reachable` and `watch` raise
    StoreUnavailableError, and KnowledgeError if the service rejects this item permanently.
    """

    def is_reachable(self, whose: Whose) -> bool:
        """Whether the service can be reached now."""

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` when the service reports changed items."""

    async def items(self, whose: Whose, ids: Sequence[str] = ()) -> Sequence[NodeItem]:
        """Return the items of the node, all or those with these ids; empty if there is no node."""

    async def past(self, whose: Whose) -> Past:
        """Return what is known of the past of the node."""

    async def settled(self, whose: Whose, past: Past) -> None:
        """Forget what `past` says of deleted items: the agent has deleted them as well."""

    async def publish(
        self, whose: Whose, id_: str, payload: RawXML, replaces: NodeItem | None
    ) -> None:
        """Publish an item in the place of `replaces`, which was read before (None: there was no
        item). The node is created if necessary. Raises ItemChangedError if the service checks that.
        """

    async def retract(self, whose: Whose, items: Sequence[NodeItem]) -> None:
        """Delete items that were read before; missing ones are ignored. Raises ItemChangedError if
        the service checks that.
        """
