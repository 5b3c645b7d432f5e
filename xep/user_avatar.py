"""XEP-0084 User Avatar: an image, and its metadata, each at its own PubSub node."""

from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload, Text

DATA: Final = "urn:xmpp:avatar:data"
"""The namespace of the image, and its node."""
METADATA: Final = "urn:xmpp:avatar:metadata"
"""The namespace of the metadata, and their node."""


class AvatarData(Payload, frozen=True, kw_only=True):
    """A PNG image (XEP-0084 §4.1)."""

    xml = Name(DATA, "data")

    image: Annotated[bytes, Text()]


class AvatarInfo(Payload, frozen=True, kw_only=True):
    """The metadata of one format of the avatar (XEP-0084 §4.2.1).

    ``id`` is the SHA-1 of the image in hexadecimal, ``size`` its size in bytes; ``url`` is its
    address if it is not at the data node.
    """

    xml = Name(METADATA, "info")

    size: Annotated[int, Attr("bytes")]
    id: Annotated[str, Attr()]
    type: Annotated[str, Attr()]
    width: Annotated[int | None, Attr()] = None
    height: Annotated[int | None, Attr()] = None
    url: Annotated[str | None, Attr()] = None


class AvatarMetadata(Payload, frozen=True, kw_only=True):
    """The available formats of the avatar; empty if there is no avatar (XEP-0084 §4.2)."""

    xml = Name(METADATA, "metadata")

    infos: Annotated[tuple[AvatarInfo, ...], Child(malformed="drop")] = ()
