"""XEP-0131 Stanza Headers, as PubSub notifications use them (XEP-0060 §12.19)."""

from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload, Text

NAMESPACE: Final = "http://jabber.org/protocol/shim"
SUBSCRIPTION_ID: Final = "SubID"
"""The header that identifies the subscription for which a notification is sent."""


class Header(Payload, frozen=True, kw_only=True):
    """One header (XEP-0131 §2)."""

    xml = Name(NAMESPACE, "header")

    name: Annotated[str, Attr()]
    value: Annotated[str, Text()] = ""


class Headers(Payload, frozen=True, kw_only=True):
    """The headers of a stanza (XEP-0131 §2)."""

    xml = Name(NAMESPACE, "headers")

    headers: Annotated[tuple[Header, ...], Child()] = ()
