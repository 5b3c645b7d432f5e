"""XEP-0308 Last Message Correction."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:message-correct:0"


class Replace(Payload, frozen=True, kw_only=True):
    """Says that this message replaces the one with that id (XEP-0308 §3)."""

    xml = Name(NAMESPACE, "replace")

    id: Annotated[str, Attr()]
