"""Makes the notifications of changes of a node (XEP-0060 §7.1.2, §7.2.2, §8)."""

from datetime import datetime

from component.pubsub.changes import Change
from component.pubsub.config import form_of
from component.pubsub.rows import StoredItem
from xep import pubsub_event
from xep.binding import Payload, RawXML
from xep.delay import Delay
from xep.jid import JID
from xep.pubsub import SubscriptionState


def event_of(change: Change) -> pubsub_event.Event | None:
    """The notification of a change; None if there is nothing to tell."""
    if change.kind == "published":
        return items_event(change.node, change.items, payloads=change.config.deliver_payloads)
    if change.kind == "retracted":
        return retractions_event(change.node, change.ids)
    if change.kind == "purged":
        return pubsub_event.Event(purge=pubsub_event.Purge(node=change.node))
    if change.kind == "deleted":
        return pubsub_event.Event(delete=pubsub_event.Delete(node=change.node))
    form = form_of(change.config, of_type="result") if change.config.deliver_payloads else None
    return pubsub_event.Event(configuration=pubsub_event.Configuration(node=change.node, form=form))


def items_event(node: str, items: tuple[StoredItem, ...], *, payloads: bool) -> pubsub_event.Event:
    """The notification of items, with or without their payloads."""
    return pubsub_event.Event(
        items=pubsub_event.Items(
            node=node,
            items=tuple(
                pubsub_event.Item(
                    id=each.id,
                    payloads=(RawXML(each.payload),) if payloads and each.payload else (),
                )
                for each in items
            ),
        )
    )


def retractions_event(node: str, ids: tuple[str, ...]) -> pubsub_event.Event:
    """The notification that items are gone (§7.2.2.1)."""
    gone = tuple(pubsub_event.Retract(id=each) for each in ids)
    return pubsub_event.Event(items=pubsub_event.Items(node=node, items=gone))


def last_item(node: str, item: StoredItem, *, payloads: bool) -> tuple[Payload, ...]:
    """The last item of a node, with the time at which it was published (§6.1.7, §12.18)."""
    return items_event(node, (item,), payloads=payloads), Delay(stamp=stamped(item.published))


def stamped(moment: datetime) -> datetime:
    """A time without its fraction of a second."""
    return moment.replace(microsecond=0)


def subscription_event(node: str, jid: JID, state: SubscriptionState) -> pubsub_event.Event:
    """The notification that a subscription has another state (§8.6, §8.8)."""
    return pubsub_event.Event(
        subscription=pubsub_event.Subscription(node=node, jid=jid, subscription=state)
    )
