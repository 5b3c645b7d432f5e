"""XEP-0385 Stateless Inline Media Sharing: a file by reference, in a reference (XEP-0372)."""

from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload, TextChild
from xep.hashes import Hash

NAMESPACE: Final = "urn:xmpp:sims:1"
REFERENCES: Final = "urn:xmpp:reference:0"


class File(Payload, frozen=True, kw_only=True):
    """The metadata of a file: media type, name, size in bytes, digests (XEP-0234 §5)."""

    xml = Name("urn:xmpp:jingle:apps:file-transfer:5", "file")

    media_type: Annotated[str | None, TextChild()] = None
    name: Annotated[str | None, TextChild()] = None
    size: Annotated[int | None, TextChild()] = None
    hashes: Annotated[tuple[Hash, ...], Child(malformed="drop")] = ()


class FileOfVersion4(File, frozen=True, kw_only=True):
    """The same in the previous version, which some clients still send."""

    xml = Name("urn:xmpp:jingle:apps:file-transfer:4", "file")


class Source(Payload, frozen=True, kw_only=True):
    """A URI of the file (XEP-0385 §3.1)."""

    xml = Name(REFERENCES, "reference")

    uri: Annotated[str, Attr()]


class Sources(Payload, frozen=True, kw_only=True):
    """The sources of the file."""

    xml = Name(NAMESPACE, "sources")

    references: Annotated[tuple[Source, ...], Child(malformed="drop")] = ()


class MediaSharing(Payload, frozen=True, kw_only=True):
    """One file and its sources (XEP-0385 §3.1)."""

    xml = Name(NAMESPACE, "media-sharing")

    file: Annotated[File | None, Child()] = None
    file_of_version_4: Annotated[FileOfVersion4 | None, Child()] = None
    sources: Annotated[Sources, Child()]


class Reference(Payload, frozen=True, kw_only=True):
    """A reference; for a reference to data, the file that it shares."""

    xml = Name(REFERENCES, "reference")

    media: Annotated[MediaSharing | None, Child()] = None
