"""XEP-0300 Use of Cryptographic Hash Functions in XMPP."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload, Text

NAMESPACE: Final = "urn:xmpp:hashes:2"


class Hash(Payload, frozen=True, kw_only=True):
    """A digest and the function it was made with, such as ``sha-256`` (XEP-0300 §3)."""

    xml = Name(NAMESPACE, "hash")

    algo: Annotated[str, Attr()]
    digest: Annotated[bytes, Text()]
