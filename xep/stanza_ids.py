"""XEP-0359 Unique and Stable Stanza IDs."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:sid:0"


class OriginId(Payload, frozen=True, kw_only=True):
    """The id that the author's client gave to a message (XEP-0359 §3)."""

    xml = Name(NAMESPACE, "origin-id")

    id: Annotated[str, Attr()]


class StanzaId(Payload, frozen=True, kw_only=True):
    """The id that the entity ``by``, an archive or a room, gave to a message (XEP-0359 §3).

    Anybody can write one: it is reliable only if ``by`` is known to remove forged ones. ``by`` is
    kept unchanged.
    """

    xml = Name(NAMESPACE, "stanza-id")

    id: Annotated[str, Attr()]
    by: Annotated[str, Attr()]
