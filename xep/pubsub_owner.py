"""XEP-0060 Publish-Subscribe: requests of the owners of a node to a service, and its
answers (§8).
"""

from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload
from xep.data_forms import Form
from xep.jid import JID
from xep.pubsub import AffiliationName, SubscriptionState

NAMESPACE: Final = "http://jabber.org/protocol/pubsub#owner"


class Affiliation(Payload, frozen=True, kw_only=True):
    """The affiliation of an entity with the node (XEP-0060 §8.9)."""

    xml = Name(NAMESPACE, "affiliation")

    jid: Annotated[JID, Attr()]
    affiliation: Annotated[AffiliationName, Attr()]


class Affiliations(Payload, frozen=True, kw_only=True):
    """The affiliations with a node: requested, returned or changed (XEP-0060 §8.9)."""

    xml = Name(NAMESPACE, "affiliations")

    node: Annotated[str, Attr()] = ""
    affiliations: Annotated[tuple[Affiliation, ...], Child()] = ()


class Subscription(Payload, frozen=True, kw_only=True):
    """The subscription of an entity to the node (XEP-0060 §8.8)."""

    xml = Name(NAMESPACE, "subscription")

    jid: Annotated[JID, Attr()]
    subscription: Annotated[SubscriptionState, Attr()]
    subid: Annotated[str | None, Attr()] = None


class Subscriptions(Payload, frozen=True, kw_only=True):
    """The subscriptions to a node: requested, returned or changed (XEP-0060 §8.8)."""

    xml = Name(NAMESPACE, "subscriptions")

    node: Annotated[str, Attr()] = ""
    subscriptions: Annotated[tuple[Subscription, ...], Child()] = ()


class Configure(Payload, frozen=True, kw_only=True):
    """The configuration of a node: requested, returned, set or cancelled (XEP-0060 §8.2)."""

    xml = Name(NAMESPACE, "configure")

    node: Annotated[str, Attr()] = ""
    form: Annotated[Form | None, Child()] = None


class Default(Payload, frozen=True, kw_only=True):
    """The default configuration of nodes, requested or returned (XEP-0060 §8.3)."""

    xml = Name(NAMESPACE, "default")

    form: Annotated[Form | None, Child()] = None


class Redirect(Payload, frozen=True, kw_only=True):
    """The new location of the content of a deleted node (XEP-0060 §8.4)."""

    xml = Name(NAMESPACE, "redirect")

    uri: Annotated[str, Attr()]


class Delete(Payload, frozen=True, kw_only=True):
    """Asks for a node to be deleted (XEP-0060 §8.4)."""

    xml = Name(NAMESPACE, "delete")

    node: Annotated[str, Attr()] = ""
    redirect: Annotated[Redirect | None, Child()] = None


class Purge(Payload, frozen=True, kw_only=True):
    """Asks for all items of a node to be deleted (XEP-0060 §8.5)."""

    xml = Name(NAMESPACE, "purge")

    node: Annotated[str, Attr()] = ""


class PubsubOwner(Payload, frozen=True, kw_only=True):
    """A request of a node's owner, or the answer to it; one of the fields is set."""

    xml = Name(NAMESPACE, "pubsub")

    affiliations: Annotated[Affiliations | None, Child()] = None
    configure: Annotated[Configure | None, Child()] = None
    default: Annotated[Default | None, Child()] = None
    delete: Annotated[Delete | None, Child()] = None
    purge: Annotated[Purge | None, Child()] = None
    subscriptions: Annotated[Subscriptions | None, Child()] = None
