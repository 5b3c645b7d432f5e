"""XEP-0203 Delayed Delivery."""

from datetime import datetime
from typing import Annotated, Final

from xep.binding import Attr, Name, Payload, Text

NAMESPACE: Final = "urn:xmpp:delay"
LEGACY_TAG: Final = "{jabber:x:delay}x"
"""What servers and gateways wrote before XEP-0203, and some still do (XEP-0091)."""


class Delay(Payload, frozen=True, kw_only=True):
    """When a stanza was first sent, and who held it back (XEP-0203 §2).

    ``from_`` is kept as it came: an address that RFC 7622 refuses delays no less.
    """

    xml = Name(NAMESPACE, "delay")

    stamp: Annotated[datetime, Attr()]
    from_: Annotated[str | None, Attr("from")] = None
    reason: Annotated[str, Text()] = ""
