"""XEP-0066 Out of Band Data: a URL in a message, or in a request."""

from typing import Annotated, Final

from xep.binding import Name, Payload, TextChild

NAMESPACE: Final = "jabber:x:oob"
IQ: Final = "jabber:iq:oob"


class OutOfBand(Payload, frozen=True, kw_only=True):
    """A URL, and its description (XEP-0066 §3)."""

    xml = Name(NAMESPACE, "x")

    url: Annotated[str, TextChild()]
    desc: Annotated[str | None, TextChild()] = None


class Offer(Payload, frozen=True, kw_only=True):
    """The request to fetch a file from a URL (XEP-0066 §2)."""

    xml = Name(IQ, "query")

    url: Annotated[str | None, TextChild()] = None
    desc: Annotated[str | None, TextChild()] = None
