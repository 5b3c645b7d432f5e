"""What a committed request changed, and the notification of it (XEP-0060 §7.1.2, §7.2.2, §8)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from component.pubsub.config import NodeConfig, config_form
from component.pubsub.rows import StoredItem
from xep import pubsub_event
from xep.binding import Payload, RawXML
from xep.delay import Delay
from xep.pubsub_event import Event

Kind = Literal["published", "retracted", "purged", "deleted", "configured"]


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a node.

    Attributes:
        ids: the ids of items that were retracted.
        config: how the node is configured now, or was when it was deleted.
        subscribers: the addresses that were subscribed to a deleted node.
        number: the number of the change, counted at the node.
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

    @property
    def queue(self) -> tuple[str, str]:
        """What is sent in order: the changes of a node."""
        return self.service, self.node

    def event(self) -> Event:
        """Return the notification of the change."""
        if self.kind == "published":
            items = {each.id: each.payload for each in self.items}
            return items_event(self.node, items, payloads=self.config.deliver_payloads)
        if self.kind == "retracted":
            return retractions_event(self.node, self.ids)
        if self.kind == "purged":
            return Event(purge=pubsub_event.Purge(node=self.node))
        if self.kind == "deleted":
            return Event(delete=pubsub_event.Delete(node=self.node))
        form = config_form(self.config, of_type="result") if self.config.deliver_payloads else None
        return Event(configuration=pubsub_event.Configuration(node=self.node, form=form))


class ViewChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of what a principal sees at a computed node, and its notification. `services` are
    the addresses that have this node: those of one agent.
    """

    services: tuple[str, ...]
    node: str
    principal: str
    event: Event
    size: int
    type: Literal["headline", "normal"]

    @property
    def queue(self) -> tuple[str, str]:
        """What is sent in order: the changes that a principal sees."""
        return self.principal, self.node


class Direct(msgspec.Struct, frozen=True, kw_only=True):
    """A message for one address: the last item, or the state of a subscription. `node` is the node
    that it is about: it is sent in the order of its changes. `principal` is the bare address of the
    recipient, if each has its own view of the node.
    """

    service: str
    node: str
    principal: str | None = None
    to: str
    payloads: tuple[Payload, ...]
    type: Literal["headline", "normal"] = "headline"

    @property
    def queue(self) -> tuple[str, str]:
        """What is sent in order: see `NodeChange` and `ViewChange`."""
        return self.principal or self.service, self.node


def items_event(node: str, items: Mapping[str, str], *, payloads: bool) -> Event:
    """Return the notification of items, by their ids, with or without their payloads."""
    shown = tuple(
        pubsub_event.Item(id=id_, payloads=(RawXML(payload),) if payloads and payload else ())
        for id_, payload in items.items()
    )
    return Event(items=pubsub_event.Items(node=node, items=shown))


def retractions_event(node: str, ids: tuple[str, ...]) -> Event:
    """Return the notification that items are gone (§7.2.2.1)."""
    gone = tuple(pubsub_event.Retract(id=each) for each in ids)
    return Event(items=pubsub_event.Items(node=node, items=gone))


def last_item(node: str, item: StoredItem, *, payloads: bool) -> tuple[Payload, ...]:
    """Return the last item of a node, with the time at which it was published (§6.1.7, §12.18)."""
    stamp: datetime = item.published.replace(microsecond=0)
    return items_event(node, {item.id: item.payload}, payloads=payloads), Delay(stamp=stamp)
