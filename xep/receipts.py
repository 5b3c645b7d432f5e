"""XEP-0184 Message Delivery Receipts."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:receipts"


class ReceiptRequest(Payload, frozen=True, kw_only=True):
    """Asks for a receipt (XEP-0184 §5.1)."""

    xml = Name(NAMESPACE, "request")


class Received(Payload, frozen=True, kw_only=True):
    """Reports that the message with that id has arrived (XEP-0184 §5.2).

    Before version 1.1 it had no id: the stanza has the id of the message that has arrived.
    """

    xml = Name(NAMESPACE, "received")

    id: Annotated[str | None, Attr()] = None
