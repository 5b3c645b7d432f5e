"""What a committed request changed, for those who are notified of it."""

from typing import Literal

import msgspec

from component.pubsub.config import NodeConfig
from component.pubsub.rows import StoredItem
from xep.binding import Payload

Kind = Literal["published", "retracted", "purged", "deleted", "configured"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a node.

    Attributes:
        service: the bare address of the service.
        node: the name of the node.
        kind: what was done.
        items: what was published.
        ids: the ids of items that were retracted.
        config: how the node is configured now, or was when it was deleted.
        publisher: the bare address that asked for it.
        notifies: whether subscribers are notified.
        subscribers: the addresses that were subscribed to a deleted node.
        number: the number of the change, counted at the node; 0 at a computed node.
        principal: the only principal that is notified, where each has its own view of the node.
    """

    service: str
    node: str
    kind: Kind
    items: tuple[StoredItem, ...] = ()
    ids: tuple[str, ...] = ()
    config: NodeConfig
    publisher: str
    notifies: bool = True
    subscribers: tuple[str, ...] = ()
    number: int = 0
    principal: str | None = None


class Direct(msgspec.Struct, frozen=True, kw_only=True):
    """A message for one address: the last item, or the state of a subscription.

    Attributes:
        service: the bare address of the service.
        node: the node that it is about: it is sent in the order of its changes.
        principal: the bare address of the recipient, if each has its own view of the node.
        to: the address.
        payloads: what the message carries.
        type: its type.
    """

    service: str
    node: str
    principal: str | None = None
    to: str
    payloads: tuple[Payload, ...]
    type: Literal["headline", "normal"] = "headline"
