"""XEP-0060 Publish-Subscribe: requests of entities to a service, and its answers.

Requests of owners are in `xep.pubsub_owner`, notifications in `xep.pubsub_event`, the conditions of
errors in `xep.pubsub_errors`. An empty ``node`` means none: the attribute is left out.
"""

from typing import Annotated, Final, Literal

from xep.binding import AnyChild, Attr, Child, Flag, Name, Payload, RawXML
from xep.data_forms import Form
from xep.jid import JID
from xep.result_sets import ResultSet

NAMESPACE: Final = "http://jabber.org/protocol/pubsub"
RETRIEVE_ITEMS: Final = f"{NAMESPACE}#retrieve-items"
"""The feature of a service that answers requests for items (XEP-0060 §6.5)."""
META_DATA: Final = f"{NAMESPACE}#meta-data"
"""The type of the form that describes a node in disco#info (XEP-0060 §5.4)."""
NODE_CONFIG: Final = f"{NAMESPACE}#node_config"
"""The type of the form that configures a node (XEP-0060 §8.2)."""
SUBSCRIBE_OPTIONS: Final = f"{NAMESPACE}#subscribe_options"
"""The type of the form that configures a subscription (XEP-0060 §6.3)."""
SUBSCRIBE_AUTHORIZATION: Final = f"{NAMESPACE}#subscribe_authorization"
"""The type of the form by which owners approve a subscription (XEP-0060 §8.6)."""
PUBLISH_OPTIONS: Final = f"{NAMESPACE}#publish-options"
"""The type of the form that goes with a publish request (XEP-0060 §7.1.5)."""
GET_PENDING: Final = f"{NAMESPACE}#get-pending"
"""The ad-hoc command that lists pending subscriptions (XEP-0060 §8.7)."""

AffiliationName = Literal["member", "none", "outcast", "owner", "publisher", "publish-only"]
"""The relation of an entity to a node (XEP-0060 §4.1)."""
SubscriptionState = Literal["none", "pending", "subscribed", "unconfigured"]
"""The state of a subscription (XEP-0060 §4.2)."""


class Item(Payload, frozen=True, kw_only=True):
    """An item of a node; in a request for items it names one by its id (XEP-0060 §6.5, §7.1).

    ``payloads`` has one element, or none if the item has no payload or only the id is meant. It has
    several only if the sender violates §7.1.3.6.
    """

    xml = Name(NAMESPACE, "item")

    id: Annotated[str | None, Attr()] = None
    publisher: Annotated[str | None, Attr()] = None
    payloads: Annotated[tuple[RawXML, ...], AnyChild()] = ()


class Items(Payload, frozen=True, kw_only=True):
    """Items of a node: requested, all of them if none is named, or returned (XEP-0060 §6.5)."""

    xml = Name(NAMESPACE, "items")

    node: Annotated[str, Attr()] = ""
    max_items: Annotated[int | None, Attr("max_items")] = None
    subid: Annotated[str | None, Attr()] = None
    items: Annotated[tuple[Item, ...], Child()] = ()


class Publish(Payload, frozen=True, kw_only=True):
    """Asks for an item to be published at a node, or reports the id of the published item
    (§7.1).
    """

    xml = Name(NAMESPACE, "publish")

    node: Annotated[str, Attr()] = ""
    items: Annotated[tuple[Item, ...], Child()] = ()


class PublishOptions(Payload, frozen=True, kw_only=True):
    """How the node must be configured for a publish request to succeed (XEP-0060 §7.1.5)."""

    xml = Name(NAMESPACE, "publish-options")

    form: Annotated[Form | None, Child()] = None


class Retract(Payload, frozen=True, kw_only=True):
    """Asks for items to be deleted; ``notify`` asks for subscribers to be notified
    (XEP-0060 §7.2).
    """

    xml = Name(NAMESPACE, "retract")

    node: Annotated[str, Attr()] = ""
    notify: Annotated[bool, Attr()] = False
    items: Annotated[tuple[Item, ...], Child()] = ()


class Create(Payload, frozen=True, kw_only=True):
    """Asks for a node; without a name the service chooses one (XEP-0060 §8.1)."""

    xml = Name(NAMESPACE, "create")

    node: Annotated[str, Attr()] = ""


class Configure(Payload, frozen=True, kw_only=True):
    """The configuration of the node that the same request creates (XEP-0060 §8.1.3)."""

    xml = Name(NAMESPACE, "configure")

    node: Annotated[str, Attr()] = ""
    form: Annotated[Form | None, Child()] = None


