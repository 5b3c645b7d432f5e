"""The errors of a PubSub service, each with the condition of XEP-0060 that belongs to it."""

from xep import pubsub_errors
from xep.binding import Payload
from xep.pubsub_errors import Feature
from xep.stanza_error import Condition, ErrorType, StanzaError


def fault(
    condition: Condition,
    application: Payload | None = None,
    text: str = "",
    type_: ErrorType | None = None,
) -> StanzaError:
    """An error with an application-specific condition."""
    return StanzaError(
        condition, text, type=type_, application=() if application is None else (application,)
    )


def no_such_node() -> StanzaError:
    """There is no such node, or the requester is not to know that there is."""
    return StanzaError("item-not-found", "there is no such node")


def no_such_item() -> StanzaError:
    """The node has no such item (XEP-0060 §7.2.3.2)."""
    return StanzaError("item-not-found", "there is no such item")


def node_id_required() -> StanzaError:
    """The request names no node (XEP-0060 §7.2.3.3)."""
    return fault("bad-request", pubsub_errors.NodeIdRequired(), "the request names no node")


def jid_required() -> StanzaError:
    """The request names no address (XEP-0060 §6.3.4.3)."""
    return fault("bad-request", pubsub_errors.JIDRequired(), "the request names no address")


def item_required() -> StanzaError:
    """The request contains no item, or no item id (XEP-0060 §7.1.3.6, §7.2.3.4)."""
    return fault("bad-request", pubsub_errors.ItemRequired(), "the request needs an item")


def forbidden(text: str = "your affiliation with this node does not permit it") -> StanzaError:
    """The requester lacks the affiliation that the request needs."""
    return StanzaError("forbidden", text)


def unsupported(feature: Feature) -> StanzaError:
    """The service lacks a feature, or the node is not configured for it."""
    return fault("feature-not-implemented", pubsub_errors.Unsupported(feature=feature))


def not_subscribed() -> StanzaError:
    """The entity has no subscription (XEP-0060 §6.2.3.2)."""
    return fault("unexpected-request", pubsub_errors.NotSubscribed(), type_="cancel")


def invalid_subid() -> StanzaError:
    """The entity has no subscription of that id (XEP-0060 §6.2.3.5)."""
    return fault("not-acceptable", pubsub_errors.InvalidSubid())


def invalid_jid() -> StanzaError:
    """The subscription is for somebody other than the requester (XEP-0060 §6.1.3.1)."""
    return fault(
        "bad-request", pubsub_errors.InvalidJID(), "the address is not that of the requester"
    )


def invalid_options(text: str) -> StanzaError:
    """An option of a subscription is unknown or has a wrong value (XEP-0060 §6.3.7)."""
    return fault("bad-request", pubsub_errors.InvalidOptions(), text)


def precondition_not_met(text: str) -> StanzaError:
    """The node is not configured as the publish options require (XEP-0060 §7.1.5)."""
    return fault("conflict", pubsub_errors.PreconditionNotMet(), text)
