"""The PubSub service, for other packages of this process.

`publish`, `retract`, `items`, `ensure`, `delete` and `listen` check no rights. Requests of others
are in `verbs.py`, which checks them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.pubsub import access, nodes, publishing, rows
from component.pubsub.access import Requester
from component.pubsub.changes import Change
from component.pubsub.computed import ComputedNode
from component.pubsub.config import NodeConfig
from component.pubsub.core import Core, NodeProvider
from component.pubsub.notifier import Notifier
from component.pubsub.overview import Overview
from component.pubsub.publishing import NewItem, new_id
from component.pubsub.rows import StoredItem
from component.pubsub.verbs import Verbs
from component.pubsub.views import Views
from component.storage.database import Database
from component.storage.errors import StorageError
from component.storage.storage import Storage
from xep.binding import Payload, RawXML, keep
from xep.jid import JID
from xep.result_sets import PAGE_ROOM

__all__ = ["Change", "NodeConfig", "PubSubService", "StoredItem"]


_log = structlog.get_logger("component.pubsub")
_EVERY_ITEM: Final = 2**31 - 1
_TIDY_S: Final = 600.0


class Stored(NamedTuple):
    """The state of an item that a writer has read: its payload as XML, or None if there was no
    item.
    """

    payload: str | None


class NodePast(NamedTuple):
    """What is known of the past of a node.

    Attributes:
        created: when it was created, in milliseconds since 1970; 0 if there is no such node.
        changes: how often it was changed since.
        retractions: which items others than the service have deleted, if the node notes that: their
            ids and when, in milliseconds since 1970.
    """

    created: int
    changes: int
    retractions: dict[str, int]


class ItemChangedError(Exception):
    """An item has changed since the writer has read it."""


class PubSubService:
    """The nodes of all our addresses.

    Args:
        storage: has the tables.
        notifier: sends notifications.
        may_create: whether a bare address may create nodes.
        computed: the computed nodes.
        page_room: maximum size of the entries of a page, in bytes.

    Attributes:
        may_create: as given.
        verbs: the requests of others, with checks of their rights.
        overview: lists and describes nodes.
    """

    def __init__(
        self,
        storage: Storage,
        notifier: Notifier,
        may_create: Callable[[JID], bool],
        computed: Sequence[ComputedNode] = (),
        page_room: int = PAGE_ROOM,
    ) -> None:
        self._core = Core(storage, notifier, may_create, computed, page_room)
        self.may_create = may_create
        self.verbs = Verbs(self._core)
        self.overview = Overview(self._core)
        self._views = Views(self._core)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Notify subscribers, call listeners and delete expired items, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._core.notifier.run)
            group.start_soon(self._core.listeners.run)
            task_status.started()
            while True:
                try:
                    await self._core.storage.write(rows.delete_expired)
                except StorageError as error:
                    _log.error("expired items cannot be deleted", reason=str(error))
                await anyio.sleep(_TIDY_S)

    async def publish(
        self,
        address: JID,
        node: str,
        item_id: str | None,
        payload: Payload | RawXML,
        *,
        publisher: JID,
        only_if: Stored | None = None,
    ) -> str:
        """Publish an item at one of our addresses. Returns its id, which is chosen if it is None.

        A node that does not exist is created with the default configuration.

        Args:
            address: one of our addresses, the domain or an agent.
            node: the name of the node.
            item_id: the id of the item.
            payload: its content.
            publisher: the publisher that subscribers see.
            only_if: the required current state of the item; not checked if this is None.

        Raises:
            StanzaError: the node does not accept it.
            ItemChangedError: the current state of the item is not `only_if`.
            StorageError: the item cannot be stored.
        """
        raw = payload if isinstance(payload, RawXML) else keep(payload)
        item = NewItem(id=item_id or new_id(), payloads=(raw.text,))
        who = _self(address)
        by = str(publisher.bare)

        def op(database: Database) -> list[Change]:
            if only_if is not None:
                _check_stored(database, who.service, node, (item.id or "",), only_if)
            return publishing.publish(database, who, node, (item,), {}, publisher=by)

        await self._core.change(op)
        assert item.id is not None
        return item.id

    async def retract(
        self,
        address: JID,
        node: str,
        item_ids: Sequence[str],
        *,
        notify: bool = True,
        only_if: Stored | None = None,
    ) -> None:
        """Delete items of a node; those that are not there are left out.

        Raises StanzaError (``item-not-found``) if there is no such node, StorageError, and
        ItemChangedError if something else is stored than `only_if` says.
        """
        who = _self(address)

        def op(database: Database) -> list[Change]:
            if only_if is not None:
                _check_stored(database, who.service, node, item_ids, only_if)
            access.find(database, who, node, lock=True)
            there = [
                each
                for each in item_ids
                if rows.item(database, who.service, node, each) is not None
            ]
            if not there:
                return []
            return publishing.retract(database, who, node, there, notify=notify)

        await self._core.change(op)

    async def items(
        self, address: JID, node: str, *, ids: Sequence[str] = (), most: int | None = None
    ) -> list[StoredItem]:
        """Return the items of a node, the newest last; empty if there is no such node.

        Args:
            address: one of our addresses.
            node: the name of the node.
            ids: only the items with these ids.
            most: only the newest ones, up to this number.

        Raises StorageError.
        """
        service = str(address.bare)

        def op(database: Database) -> list[StoredItem]:
            if ids:
                found = [rows.item(database, service, node, each) for each in ids]
                return [each for each in found if each is not None]
            return rows.newest(database, service, node, _EVERY_ITEM if most is None else most)

        return await self._core.storage.read(op)

    async def past(self, address: JID, node: str) -> NodePast:
        """Return what is known of the past of a node. Raises StorageError."""
        service = str(address.bare)

        def op(database: Database) -> NodePast:
            created, changes = rows.age(database, service, node)
            return NodePast(created, changes, rows.retractions(database, service, node))

        return await self._core.storage.read(op)

    async def forget_retractions(self, address: JID, node: str, ids: Sequence[str]) -> None:
        """Forget that these items were deleted. Raises StorageError."""
        service = str(address.bare)

        def op(database: Database) -> None:
            rows.forget_retractions(database, service, node, ids)

        await self._core.storage.write(op)

    async def ensure(
        self, address: JID, node: str, config: NodeConfig, *, owners: Sequence[JID] = ()
    ) -> None:
        """Create or reconfigure a node, and make these its owners.

        Raises StorageError.
        """
        service = str(address.bare)

        def op(database: Database) -> list[Change]:
            changes: list[Change] = []
            if not rows.add_node(database, service, node, config, service):
                known = rows.node(database, service, node, lock=True)
                if known is not None and known.config != config:
                    changes = nodes.reconfigure(database, known, config, service)
            for each in owners:
                rows.set_affiliation(database, service, node, str(each.bare), "owner")
            return changes

        await self._core.change(op)

    async def create(
        self, address: JID, node: str, config: NodeConfig, *, owners: Sequence[JID] = ()
    ) -> None:
        """Create a node if there is none, and add these owners.

        Raises StorageError.
        """
        service = str(address.bare)

        def op(database: Database) -> None:
            rows.add_node(database, service, node, config, service)
            for each in owners:
                rows.set_affiliation(database, service, node, str(each.bare), "owner")

        await self._core.storage.write(op)

    async def delete(self, address: JID, node: str) -> None:
        """Delete a node with everything in it, if there is one. Raises StorageError."""
        who = _self(address)

        def op(database: Database) -> list[Change]:
            if rows.node(database, who.service, node) is None:
                return []
            return nodes.delete(database, who, node)

        await self._core.change(op)

    def observe(self, address: JID, node_prefix: str, callback: Callable[[Change], None]) -> None:
        """Call `callback` after the commit of each change of the nodes at an address whose names
        begin with this prefix, before the requester has its answer. It must not wait.
        """
        self._core.listeners.observe(str(address.bare), node_prefix, callback)

    def add_provider(self, provider: NodeProvider) -> None:
        """Ask `provider` for a node before each lookup."""
        self._core.providers.append(provider)

    async def locate(self, address: JID, node: str, requester: JID) -> JID:
        """Return the address that has the node for a request to `address`. Raises StorageError."""
        for provider in self._core.providers:
            found = await provider.provide(address, node, requester)
            if found is not None:
                return found
        return address

    def listen(
        self, address: JID, node_prefix: str, callback: Callable[[Change], Awaitable[None]]
    ) -> None:
        """Call `callback` after each committed change of the nodes at an address whose names begin
        with this prefix, in the order of the commits. Its exceptions are logged.
        """
        self._core.listeners.add(str(address.bare), node_prefix, callback)

    def add_computed(self, node: ComputedNode) -> None:
        """Add a computed node, before the service runs."""
        self._core.computed_nodes[node.name] = node

    async def refresh(self, address: JID) -> None:
        """Notify the subscribers of computed nodes at one of our addresses of changes in their
        views since the last notification. Raises StorageError.
        """
        for node in self._core.computed_nodes.values():
            if node.is_compared and node.is_at(address):
                await self._views.refresh(address, node)

    def recomputed(
        self,
        address: JID,
        node: str,
        principal: JID,
        items: Sequence[StoredItem] = (),
        gone: Sequence[str] = (),
    ) -> None:
        """Notify a principal of new, changed and removed items of its view of a computed node."""
        change = Change(
            service=str(address.bare),
            node=node,
            kind="published",
            items=tuple(items),
            config=self._core.computed_nodes[node].config,
            publisher=str(address.bare),
            principal=str(principal.bare),
        )
        if items:
            self._core.notifier.put(change)
        if gone:
            self._core.notifier.put(
                msgspec.structs.replace(change, kind="retracted", items=(), ids=tuple(gone))
            )

    def requester(self, address: JID, sender: JID) -> Requester:
        """Return the requester of a request to one of our addresses."""
        return Requester(
            service=str(address.bare),
            principal=str(sender.bare),
            jid=str(sender),
            may_create=self.may_create(sender.bare),
            has_stopped=not self._core.notifier.may_write(address.bare, sender.bare),
        )


def _self(address: JID) -> Requester:
    service = str(address.bare)
    return Requester(service=service, principal=service, jid=service)


def _check_stored(
    database: Database, service: str, node: str, ids: Sequence[str], expected: Stored
) -> None:
    rows.node(database, service, node, lock=True)
    for id_ in ids:
        found = rows.item(database, service, node, id_)
        if (None if found is None else found.payload) != expected.payload:
            raise ItemChangedError
