"""XEP-0447 Stateless File Sharing, with the metadata of XEP-0446: a file by reference."""

from typing import Annotated, Final, Literal

from xep.binding import Attr, Child, Name, Payload, TextChild
from xep.hashes import Hash

NAMESPACE: Final = "urn:xmpp:sfs:0"
METADATA: Final = "urn:xmpp:file:metadata:0"
URL_DATA: Final = "http://jabber.org/protocol/url-data"


class File(Payload, frozen=True, kw_only=True):
    """The metadata of a file: media type, name, size in bytes, digests, and for images their width
    and height in pixels (XEP-0446 §3).
    """

    xml = Name(METADATA, "file")

    media_type: Annotated[str | None, TextChild()] = None
    name: Annotated[str | None, TextChild()] = None
    size: Annotated[int | None, TextChild()] = None
    width: Annotated[int | None, TextChild()] = None
    height: Annotated[int | None, TextChild()] = None
    hashes: Annotated[tuple[Hash, ...], Child(malformed="drop")] = ()


class UrlData(Payload, frozen=True, kw_only=True):
    """A URL of the file (XEP-0103)."""

    xml = Name(URL_DATA, "url-data")

    target: Annotated[str, Attr()]


class Sources(Payload, frozen=True, kw_only=True):
    """The sources of the file (XEP-0447 §3.1); sources other than URLs are left out."""

    xml = Name(NAMESPACE, "sources")

    urls: Annotated[tuple[UrlData, ...], Child(malformed="drop")] = ()


class FileSharing(Payload, frozen=True, kw_only=True):
    """One file and its sources (XEP-0447 §3.1)."""

    xml = Name(NAMESPACE, "file-sharing")

    disposition: Annotated[Literal["inline", "attachment"] | None, Attr()] = None
    id: Annotated[str | None, Attr()] = None
    file: Annotated[File, Child()]
    sources: Annotated[Sources, Child()]
