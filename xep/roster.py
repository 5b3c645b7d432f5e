"""The roster of an account (RFC 6121 §2)."""

from typing import Annotated, Final, Literal

from xep.binding import Attr, Child, Name, Payload, TextChild
from xep.jid import JID

NAMESPACE: Final = "jabber:iq:roster"

Subscription = Literal["none", "to", "from", "both", "remove"]


class RosterItem(Payload, frozen=True, kw_only=True):
    """A contact (RFC 6121 §2.1.2)."""

    xml = Name(NAMESPACE, "item")

    jid: Annotated[JID, Attr()]
    name: Annotated[str | None, Attr()] = None
    subscription: Annotated[Subscription | None, Attr()] = None
    ask: Annotated[Literal["subscribe"] | None, Attr()] = None
    groups: Annotated[tuple[str, ...], TextChild("group")] = ()


class RosterQuery(Payload, frozen=True, kw_only=True):
    """A roster or a change of it (RFC 6121 §2.1.1)."""

    xml = Name(NAMESPACE, "query")

    ver: Annotated[str | None, Attr()] = None
    items: Annotated[tuple[RosterItem, ...], Child()] = ()
