"""XEP-0424 Message Retraction, and the form of it that clients sent before version 0.4."""

from typing import Annotated, Final

from xep.binding import Attr, Flag, Name, Payload

NAMESPACE: Final = "urn:xmpp:message-retract:1"
LEGACY: Final = "urn:xmpp:message-retract:0"
FASTENING: Final = "urn:xmpp:fasten:0"


class Retract(Payload, frozen=True, kw_only=True):
    """Retracts the message with that id (XEP-0424 §4)."""

    xml = Name(NAMESPACE, "retract")

    id: Annotated[str, Attr()]


class ApplyTo(Payload, frozen=True, kw_only=True):
    """Applies something to the message with that id (XEP-0422); ``retract`` retracts it."""

    xml = Name(FASTENING, "apply-to")

    id: Annotated[str, Attr()]
    retract: Annotated[bool, Flag(namespace=LEGACY)] = False
