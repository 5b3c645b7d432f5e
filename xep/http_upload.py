"""XEP-0363 HTTP File Upload: a place for a file, and where others get it."""

from datetime import datetime
from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload, Text, TextChild

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
    """A header of the request that uploads the file. The client sends only those of §5:
    Authorization, Cookie and Expires.
    """

    xml = Name(NAMESPACE, "header")

    name: Annotated[str, Attr()]
    value: Annotated[str, Text()] = ""


class Put(Payload, frozen=True, kw_only=True):
    """The URL to which the file is uploaded."""

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


class FileTooLarge(Payload, frozen=True, kw_only=True):
    """The condition of the error for a file that is too large; the maximum is in bytes (§6)."""

    xml = Name(NAMESPACE, "file-too-large")

    max_file_size: Annotated[int | None, TextChild("max-file-size")] = None


class Retry(Payload, frozen=True, kw_only=True):
    """The condition of an error that is over at a time, such as a quota (§6)."""

    xml = Name(NAMESPACE, "retry")

    stamp: Annotated[datetime | None, Attr()] = None
