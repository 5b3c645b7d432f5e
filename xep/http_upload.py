"""XEP-0363 HTTP File Upload: a place for a file, and where others get it."""

from typing import Annotated, Final, Literal

from xep.binding import Attr, Child, Name, Payload, Text

NAMESPACE: Final = "urn:xmpp:http:upload:0"
MAX_FILE_SIZE: Final = "max-file-size"
"""The field of the form in the service's disco#info: the maximum size in bytes (§4)."""


class SlotRequest(Payload, frozen=True, kw_only=True):
    """A request for a slot (§5): name, size in bytes and media type of the file."""

    xml = Name(NAMESPACE, "request")

    filename: Annotated[str, Attr()]
    size: Annotated[int, Attr()]
    content_type: Annotated[str | None, Attr()] = None


class Header(Payload, frozen=True, kw_only=True):
    """A header of the request that uploads the file."""

    xml = Name(NAMESPACE, "header")

    name: Annotated[Literal["Authorization", "Cookie", "Expires"], Attr()]
    value: Annotated[str, Text()] = ""


class Put(Payload, frozen=True, kw_only=True):
    """The URL to which the file is uploaded. Other headers than those of §5 are left out."""

    xml = Name(NAMESPACE, "put")

    url: Annotated[str, Attr()]
    headers: Annotated[tuple[Header, ...], Child(malformed="drop")] = ()


class Get(Payload, frozen=True, kw_only=True):
    """The URL from which others get the file."""

    xml = Name(NAMESPACE, "get")

    url: Annotated[str, Attr()]


class Slot(Payload, frozen=True, kw_only=True):
    """A place for one file (§5)."""

    xml = Name(NAMESPACE, "slot")

    put: Annotated[Put, Child()]
    get: Annotated[Get, Child()]
