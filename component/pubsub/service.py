"""The PubSub service of our addresses, for other packages of this process.

`publish`, `retract`, `items`, `ensure` and `listen` check no rights. The feature `pubsub` serves
the requests of others, and checks them.

The items of a computed node are made from other data, for each principal separately. Those that a
subscriber knows can be stored with the subscription, as a digest of each. So a change by a new
release or other settings is detected at the next start.
"""

import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

from component.pubsub import faults, items, nodes, rows
from component.pubsub.access import NodeAccess, Requester, is_hidden, may_read
from component.pubsub.changes import (
    Direct,
    NodeChange,
    ViewChange,
    items_event,
    last_item,
    retractions_event,
)
from component.pubsub.config import NodeConfig
from component.pubsub.items import NewItem
from component.pubsub.notifier import NodeNotifier, Turns
from component.pubsub.rows import Node, NodeRows, StoredItem
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.store.storage import Storage
from xep.binding import Payload, RawXML, keep
from xep.jid import JID
from xep.pubsub import AffiliationName
from xep.pubsub_event import Event, Purge
from xep.stanza_error import StanzaError

_PAGE: Final = 200
_decode = msgspec.json.Decoder(dict[str, str]).decode


class ComputedNode:
    """A node to which nobody can publish. Every principal that the policy admits may read it, and
    sees its own items. `config` is the configuration that others see. `is_compared` says whether
    changes are found by comparing the items with those that a subscriber knows
    (`PubSubService.refresh`); otherwise `PubSubService.recomputed` reports them. `is_public` says
    that everybody may read the items, and sees the same ones.
    """

    name: str
    config: NodeConfig
    is_compared = False
    is_public = False

    def is_at(self, service: JID) -> bool:
        """Return whether the address has this node."""
        return True

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """Return the items that a principal sees, the newest last. Raises StorageError."""
        raise NotImplementedError

    async def digests(self, service: JID, principal: JID) -> Mapping[str, str]:
        """Return a digest of each of these items, by its id, in the same order. Raises
        StorageError.
        """
        return {
            each.id: hashlib.sha256(each.payload.encode()).hexdigest()[:16]
            for each in await self.items(service, principal)
        }

    async def chosen(
        self, service: JID, principal: JID, ids: Collection[str]
    ) -> Sequence[StoredItem]:
        """Return those of these items with the given ids. Raises StorageError."""
        return [each for each in await self.items(service, principal) if each.id in ids]


class NodeFamily:
    """Computed nodes that are made when they are asked for. Nobody else can have a node whose name
    begins with `prefix`. `config` is the configuration of all of them.

    A node that a principal may not read looks to it like one that does not exist.
    """

    prefix: str
    config: NodeConfig

    def find(self, service: JID, name: str, principal: JID) -> ComputedNode | None:
        """Return the node with a name at an address; None if there is none for this principal, a
        bare JID. It is called for each request and each event, so a right that was withdrawn ends.
        """
        raise NotImplementedError

    async def names(self, service: JID, principal: JID) -> Sequence[str]:
        """Return the names of the nodes that have items for a principal. Raises StorageError."""
        raise NotImplementedError


def as_node(service: str, computed: ComputedNode) -> Node:
    """Return a computed node as the struct of stored nodes."""
    return Node(
        service=service,
        name=computed.name,
        config=computed.config,
        creator=service,
        created=rows.at(0),
    )


async def last_of(
    computed: ComputedNode, service: str, principal: str, to: str
) -> Sequence[Direct]:
    """Return the message with the last item for an address, if any. Raises StorageError."""
    if computed.config.send_last_published_item == "never":
        return ()
    items = await computed.items(JID.parse(service), JID.parse(principal))
    return tuple(
        Direct(
            service=service,
            node=computed.name,
            principal=principal,
            to=to,
            payloads=last_item(computed.name, item, payloads=True),
        )
        for item in items[-1:]
    )


def stored_digests(digests: Mapping[str, str]) -> str:
    """Return the stored form of the items that a subscriber knows: JSON, a digest for each id."""
    return msgspec.json.encode(digests).decode()


_log = structlog.get_logger("component.pubsub")
_EVERY_ITEM: Final = 2**31 - 1
_TIDY_S: Final = 600.0

T = TypeVar("T")

Provide: TypeAlias = Callable[[JID, str, JID], Awaitable[JID | None]]
"""Creates a node of some purpose when it is first requested. It gets the address, the node and the
requester, and returns the address of the node; None for nodes of other purposes. Raises
StorageError.
"""


