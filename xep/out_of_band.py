"""XEP-0066 Out of Band Data: a URL in a message."""

from typing import Annotated, Final

from xep.binding import Name, Payload, TextChild

NAMESPACE: Final = "jabber:x:oob"


class OutOfBand(Payload, frozen=True, kw_only=True):
    """A URL, and its description (XEP-0066 §3)."""

    xml = Name(NAMESPACE, "x")

    url: Annotated[str, TextChild()]
    desc: Annotated[str | None, TextChild()] = None
