"""XEP-0060 Publish-Subscribe: the notifications that a service sends, in messages."""

from datetime import datetime
from typing import Annotated, Final

from xep.binding import AnyChild, Attr, Child, Name, Payload, RawXML
from xep.data_forms import Form
from xep.jid import JID
from xep.pubsub import SubscriptionState

NAMESPACE: Final = "http://jabber.org/protocol/pubsub#event"


class Item(Payload, frozen=True, kw_only=True):
    """An item that was published (XEP-0060 §7.1.2).

    ``payloads`` has one element, or none if the node delivers no payloads.
    """

    xml = Name(NAMESPACE, "item")

    id: Annotated[str | None, Attr()] = None
    publisher: Annotated[str | None, Attr()] = None
    payloads: Annotated[tuple[RawXML, ...], AnyChild()] = ()


class Retract(Payload, frozen=True, kw_only=True):
    """An item that was deleted (XEP-0060 §7.2.2.1)."""

    xml = Name(NAMESPACE, "retract")

    id: Annotated[str, Attr()]


class Items(Payload, frozen=True, kw_only=True):
    """Items that were published at a node or deleted from it, in this order."""

    xml = Name(NAMESPACE, "items")

    node: Annotated[str, Attr()]
    items: Annotated[tuple[Item | Retract, ...], Child(malformed="drop")] = ()


class Associate(Payload, frozen=True, kw_only=True):
    """A node that belongs to the collection from now on (XEP-0248)."""

    xml = Name(NAMESPACE, "associate")

    node: Annotated[str, Attr()]


class Disassociate(Payload, frozen=True, kw_only=True):
    """A node that no longer belongs to the collection (XEP-0248)."""

    xml = Name(NAMESPACE, "disassociate")

    node: Annotated[str, Attr()]


class Collection(Payload, frozen=True, kw_only=True):
    """A change of a collection (XEP-0248)."""

    xml = Name(NAMESPACE, "collection")

    node: Annotated[str | None, Attr()] = None
    associate: Annotated[Associate | None, Child()] = None
    disassociate: Annotated[Disassociate | None, Child()] = None


class Configuration(Payload, frozen=True, kw_only=True):
    """A node whose configuration was changed, and perhaps the new one (XEP-0060 §8.2.5.1)."""

    xml = Name(NAMESPACE, "configuration")

    node: Annotated[str | None, Attr()] = None
    form: Annotated[Form | None, Child()] = None


class Redirect(Payload, frozen=True, kw_only=True):
    """The new location of the content of a deleted node (XEP-0060 §8.4)."""

    xml = Name(NAMESPACE, "redirect")

    uri: Annotated[str, Attr()]


class Delete(Payload, frozen=True, kw_only=True):
    """A node that was deleted (XEP-0060 §8.4.2)."""

    xml = Name(NAMESPACE, "delete")

    node: Annotated[str, Attr()]
    redirect: Annotated[Redirect | None, Child()] = None


class Purge(Payload, frozen=True, kw_only=True):
    """A node all of whose items were deleted (XEP-0060 §8.5.2)."""

    xml = Name(NAMESPACE, "purge")

    node: Annotated[str, Attr()]


class Subscription(Payload, frozen=True, kw_only=True):
    """A subscription whose state was changed (XEP-0060 §6.1.7, §8.6)."""

    xml = Name(NAMESPACE, "subscription")

    node: Annotated[str | None, Attr()] = None
    jid: Annotated[JID, Attr()]
    subid: Annotated[str | None, Attr()] = None
    subscription: Annotated[SubscriptionState | None, Attr()] = None
    expiry: Annotated[datetime | None, Attr()] = None


class Event(Payload, frozen=True, kw_only=True):
    """A notification; one of the fields is set (XEP-0060 §7.1.2.1)."""

    xml = Name(NAMESPACE, "event")

    collection: Annotated[Collection | None, Child()] = None
    configuration: Annotated[Configuration | None, Child()] = None
    delete: Annotated[Delete | None, Child()] = None
    items: Annotated[Items | None, Child()] = None
    purge: Annotated[Purge | None, Child()] = None
    subscription: Annotated[Subscription | None, Child()] = None
