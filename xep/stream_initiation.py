"""XEP-0095 Stream Initiation, by which older clients offer files (XEP-0096)."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "http://jabber.org/protocol/si"


class StreamInitiation(Payload, frozen=True, kw_only=True):
    """The offer of a stream (XEP-0095 §3.1), without its profile."""

    xml = Name(NAMESPACE, "si")

    profile: Annotated[str | None, Attr()] = None
