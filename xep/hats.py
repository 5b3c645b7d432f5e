"""XEP-0317 Hats: the titles that a room gives its occupants."""

from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload

NAMESPACE: Final = "urn:xmpp:hats:0"


class Hat(Payload, frozen=True, kw_only=True):
    """A title, identified by a URI (XEP-0317 §3). ``title`` is for people."""

    xml = Name(NAMESPACE, "hat")

    uri: Annotated[str, Attr()]
    title: Annotated[str | None, Attr()] = None


class Hats(Payload, frozen=True, kw_only=True):
    """The hats of an occupant, in its presence (XEP-0317 §3)."""

    xml = Name(NAMESPACE, "hats")

    hats: Annotated[tuple[Hat, ...], Child(malformed="drop")] = ()