class _Listener(NamedTuple, Generic[T]):
    """Is called for the changes of the nodes of a service whose names begin with a prefix."""

    service: str
    prefix: str
    callback: Callable[[NodeChange], T]

    def is_for(self, change: NodeChange) -> bool:
        return change.service == self.service and change.node.startswith(self.prefix)


class Stored(NamedTuple):
    """The state of an item that a writer has read: its payload as XML, or None if there was no
    item.
    """

    payload: str | None


class NodePast(NamedTuple):
    """What is known of the past of a node: when it was created, in milliseconds since 1970 (0 if
    there is no such node), and how often it was changed since. If the node notes that, which items
    others than the service have deleted: their ids and when, in milliseconds since 1970.
    """

    created: int
    changes: int
    retractions: dict[str, int]


class StoredChangedError(Exception):
    """An item has changed since the writer has read it."""


class PubSubService:
    """The nodes of all our addresses. `creators` are the bare addresses that may create nodes."""

    def __init__(self, storage: Storage, notifier: NodeNotifier, creators: Collection[JID]) -> None:
        self.storage = storage
        self.notifier = notifier
        self.creators = creators
        self._observers: list[_Listener[None]] = []
        self._listeners: list[_Listener[Awaitable[None]]] = []
        self._turns: Turns[NodeChange] = Turns("listeners")
        self._providers: list[Provide] = []
        self._computed: dict[str, ComputedNode] = {}
        self._families: dict[str, NodeFamily] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Notify subscribers, call listeners and delete expired items, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.notifier.run)
            group.start_soon(self.notifier.interests.run, self._came_online)
            group.start_soon(self._call_listeners)
            task_status.started()
            while True:
                try:
                    await self.storage.write(rows.delete_expired_items)
                except StorageError as error:
                    log_failure(_log, "expired items cannot be deleted", error)
                await anyio.sleep(_TIDY_S)

    # -- items -----------------------------------------------------------------------------------

    async def publish(
        self,
        address: JID,
        node: str,
        item_id: str,
        payload: Payload | RawXML,
        *,
        only_if: Stored | None = None,
    ) -> None:
        """Publish an item of one of our addresses, the domain or an agent.

        A node that does not exist is created with the default configuration. `only_if` is the
        required current state of the item; it is not checked if this is None. Raises StanzaError
        if the node does not accept it, StoredChangedError if the current state of the item is not
        `only_if`, and StorageError.
        """
        raw = payload if isinstance(payload, RawXML) else keep(payload)
        item = NewItem(id=item_id, payloads=(raw.text,))

        def op(at: NodeAccess) -> NodeChange:
            _check_stored(at, (item_id,), only_if)
            return items.publish(at, (item,), {})

        await self.change(_self(address), node, op)

    async def retract(
        self, address: JID, node: str, item_ids: Sequence[str], *, only_if: Stored | None = None
    ) -> None:
        """Delete items of a node; those that are not there are left out. Raises StanzaError
        (``item-not-found``) if there is no such node, StorageError, and StoredChangedError if
        something else is stored than `only_if` says.
        """

        def op(at: NodeAccess) -> NodeChange | None:
            _check_stored(at, item_ids, only_if)
            at.find(lock=True)
            there = [each.id for each in at.items(item_ids)]
            return items.retract(at, there, notify=True) if there else None

        await self.change(_self(address), node, op)

    async def items(self, address: JID, node: str, ids: Sequence[str] = ()) -> list[StoredItem]:
        """Return the items of a node, or those with these ids, the newest last; empty if there is
        no such node. Raises StorageError.
        """
        return await self.read(
            _self(address), node, lambda at: at.items(ids) if ids else at.newest(_EVERY_ITEM)
        )

    async def past(self, address: JID, node: str) -> NodePast:
        """Return what is known of the past of a node. Raises StorageError."""
        return await self.read(
            _self(address), node, lambda at: NodePast(*at.age(), at.retractions())
        )

    async def forget_retractions(self, address: JID, node: str, ids: Sequence[str]) -> None:
        """Forget that these items were deleted. Raises StorageError."""
        await self.write(_self(address), node, lambda at: at.forget_retractions(ids))

    # -- nodes -----------------------------------------------------------------------------------

    async def ensure(
        self,
        address: JID,
        node: str,
        config: NodeConfig,
        *,
        owners: Sequence[JID] = (),
        reconfigures: bool = True,
    ) -> None:
        """Create a node if there is none, and add these owners. A node that exists gets the
        configuration, unless `reconfigures` is False. Raises StorageError.
        """

        def op(at: NodeAccess) -> NodeChange | None:
            change = None
            if not at.add(config, at.service) and reconfigures:
                known = at.load(lock=True)
                if known is not None and known.config != config:
                    change = nodes.reconfigure(at, known, config)
            for each in owners:
                at.set_affiliation(str(each.bare), "owner")
            return change

        await self.change(_self(address), node, op)

    async def set_owners(self, address: JID, node: str, owners: Sequence[JID]) -> None:
        """Make these, beside the address itself, the only owners of a node. Raises StanzaError as
        `nodes.set_affiliations`, and StorageError.
        """
        wanted = {str(each.bare) for each in owners}

        def op(at: NodeAccess) -> None:
            before = set(nodes.owners(at))
            made: list[tuple[str, AffiliationName]] = [(jid, "owner") for jid in wanted - before]
            made += [(jid, "none") for jid in before - wanted]
            if made:
                nodes.set_affiliations(at, sorted(made))

        await self.write(_self(address), node, op)

    async def visible(self, who: Requester) -> list[tuple[str, str]]:
        """Return the nodes that the requester may see, sorted, each with its title (§5.2). Raises
        StorageError.
        """

        def op(database: Database) -> list[Node]:
            return [
                each
                for each in rows.nodes(database, who.service)
                if not is_hidden(each, NodeAccess(database, who, each.name).own_affiliation())
            ]

        found = {each.name: each.config.title for each in await self.storage.read(op)}
        service = JID.parse(who.service)
        for name, computed in self._computed.items():
            if computed.is_at(service):
                found[name] = computed.config.title
        for family in self._families.values():
            for name in await family.names(service, JID.parse(who.principal)):
                found[name] = family.config.title
        return sorted(found.items())

    def add_provider(self, provide: Provide) -> None:
        """Ask `provide` for a node before each lookup."""
        self._providers.append(provide)

    async def locate(self, address: JID, node: str, requester: JID) -> JID:
        """Return the address that has the node for a request to `address`. Raises StorageError."""
        for provide in self._providers:
            found = await provide(address, node, requester)
            if found is not None:
                return found
        return address

    def add_computed(self, node: ComputedNode) -> None:
        """Add a computed node, in place of one of this name."""
        self._computed[node.name] = node

    def add_family(self, family: NodeFamily) -> None:
        """Add a family of computed nodes, in place of one with this prefix."""
        self._families[family.prefix] = family

    def computed(self, who: Requester, name: str) -> ComputedNode | None:
        """Return the computed node with this name at the address, if there is one for the
        requester.
        """
        service = JID.parse(who.service)
        found = self._computed.get(name)
        if found is not None:
            return found if found.is_at(service) else None
        family = self._family(name)
        return None if family is None else family.find(service, name, JID.parse(who.principal))

    def _family(self, name: str) -> NodeFamily | None:
        return next((one for one in self._families.values() if name.startswith(one.prefix)), None)

    def may_see(self, address: JID, node: str, principal: JID) -> bool:
        """Return whether a principal, a bare JID, may see what an agent sees at a node of its own:
        one of a family must be there for this principal as well.
        """
        family = self._family(node)
        return family is None or family.find(address.bare, node, principal) is not None

    async def may_read(self, address: JID, node: str, principal: JID) -> bool:
        """Return whether a principal may retrieve the items of a node at one of our addresses.
        Raises StorageError.
        """
        who = self.requester(address, principal)
        if self.computed(who, node) is not None:
            return True
        try:
            await self.read(who, node, NodeAccess.readable)
        except StanzaError:
            return False
        return True

    def is_public(self, name: str) -> bool:
        """Return whether everybody may read the items of a node, admitted or not."""
        found = self._computed.get(name)
        return found is not None and found.is_public

    def is_computed(self, who: Requester, name: str) -> bool:
        """Return whether nobody can have a node with this name: it is that of a computed one."""
        return self._family(name) is not None or self.computed(who, name) is not None

    def refuse_computed(self, who: Requester, name: str) -> None:
        """Raise StanzaError if the node is computed: it cannot be changed."""
        if self.is_computed(who, name):
            raise faults.forbidden("nobody can change this node: it is computed")

    def requester(self, address: JID, sender: JID) -> Requester:
        """Return the requester of a request to one of our addresses."""
        return Requester(
            service=str(address.bare),
            principal=str(sender.bare),
            jid=str(sender),
            may_create=sender.bare in self.creators,
            has_stopped=not self.notifier.may_write(address.bare, sender.bare),
        )

    # -- notifications ---------------------------------------------------------------------------

    async def read(self, who: Requester, node: str, op: Callable[[NodeAccess], T]) -> T:
        """Return what an operation reads of a node. Raises StanzaError, StorageError."""
        return await self.storage.read(lambda database: op(NodeAccess(database, who, node)))

    async def write(self, who: Requester, node: str, op: Callable[[NodeAccess], T]) -> T:
        """Commit the changes of an operation on a node. Raises StanzaError, StorageError."""
        return await self.storage.write(lambda database: op(NodeAccess(database, who, node)))

    async def change(
        self, who: Requester, node: str, op: Callable[[NodeAccess], NodeChange | None]
    ) -> None:
        """Commit the change of an operation, then notify. Raises StanzaError, StorageError."""
        change = await self.write(who, node, op)
        if change is not None:
            for observer in self._observers:
                if observer.is_for(change):
                    observer.callback(change)
            if any(listener.is_for(change) for listener in self._listeners):
                size = sum(len(each.payload) for each in change.items)
                self._turns.put((change.service, change.node), change, size)
            self.notifier.put(change)

    async def send(
        self, who: Requester, node: str, op: Callable[[NodeAccess], Sequence[Direct]]
    ) -> None:
        """Commit the changes of an operation, then send its messages. Raises as `change`."""
        for message in await self.write(who, node, op):
            self.notifier.put(message)

    def observe(
        self, address: JID, node_prefix: str, callback: Callable[[NodeChange], None]
    ) -> None:
        """Call `callback` after the commit of each change of the nodes at an address whose names
        begin with this prefix, before the requester has its answer. It must not wait.
        """
        self._observers.append(_Listener(str(address.bare), node_prefix, callback))

    def listen(
        self, address: JID, node_prefix: str, callback: Callable[[NodeChange], Awaitable[None]]
    ) -> None:
        """Call `callback` after each committed change of the nodes at an address whose names begin
        with this prefix, in the order of the commits. Its exceptions are logged.
        """
        self._listeners.append(_Listener(str(address.bare), node_prefix, callback))

    async def _call_listeners(self) -> None:
        """Call the listeners one after another; nodes take turns."""
        while True:
            turn = await self._turns.next()
            change = turn.entry
            for listener in list(self._listeners):
                if listener.is_for(change):
                    try:
                        await listener.callback(change)
                    except Exception:  # noqa: BLE001 - the others are called all the same
                        _log.exception("a listener failed", node=change.node, kind=change.kind)
            self._turns.done(turn, 1)

    async def refresh(self, address: JID) -> None:
        """Notify the subscribers of computed nodes at one of our addresses of changes in their
        views since the last notification. Raises StorageError.
        """
        service = str(address.bare)
        for node in self._computed.values():
            if node.is_compared and node.is_at(address):
                await self._refresh(service, node)

    async def subscribers(self, address: JID, node: str) -> Collection[str]:
        """Return the principals that subscribe to a computed node at one of our addresses. Raises
        StorageError.
        """
        return await self.read(_self(address), node, NodeAccess.principals)

    async def refresh_view(self, address: JID, node: str, principal: JID) -> None:
        """Notify the subscribers of a principal, a bare JID, of changes in its view of one node, as
        `refresh` does. Raises StorageError.
        """
        await self._refresh(str(address.bare), self._computed[node], str(principal))

    async def _refresh(self, service: str, node: ComputedNode, only: str | None = None) -> None:
        who = _self(JID.parse(service))
        views = partial(NodeAccess.views, limit=_PAGE, principal=only)
        after = ""
        while page := await self.read(who, node.name, partial(views, after=after)):
            for jid, principal, seen in page:
                await checkpoint()  # other agents may be a thousand subscribers
                asked = JID.parse(service), JID.parse(principal)
                now = await node.digests(*asked)
                if stored_digests(now) == seen:
                    continue
                before = _decode(seen or "{}")
                changed = [id_ for id_, digest in now.items() if before.get(id_) != digest]
                gone = tuple(id_ for id_ in before if id_ not in now)
                events = [
                    items_event(node.name, {each.id: each.payload}, payloads=True)
                    for each in (await node.chosen(*asked, changed) if changed else ())
                ]
                view = partial(NodeAccess.set_view, jid=jid, seen=stored_digests(now))
                await self.write(who, node.name, view)
                for event in (*events, *((retractions_event(node.name, gone),) if gone else ())):
                    self.notifier.put(
                        Direct(
                            service=service,
                            node=node.name,
                            principal=str(JID.parse(jid).bare),
                            to=jid,
                            payloads=(event,),
                        )
                    )
            after = page[-1][0]

    def recomputed(
        self, addresses: Iterable[JID], node: str, principal: JID, item: str, payload: str | None
    ) -> None:
        """Notify a principal that its view of a computed node has a new or changed item, with this
        id and payload as XML, or with None that it is gone. `addresses` are the bare addresses of
        ours that have this node.
        """
        config = (self._family(node) or self._computed[node]).config
        if payload is None:
            event, size = retractions_event(node, (item,)), 0
        else:
            event = items_event(node, {item: payload}, payloads=config.deliver_payloads)
            size = len(payload)
        self._view_changed(addresses, principal, (node, config), event, size)

    def emptied(self, addresses: Iterable[JID], node: str, principal: JID) -> None:
        """Notify a principal that its view of a computed node has no items any more; see
        `recomputed`.
        """
        config = (self._family(node) or self._computed[node]).config
        event = Event(purge=Purge(node=node))
        self._view_changed(addresses, principal, (node, config), event)

    def _view_changed(
        self,
        addresses: Iterable[JID],
        principal: JID,
        node: tuple[str, NodeConfig],
        event: Event,
        size: int = 0,
    ) -> None:
        self.notifier.put(
            ViewChange(
                services=tuple(map(str, addresses)),
                node=node[0],
                principal=str(principal),
                event=event,
                size=size,
                type=node[1].notification_type,
            )
        )

    def interested(self, addresses: Iterable[JID], node: str) -> set[str]:
        """Return the bare addresses of the online clients that want notifications of a node without
        a subscription. `addresses` are the bare addresses that have this node.
        """
        return {
            bare for each in addresses for bare in self.notifier.bare_interested(str(each), node)
        }

    async def _came_online(
        self, service: str, full: str, bare: str, interests: frozenset[str]
    ) -> None:
        """Send the last items of the nodes in which a client is interested, or to which it or its
        account is subscribed, as far as these nodes send them on presence (§12.17).
        """
        who = Requester(service=service, principal=bare, jid=full)

        def op(database: Database) -> list[Direct]:
            wanted = set(interests)
            for made in rows.subscriptions_of(database, service, bare):
                if made.state == "subscribed" and made.deliver and made.jid in (full, bare):
                    wanted.add(made.node)
            messages: list[Direct] = []
            for name in sorted(wanted):
                node = NodeRows(database, service, name).load()
                if (
                    node is not None
                    and node.config.send_last_published_item == "on_sub_and_presence"
                    and may_read(database, node, bare)
                ):
                    messages += last_messages(database, node, full)
            return messages

        try:
            for message in await self.storage.read(op):
                self.notifier.put(message)
            for name in sorted(interests):
                computed = self.computed(who, name)
                if (
                    computed is not None
                    and computed.config.send_last_published_item == "on_sub_and_presence"
                ):
                    for message in await last_of(computed, service, bare, full):
                        self.notifier.put(message)
        except StorageError as error:
            log_failure(_log, "the last items were not sent", error)


def last_messages(database: Database, node: Node, to: str) -> Sequence[Direct]:
    """Return the message with the last item for a new subscriber (§6.1.7)."""
    config = node.config
    if config.send_last_published_item == "never" or not config.deliver_notifications:
        return ()
    return tuple(
        Direct(
            service=node.service,
            node=node.name,
            to=to,
            payloads=last_item(node.name, each, payloads=config.deliver_payloads),
            type=config.notification_type,
        )
        for each in NodeRows(database, node.service, node.name).newest(1)
    )


def _self(address: JID) -> Requester:
    service = str(address.bare)
    return Requester(service=service, principal=service, jid=service)


def _check_stored(at: NodeRows, ids: Sequence[str], expected: Stored | None) -> None:
    if expected is not None:
        at.load(lock=True)
        for id_ in ids:
            found = at.item(id_)
            if (None if found is None else found.payload) != expected.payload:
                raise StoredChangedError
