"""XEP-0221 Data Forms Media Element: an image or a sound in a field of a form."""

from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload, Text

NAMESPACE: Final = "urn:xmpp:media-element"


class MediaUri(Payload, frozen=True, kw_only=True):
    """Where the medium is, and its media type."""

    xml = Name(NAMESPACE, "uri")

    type: Annotated[str, Attr()]
    target: Annotated[str, Text()] = ""


class Media(Payload, frozen=True, kw_only=True):
    """A medium, and for images its size in pixels (XEP-0221 §3)."""

    xml = Name(NAMESPACE, "media")

    width: Annotated[int | None, Attr()] = None
    height: Annotated[int | None, Attr()] = None
    uris: Annotated[tuple[MediaUri, ...], Child(malformed="drop")] = ()
