"""XEP-0333 Displayed Markers."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:chat-markers:0"


class Markable(Payload, frozen=True, kw_only=True):
    """Requests a displayed marker (XEP-0333 §4.1)."""

    xml = Name(NAMESPACE, "markable")


class Received(Payload, frozen=True, kw_only=True):
    """Reports that the message with that id has arrived. XEP-0333 no longer has this element, but
    clients without XEP-0184 still send it.
    """

    xml = Name(NAMESPACE, "received")

    id: Annotated[str, Attr()]


class Acknowledged(Payload, frozen=True, kw_only=True):
    """Reports that somebody has acted on the message with that id. XEP-0333 no longer has this
    element.
    """

    xml = Name(NAMESPACE, "acknowledged")

    id: Annotated[str, Attr()]


class Displayed(Payload, frozen=True, kw_only=True):
    """Reports that the message with that id, and all before it, have been displayed (XEP-0333
    §4.1).
    """

    xml = Name(NAMESPACE, "displayed")

    id: Annotated[str, Attr()]
