"""XEP-0202 Entity Time."""

from datetime import datetime, timezone
from typing import Annotated, Final

from xep.binding import Name, Payload, TextChild

NAMESPACE: Final = "urn:xmpp:time"


class TimeQuery(Payload, frozen=True, kw_only=True):
    """Queries the time at an entity (XEP-0202 §2)."""

    xml = Name(NAMESPACE, "time")


class Time(Payload, frozen=True, kw_only=True):
    """The answer (XEP-0202 §2): the time in UTC, and the offset of the entity's time zone.

    Both are required, because either alone is useless.
    """

    xml = Name(NAMESPACE, "time")

    tzo: Annotated[timezone, TextChild()]
    utc: Annotated[datetime, TextChild()]