class Default(Payload, frozen=True, kw_only=True):
    """The default options of subscriptions, requested or returned (XEP-0060 §6.4)."""

    xml = Name(NAMESPACE, "default")

    node: Annotated[str, Attr()] = ""
    form: Annotated[Form | None, Child()] = None


class Subscribe(Payload, frozen=True, kw_only=True):
    """Asks for a subscription to a node (XEP-0060 §6.1)."""

    xml = Name(NAMESPACE, "subscribe")

    node: Annotated[str, Attr()] = ""
    jid: Annotated[JID, Attr()]


class Unsubscribe(Payload, frozen=True, kw_only=True):
    """Asks for the end of a subscription (XEP-0060 §6.2)."""

    xml = Name(NAMESPACE, "unsubscribe")

    node: Annotated[str, Attr()] = ""
    jid: Annotated[JID, Attr()]
    subid: Annotated[str | None, Attr()] = None


class Options(Payload, frozen=True, kw_only=True):
    """The options of a subscription: requested, returned or set (XEP-0060 §6.3).

    Beside ``subscribe`` it has neither ``node`` nor ``jid`` (§6.3.7); alone it needs both.
    """

    xml = Name(NAMESPACE, "options")

    node: Annotated[str, Attr()] = ""
    jid: Annotated[JID | None, Attr()] = None
    subid: Annotated[str | None, Attr()] = None
    form: Annotated[Form | None, Child()] = None


class SubscribeOptions(Payload, frozen=True, kw_only=True):
    """Says that a subscription has options, and whether they must be set first (§6.3.1)."""

    xml = Name(NAMESPACE, "subscribe-options")

    required: Annotated[bool, Flag()] = False


class Subscription(Payload, frozen=True, kw_only=True):
    """The subscription of an entity to a node (XEP-0060 §5.6, §6.1.2)."""

    xml = Name(NAMESPACE, "subscription")

    node: Annotated[str, Attr()] = ""
    jid: Annotated[JID, Attr()]
    subid: Annotated[str | None, Attr()] = None
    subscription: Annotated[SubscriptionState | None, Attr()] = None
    options: Annotated[SubscribeOptions | None, Child()] = None


class Subscriptions(Payload, frozen=True, kw_only=True):
    """The requester's own subscriptions, at one node or at all (XEP-0060 §5.6)."""

    xml = Name(NAMESPACE, "subscriptions")

    node: Annotated[str, Attr()] = ""
    subscriptions: Annotated[tuple[Subscription, ...], Child()] = ()


class Affiliation(Payload, frozen=True, kw_only=True):
    """The requester's own affiliation with a node (XEP-0060 §5.7)."""

    xml = Name(NAMESPACE, "affiliation")

    node: Annotated[str, Attr()] = ""
    jid: Annotated[JID | None, Attr()] = None
    affiliation: Annotated[AffiliationName, Attr()]


class Affiliations(Payload, frozen=True, kw_only=True):
    """The requester's own affiliations, with one node or with all (XEP-0060 §5.7)."""

    xml = Name(NAMESPACE, "affiliations")

    node: Annotated[str, Attr()] = ""
    affiliations: Annotated[tuple[Affiliation, ...], Child()] = ()


class Pubsub(Payload, frozen=True, kw_only=True):
    """A request to a PubSub service, or its answer.

    One field is the request. Only these may be combined: ``create`` and ``configure``,
    ``publish`` and ``publish_options``, ``subscribe`` and ``options``, ``items`` and ``page``.
    """

    xml = Name(NAMESPACE, "pubsub")

    create: Annotated[Create | None, Child()] = None
    configure: Annotated[Configure | None, Child()] = None
    subscribe: Annotated[Subscribe | None, Child()] = None
    options: Annotated[Options | None, Child()] = None
    publish: Annotated[Publish | None, Child()] = None
    publish_options: Annotated[PublishOptions | None, Child()] = None
    affiliations: Annotated[Affiliations | None, Child()] = None
    default: Annotated[Default | None, Child()] = None
    items: Annotated[Items | None, Child()] = None
    retract: Annotated[Retract | None, Child()] = None
    subscription: Annotated[Subscription | None, Child()] = None
    subscriptions: Annotated[Subscriptions | None, Child()] = None
    unsubscribe: Annotated[Unsubscribe | None, Child()] = None
    page: Annotated[ResultSet | None, Child()] = None
