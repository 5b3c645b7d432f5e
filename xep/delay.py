"""XEP-0203 Delayed Delivery."""

from datetime import datetime
from typing import Annotated, Final

from xep.binding import Attr, Name, Payload, Text

NAMESPACE: Final = "urn:xmpp:delay"
LEGACY_TAG: Final = "{jabber:x:delay}x"
"""The element that servers and gateways used before XEP-0203, and some still do (XEP-0091)."""


class Delay(Payload, frozen=True, kw_only=True):
    """When a stanza was first sent, and which entity delayed it (XEP-0203 §2).

    ``from_`` is kept unchanged: an address that is invalid by RFC 7622 is no reason to ignore the
    delay.
    """

    xml = Name(NAMESPACE, "delay")

    stamp: Annotated[datetime, Attr()]
    from_: Annotated[str | None, Attr("from")] = None
    reason: Annotated[str, Text()] = ""
