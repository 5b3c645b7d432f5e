"""XEP-0333 Displayed Markers."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:chat-markers:0"


class Markable(Payload, frozen=True, kw_only=True):
    """Requests a displayed marker (XEP-0333 §4.1)."""

    xml = Name(NAMESPACE, "markable")


class Displayed(Payload, frozen=True, kw_only=True):
    """Reports that the message with that id, and all before it, have been displayed (XEP-0333
    §4.1).
    """

    xml = Name(NAMESPACE, "displayed")

    id: Annotated[str, Attr()]
