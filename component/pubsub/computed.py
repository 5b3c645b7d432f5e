"""Nodes whose items are computed from other data, for each principal separately.

The items that a subscriber knows can be stored with the subscription, as a digest of each. So a
change by a new release or other settings is detected at the next start.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from component.pubsub import rows
from component.pubsub.changes import Direct, items_event, last_item, retractions_event
from component.pubsub.config import NodeConfig
from component.pubsub.notifier import NodeNotifier
from component.pubsub.rows import Node, StoredItem
from component.store.storage import Storage
from xep.jid import JID
from xep.pubsub_event import Event

_PAGE: Final = 200
_decode = msgspec.json.Decoder(dict[str, str]).decode


class ComputedNode(Protocol):
    """A node to which nobody can publish. Every principal that the policy admits may read it, and
    sees its own items. `config` is the configuration that others see. `is_compared` says whether
    changes are found by comparing the items with those that a subscriber knows
    (`PubSubService.refresh`); otherwise `PubSubService.recomputed` reports them.
    """

    name: str
    config: NodeConfig
    is_compared: bool

    def is_at(self, service: JID) -> bool:
        """Whether the address has this node."""

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """Return the items that a principal sees, the newest last. Raises StorageError."""


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


def digests(items: Sequence[StoredItem]) -> str:
    """Return the stored form of the items that a subscriber knows: JSON, a digest for each id."""
    found = {each.id: hashlib.sha256(each.payload.encode()).hexdigest()[:16] for each in items}
    return msgspec.json.encode(found).decode()


async def refresh(
    storage: Storage, notifier: NodeNotifier, service: JID, node: ComputedNode
) -> None:
    """Notify subscribers of items that are new, changed or gone since they were last notified.
    Raises StorageError.
    """
    address, after = str(service.bare), ""
    while page := await storage.read(
        partial(rows.views, service=address, name=node.name, after=after, limit=_PAGE)
    ):
        for jid, principal, seen in page:
            items = await node.items(service, JID.parse(principal))
            now = digests(items)
            if now == seen:
                continue
            await storage.write(
                partial(rows.set_view, service=address, name=node.name, jid=jid, seen=now)
            )
            for event in _events(node.name, items, _decode(seen or "{}")):
                notifier.put(
                    Direct(
                        service=address,
                        node=node.name,
                        principal=str(JID.parse(jid).bare),
                        to=jid,
                        payloads=(event,),
                    )
                )
        after = page[-1][0]


def _events(node: str, items: Sequence[StoredItem], seen: Mapping[str, str]) -> Sequence[Event]:
    """Return the notifications for a subscriber who knows the items with these digests."""
    current = _decode(digests(items))
    events = [
        items_event(node, (each,), payloads=True)
        for each in items
        if seen.get(each.id) != current[each.id]
    ]
    gone = tuple(each for each in seen if each not in current)
    return [*events, retractions_event(node, gone)] if gone else events
