"""XEP-0203 Delayed Delivery."""

import contextlib
from datetime import UTC, datetime
from typing import Annotated, Final

from xep.binding import Attr, Name, Payload, Text

NAMESPACE: Final = "urn:xmpp:delay"


class Delay(Payload, frozen=True, kw_only=True):
    """When a stanza was first sent, and which entity delayed it (XEP-0203 §2).

    ``from_`` is kept unchanged: an address that is invalid by RFC 7622 is no reason to ignore the
    delay.
    """

    xml = Name(NAMESPACE, "delay")

    stamp: Annotated[datetime, Attr()]
    from_: Annotated[str | None, Attr("from")] = None
    reason: Annotated[str, Text()] = ""


class LegacyDelay(Payload, frozen=True, kw_only=True):
    """The same before XEP-0203, which some servers and gateways still send (XEP-0091)."""

    xml = Name("jabber:x:delay", "x")

    stamp: Annotated[str | None, Attr()] = None

    @property
    def time(self) -> datetime | None:
        """When the stanza was first sent; None if that cannot be read."""
        with contextlib.suppress(ValueError):
            return datetime.strptime(self.stamp or "", "%Y%m%dT%H:%M:%S").replace(tzinfo=UTC)
        return None
