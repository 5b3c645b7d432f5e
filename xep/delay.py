"""XEP-0203 Delayed Delivery."""

import contextlib
from datetime import UTC, datetime
from typing import Annotated, Final

from xep.binding import Attr, Name, Payload, Text

NAMESPACE: Final = "urn:xmpp:delay"


class Delay(Payload, frozen=True, kw_only=True):
    """When a stanza was first sent, and which entity delayed it (XEP-0203 §2).

    ``from_`` is kept unchanged: an address that is invalid by RFC 7622 does not make the delay
    invalid.
    """

    xml = Name(NAMESPACE, "delay")

    stamp: Annotated[datetime, Attr()]
    from_: Annotated[str | None, Attr("from")] = None
    reason: Annotated[str, Text()] = ""


class ReceivedDelay(Payload, frozen=True, kw_only=True):
    """A delay with the stamp as it is written: some gateways use other formats than XEP-0082."""

    xml = Name(NAMESPACE, "delay")

    stamp: Annotated[str | None, Attr()] = None

    @property
    def time(self) -> datetime | None:
        """When the stanza was first sent; None if that cannot be read."""
        return _time(self.stamp)


class LegacyDelay(Payload, frozen=True, kw_only=True):
    """The same before XEP-0203, which some servers and gateways still send (XEP-0091)."""

    xml = Name("jabber:x:delay", "x")

    stamp: Annotated[str | None, Attr()] = None

    @property
    def time(self) -> datetime | None:
        """When the stanza was first sent; None if that cannot be read."""
        return _time(self.stamp)


def _time(stamp: str | None) -> datetime | None:
    """Read a stamp in any format of ISO 8601, in UTC if it has no zone."""
    with contextlib.suppress(ValueError, OverflowError):
        time = datetime.fromisoformat((stamp or "").strip().upper())
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return None
