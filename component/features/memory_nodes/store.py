"""Memories on PubSub nodes as a `component.memory.replica.RemoteStore`."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from component.features.memory_nodes.encryption import Cipher
from component.features.memory_nodes.items import item_of, payload_of
from component.features.memory_nodes.nodes import ItemChangedError, MemoryNodes, NodeItem
from component.memory.index_search import Search, among_items
from component.memory.knowledge_lines import Entry, Item
from component.memory.store import (
    Expected,
    Past,
    StoreUnavailableError,
    VersionConflictError,
    Watcher,
    Whose,
    check_expected,
)
from component.memory_directory.files import KeyLocks
from xep.jid import JID

_ATTEMPTS: Final = 8


class PepStore:
    """The memories of people on their nodes. All methods but `watch` and `is_reachable` raise
    StoreUnavailableError.

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
        self._locks: KeyLocks[Whose] = KeyLocks()

    def is_reachable(self, whose: Whose) -> bool:
        """Whether the service of the node can be asked now."""
        return self._nodes.is_reachable(whose)

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` when the service reports changed items."""
        self._nodes.watch(watcher)

    async def past(self, whose: Whose) -> Past:
        """What the service knows of the past of the node."""
        return await self._nodes.past(whose)

    async def settled(self, whose: Whose, past: Past) -> None:
        """Forget what `past` says of deleted memories."""
        await self._nodes.settled(whose, past)

    async def get(self, whose: Whose, key: str) -> Item | None:
        """One memory by its key."""
        found = await self._read(whose, key)
        return None if found is None else item_of(found, whose, self._cipher)

    async def items(self, whose: Whose) -> Sequence[Item]:
        """All memories."""
        return [item_of(each, whose, self._cipher) for each in await self._nodes.items(whose)]

    async def search(self, whose: Whose, search: Search) -> Sequence[Item]:
        """The memories that fit best."""
        return among_items(await self.items(whose), search)

    async def put(self, whose: Whose, entry: Entry, *, expected: Expected = None) -> Item:
        """Publish a memory, in the version after the one that is there (MEM-006)."""
        async with self._locks.hold(whose):
            replaced = await self._read(whose, entry.key)
            former = None if replaced is None else item_of(replaced, whose, self._cipher)
            check_expected(former, expected)
            item = Item(
                key=entry.key,
                body=entry.content,
                title=entry.title,
                topic=entry.topic,
                tags=entry.tags,
                version=1 if former is None else former.version + 1,
                created=entry.ts if former is None else former.created or entry.ts,
                updated=entry.ts,
                by=str(self._address_of(whose.agent)),
                taint=entry.taint,
                expires=entry.expires,
            )
            payload = payload_of(item, self._address_of(whose.agent), whose, self._cipher)
            try:
                await self._nodes.publish(whose, entry.key, payload, replaced)
            except ItemChangedError:
                raise VersionConflictError(None) from None
        return item

    async def forget(self, whose: Whose, key: str, *, expected: Expected = None) -> bool:
        """Delete an item."""
        async with self._locks.hold(whose):
            found = await self._read(whose, key)
            check_expected(None if found is None else item_of(found, whose, self._cipher), expected)
            if found is None:
                return False
            await self._retract(whose, [found])
            return True

    async def erase(self, whose: Whose) -> None:
        """Delete all items."""
        async with self._locks.hold(whose):
            for _ in range(_ATTEMPTS):
                found = await self._nodes.items(whose)
                if not found:
                    return
                with suppress(ItemChangedError):  # then it is read again
                    await self._nodes.retract(whose, found)
        raise StoreUnavailableError(f"The items of {whose.who} are not deleted.")

    async def _read(self, whose: Whose, key: str) -> NodeItem | None:
        found = await self._nodes.items(whose, (key,))
        return next((each for each in found if each.id == key), None)

    async def _retract(self, whose: Whose, items: Sequence[NodeItem]) -> None:
        try:
            await self._nodes.retract(whose, items)
        except ItemChangedError:
            raise VersionConflictError(None) from None
