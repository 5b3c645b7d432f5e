"""The memories of people on PubSub nodes, as a `component.memory.store.MemoryStore`."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from component.features.memory_nodes.items import Cipher, NodeItem, item_of, payload_of
from component.memory.knowledge_lines import Item, MemoryLine, succeeding
from component.memory.store import (
    Expected,
    Past,
    StoreUnavailableError,
    VersionConflictError,
    Watcher,
    check_expected,
)
from component.memory_directory.files import KeyLocks
from component.memory_directory.layout import SessionKey
from xep.binding import RawXML
from xep.jid import JID

_ATTEMPTS: Final = 8


class NodeItemChangedError(Exception):
    """An item has changed since the writer has read it."""


class MemoryNodes(Protocol):
    """The node of each agent and person. All methods but `is_reachable` and `watch` raise
    StoreUnavailableError, and KnowledgeError if the service rejects this item permanently.
    """

    def is_reachable(self, whose: SessionKey) -> bool:
        """Whether the service can be reached now."""

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` when the service reports changed items."""

    async def items(self, whose: SessionKey, ids: Sequence[str] = ()) -> Sequence[NodeItem]:
        """Return the items of the node, all or those with these ids; empty if there is no node."""

    async def past(self, whose: SessionKey) -> Past:
        """Return what is known about earlier changes of the node."""

    async def settled(self, whose: SessionKey, past: Past) -> None:
        """Discard what `past` says about deleted items: the agent has deleted them, too."""

    async def publish(
        self, whose: SessionKey, id_: str, payload: RawXML, replaces: NodeItem | None
    ) -> None:
        """Publish an item that replaces `replaces`, which was read before; None for no item. The
        node is created if necessary. Raises NodeItemChangedError, if the service checks that.
        """

    async def retract(self, whose: SessionKey, items: Sequence[NodeItem]) -> None:
        """Delete items that were read before; missing ones are ignored. Raises
        NodeItemChangedError, if the service checks that.
        """


class PepStore:
    """The memories of people on their nodes.

    XEP-0060 has no way to publish only if nothing has changed. Where the nodes are at another
    service, a change by the person between reading and publishing can be overwritten.

    Args:
        nodes: where the items are.
        address_of: gives the bare address of an agent, which is named as the writer.
        cipher: encrypts the contents of memories; None for no encryption.
    """

    def __init__(
        self,
        nodes: MemoryNodes,
        address_of: Callable[[str], JID],
        cipher: Cipher | None = None,
    ) -> None:
        self._nodes = nodes
        self._address_of = address_of
        self._cipher = cipher
        self._locks: KeyLocks[SessionKey] = KeyLocks()
        self.watch = nodes.watch
        self.past, self.settled = nodes.past, nodes.settled

    def is_reachable(self, whose: SessionKey) -> bool:
        """Whether the service can be reached now. What an agent remembers of the private messages
        of an occupant is in files only: another one with the same nickname could read a node.
        """
        return whose.who.resource is None and self._nodes.is_reachable(whose)

    async def get(self, whose: SessionKey, key: str) -> Item | None:
        """Return one memory by its key."""
        found = await self._read(whose, key)
        return None if found is None else item_of(found, whose, self._cipher)

    async def items(self, whose: SessionKey) -> Sequence[Item]:
        """Return all memories."""
        return [item_of(each, whose, self._cipher) for each in await self._nodes.items(whose)]

    async def put(self, whose: SessionKey, entry: MemoryLine, *, expected: Expected = None) -> Item:
        """Publish a memory with the next version (MEM-006)."""
        async with self._locks.hold(whose):
            replaced = await self._read(whose, entry.key)
            former = None if replaced is None else item_of(replaced, whose, self._cipher)
            check_expected(former, expected)
            item = msgspec.structs.replace(
                succeeding(former, entry),
                created=(former.created if former else "") or entry.ts,
                by=str(self._address_of(whose.agent)),
            )
            payload = payload_of(item, self._address_of(whose.agent), whose, self._cipher)
            try:
                await self._nodes.publish(whose, entry.key, payload, replaced)
            except NodeItemChangedError:
                raise VersionConflictError from None
        return item

    async def forget(self, whose: SessionKey, key: str, *, expected: Expected = None) -> bool:
        """Delete an item."""
        async with self._locks.hold(whose):
            found = await self._read(whose, key)
            check_expected(None if found is None else item_of(found, whose, self._cipher), expected)
            if found is None:
                return False
            await self._retract(whose, [found])
            return True

    async def erase(self, whose: SessionKey) -> None:
        """Delete all items."""
        async with self._locks.hold(whose):
            for _ in range(_ATTEMPTS):
                found = await self._nodes.items(whose)
                if not found:
                    return
                with suppress(NodeItemChangedError):  # then it is read again
                    await self._nodes.retract(whose, found)
        raise StoreUnavailableError(f"The items of {whose.who} are not deleted.")

    async def _read(self, whose: SessionKey, key: str) -> NodeItem | None:
        found = await self._nodes.items(whose, (key,))
        return next((each for each in found if each.id == key), None)

    async def _retract(self, whose: SessionKey, items: Sequence[NodeItem]) -> None:
        try:
            await self._nodes.retract(whose, items)
        except NodeItemChangedError:
            raise VersionConflictError from None
