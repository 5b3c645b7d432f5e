"""The common part of the PubSub service: commits changes and sends their notifications."""

from collections.abc import Callable, Sequence
from typing import Protocol

from component.pubsub import faults, rows
from component.pubsub.access import Requester
from component.pubsub.allowance import Allowances
from component.pubsub.changes import Change, Direct
from component.pubsub.computed import ComputedNode
from component.pubsub.events import last_item
from component.pubsub.notifier import Listeners, Notifier
from component.pubsub.rows import Node
from component.storage.database import Database
from component.storage.storage import Storage
from xep.jid import JID
from xep.result_sets import PAGE_ROOM


class NodeProvider(Protocol):
    """Creates the nodes of a purpose when they are first requested."""

    async def provide(self, address: JID, node: str, requester: JID) -> JID | None:
        """Create the node if needed, and return its address; None for nodes of other purposes.

        Raises StorageError.
        """


class Core:
    """Commits changes, and notifies subscribers and listeners of them.

    Args:
        storage: has the tables.
        notifier: sends notifications.
        may_create: whether a bare address may create nodes.
        computed: the computed nodes.

    Attributes:
        may_create: as given.
        storage: as given.
        notifier: as given.
        listeners: the listeners in this process.
        computed_nodes: the computed nodes by name.
        allowances: what each principal may cause.
        providers: create nodes when they are first requested.
    """

    def __init__(
        self,
        storage: Storage,
        notifier: Notifier,
        may_create: Callable[[JID], bool],
        computed: Sequence[ComputedNode] = (),
        page_room: int = PAGE_ROOM,
    ) -> None:
        self.may_create = may_create
        self.page_room = page_room
        self.storage = storage
        self.notifier = notifier
        self.listeners = Listeners()
        self.allowances = Allowances()
        self.providers: list[NodeProvider] = []
        self.computed_nodes: dict[str, ComputedNode] = {each.name: each for each in computed}

    async def change(self, op: Callable[[Database], list[Change]]) -> None:
        """Commit the changes of an operation, then notify. Raises StanzaError, StorageError."""
        for change in await self.storage.write(op):
            self.listeners.put(change)
            self.notifier.put(change)

    def computed(self, who: Requester, name: str) -> ComputedNode | None:
        """Return the computed node with this name at the address."""
        found = self.computed_nodes.get(name)
        return found if found is not None and found.is_at(JID.parse(who.service)) else None

    def refuse_computed(self, who: Requester, name: str) -> None:
        """Raise StanzaError if the node is computed: it cannot be changed."""
        if self.computed(who, name) is not None:
            raise faults.forbidden("nobody can change this node: it is computed")

    async def send_last_computed(
        self, who: Requester, computed: ComputedNode, address: str
    ) -> None:
        """Send the last item of a computed node. Raises StorageError."""
        if computed.config.send_last_published_item == "never":
            return
        items = await computed.items(JID.parse(who.service), JID.parse(who.principal))
        if items:
            payloads = last_item(computed.name, items[-1], payloads=True)
            self.notifier.put(
                Direct(
                    service=who.service,
                    node=computed.name,
                    principal=who.principal,
                    to=address,
                    payloads=payloads,
                )
            )


def as_node(who: Requester, computed: ComputedNode) -> Node:
    """Return a computed node as the struct of stored nodes."""
    return Node(
        service=who.service,
        name=computed.name,
        config=computed.config,
        creator=who.service,
        created=rows.at(0),
    )


def last_messages(database: Database, node: Node, to: str) -> Sequence[Direct]:
    """Return the message with the last item for a new subscriber (§6.1.7)."""
    config = node.config
    if config.send_last_published_item == "never" or not config.deliver_notifications:
        return ()
    newest = rows.newest(database, node.service, node.name, 1)
    return tuple(
        Direct(
            service=node.service,
            node=node.name,
            to=to,
            payloads=last_item(node.name, each, payloads=config.deliver_payloads),
            type=config.notification_type,
        )
        for each in newest
    )
