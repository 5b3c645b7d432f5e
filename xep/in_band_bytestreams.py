"""XEP-0047 In-Band Bytestreams: data in stanzas."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "http://jabber.org/protocol/ibb"


class Open(Payload, frozen=True, kw_only=True):
    """The request to open a bytestream (XEP-0047 §2.1)."""

    xml = Name(NAMESPACE, "open")

    sid: Annotated[str | None, Attr()] = None
