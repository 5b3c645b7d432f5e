"""XEP-0421 Occupant Identifiers for Semi-Anonymous Rooms."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:occupant-id:0"


class OccupantId(Payload, frozen=True, kw_only=True):
    """The id that a room gives an occupant, the same under every nickname (XEP-0421 §3)."""

    xml = Name(NAMESPACE, "occupant-id")

    id: Annotated[str, Attr()]
