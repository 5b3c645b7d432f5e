"""The errors of a PubSub service, each with the condition of XEP-0060 that belongs to it."""

from functools import partial

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


def forbidden(text: str = "your affiliation with this node does not permit it") -> StanzaError:
    """The requester lacks the affiliation that the request needs."""
    return StanzaError("forbidden", text)


def unsupported(feature: Feature) -> StanzaError:
    """The service lacks a feature, or the node is not configured for it."""
    return fault("feature-not-implemented", pubsub_errors.Unsupported(feature=feature))


# Each of these is called where it is raised.

no_such_node = partial(StanzaError, "item-not-found", "there is no such node")
"""There is no such node, or the requester is not to know that there is."""
no_such_item = partial(StanzaError, "item-not-found", "there is no such item")
"""The node has no such item (XEP-0060 §7.2.3.2)."""
node_id_required = partial(
    fault, "bad-request", pubsub_errors.NodeIdRequired(), "the request names no node"
)
"""The request names no node (XEP-0060 §7.2.3.3)."""
jid_required = partial(
    fault, "bad-request", pubsub_errors.JIDRequired(), "the request names no address"
)
"""The request names no address (XEP-0060 §6.3.4.3)."""
item_required = partial(
    fault, "bad-request", pubsub_errors.ItemRequired(), "the request needs an item"
)
"""The request contains no item, or no item id (XEP-0060 §7.1.3.6, §7.2.3.4)."""
not_subscribed = partial(fault, "unexpected-request", pubsub_errors.NotSubscribed(), type_="cancel")
"""The entity has no subscription (XEP-0060 §6.2.3.2)."""
invalid_subid = partial(fault, "not-acceptable", pubsub_errors.InvalidSubid())
"""The entity has no subscription of that id (XEP-0060 §6.2.3.5)."""
invalid_jid = partial(
    fault, "bad-request", pubsub_errors.InvalidJID(), "the address is not that of the requester"
)
"""The subscription is for somebody other than the requester (XEP-0060 §6.1.3.1)."""
invalid_options = partial(fault, "bad-request", pubsub_errors.InvalidOptions())
"""An option of a subscription, which the text names, is unknown or has a wrong value (XEP-0060
§6.3.7).
"""
precondition_not_met = partial(fault, "conflict", pubsub_errors.PreconditionNotMet())
"""The node is not configured as the publish options require; the text says how (XEP-0060 §7.1.5).
"""
