"""XEP-0060 Publish-Subscribe: the application-specific conditions of its errors (§16.3)."""

from typing import Annotated, Final, Literal

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "http://jabber.org/protocol/pubsub#errors"


class ClosedNode(Payload, frozen=True, kw_only=True):
    """The node no longer exists, or accepts no subscriptions (XEP-0060 §6.1.3)."""

    xml = Name(NAMESPACE, "closed-node")


class ConfigurationRequired(Payload, frozen=True, kw_only=True):
    """The subscription must be configured first (XEP-0060 §6.5.9.4)."""

    xml = Name(NAMESPACE, "configuration-required")


class InvalidJID(Payload, frozen=True, kw_only=True):
    """The address is not that of the requester (XEP-0060 §6.1.3.1)."""

    xml = Name(NAMESPACE, "invalid-jid")


class InvalidOptions(Payload, frozen=True, kw_only=True):
    """An option is unknown or has a wrong value (XEP-0060 §6.3.6)."""

    xml = Name(NAMESPACE, "invalid-options")


class InvalidPayload(Payload, frozen=True, kw_only=True):
    """The payload is not one element, or not of the type of the node (XEP-0060 §7.1.3.6)."""

    xml = Name(NAMESPACE, "invalid-payload")


class InvalidSubid(Payload, frozen=True, kw_only=True):
    """The requester has no such subscription (XEP-0060 §6.2.3.5)."""

    xml = Name(NAMESPACE, "invalid-subid")


class ItemForbidden(Payload, frozen=True, kw_only=True):
    """The node accepts no item: it stores none and delivers no payloads (XEP-0060 §7.1.3.6)."""

    xml = Name(NAMESPACE, "item-forbidden")


class ItemRequired(Payload, frozen=True, kw_only=True):
    """The node needs an item (XEP-0060 §7.1.3.6)."""

    xml = Name(NAMESPACE, "item-required")


class JIDRequired(Payload, frozen=True, kw_only=True):
    """The request names no address (XEP-0060 §6.3.4.3)."""

    xml = Name(NAMESPACE, "jid-required")


class MaxItemsExceeded(Payload, frozen=True, kw_only=True):
    """The node has the maximum number of items (XEP-0060 §7.1.3)."""

    xml = Name(NAMESPACE, "max-items-exceeded")


class MaxNodesExceeded(Payload, frozen=True, kw_only=True):
    """The service has the maximum number of nodes (XEP-0060 §8.1)."""

    xml = Name(NAMESPACE, "max-nodes-exceeded")


class NodeIdRequired(Payload, frozen=True, kw_only=True):
    """The request names no node (XEP-0060 §8.1.1)."""

    xml = Name(NAMESPACE, "nodeid-required")


class NotInRosterGroup(Payload, frozen=True, kw_only=True):
    """The requester is in none of the roster groups that have access (XEP-0060 §6.1.3.5)."""

    xml = Name(NAMESPACE, "not-in-roster-group")


class NotSubscribed(Payload, frozen=True, kw_only=True):
    """The entity has no subscription to the node (XEP-0060 §6.2.3.2)."""

    xml = Name(NAMESPACE, "not-subscribed")


class PayloadTooBig(Payload, frozen=True, kw_only=True):
    """The payload is larger than the node allows (XEP-0060 §7.1.3.4)."""

    xml = Name(NAMESPACE, "payload-too-big")


class PayloadRequired(Payload, frozen=True, kw_only=True):
    """The node needs a payload (XEP-0060 §7.1.3.6)."""

    xml = Name(NAMESPACE, "payload-required")


class PendingSubscription(Payload, frozen=True, kw_only=True):
    """The subscription has not been approved yet (XEP-0060 §6.1.3.6)."""

    xml = Name(NAMESPACE, "pending-subscription")


class PreconditionNotMet(Payload, frozen=True, kw_only=True):
    """The node is not configured as the publish options require (XEP-0060 §7.1.5)."""

    xml = Name(NAMESPACE, "precondition-not-met")


class PresenceSubscriptionRequired(Payload, frozen=True, kw_only=True):
    """Only contacts that see the owner's presence have access (XEP-0060 §6.1.3.4)."""

    xml = Name(NAMESPACE, "presence-subscription-required")


class SubidRequired(Payload, frozen=True, kw_only=True):
    """The entity has several subscriptions, so the request must name one (XEP-0060 §6.2.3.1)."""

    xml = Name(NAMESPACE, "subid-required")


class TooManySubscriptions(Payload, frozen=True, kw_only=True):
    """The requester has the maximum number of subscriptions (XEP-0060 §6.1.3.8)."""

    xml = Name(NAMESPACE, "too-many-subscriptions")


class UnsupportedAccessModel(Payload, frozen=True, kw_only=True):
    """The service does not support the access model (XEP-0060 §8.1.3)."""

    xml = Name(NAMESPACE, "unsupported-access-model")


Feature = Literal[
    "access-authorize",
    "access-open",
    "access-presence",
    "access-roster",
    "access-whitelist",
    "auto-create",
    "auto-subscribe",
    "collections",
    "config-node",
    "create-and-configure",
    "create-nodes",
    "delete-items",
    "delete-nodes",
    "filtered-notifications",
    "get-pending",
    "instant-nodes",
    "item-ids",
    "last-published",
    "leased-subscription",
    "manage-subscriptions",
    "member-affiliation",
    "meta-data",
    "modify-affiliations",
    "multi-collection",
    "multi-items",
    "multi-subscribe",
    "outcast-affiliation",
    "persistent-items",
    "presence-notifications",
    "presence-subscribe",
    "publish",
    "publish-options",
    "publish-only-affiliation",
    "publisher-affiliation",
    "purge-nodes",
    "retract-items",
    "retrieve-affiliations",
    "retrieve-default",
    "retrieve-default-sub",
    "retrieve-items",
    "retrieve-subscriptions",
    "subscribe",
    "subscription-options",
    "subscription-notifications",
]
"""The features of a service, without the prefix that they have in disco#info (XEP-0060 §10)."""


class Unsupported(Payload, frozen=True, kw_only=True):
    """The service lacks the feature that the request needs (XEP-0060 §6.1.3.9)."""

    xml = Name(NAMESPACE, "unsupported")

    feature: Annotated[Feature, Attr()]


CONDITIONS: Final[tuple[type[Payload], ...]] = (
    ClosedNode,
    ConfigurationRequired,
    InvalidJID,
    InvalidOptions,
    InvalidPayload,
    InvalidSubid,
    ItemForbidden,
    ItemRequired,
    JIDRequired,
    MaxItemsExceeded,
    MaxNodesExceeded,
    NodeIdRequired,
    NotInRosterGroup,
    NotSubscribed,
    PayloadTooBig,
    PayloadRequired,
    PendingSubscription,
    PreconditionNotMet,
    PresenceSubscriptionRequired,
    SubidRequired,
    TooManySubscriptions,
    UnsupportedAccessModel,
    Unsupported,
)
"""All conditions, for `xep.stanza_error.StanzaError.of`."""
