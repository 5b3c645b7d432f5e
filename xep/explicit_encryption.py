"""XEP-0380 Explicit Message Encryption: names the encryption for clients that cannot decrypt it."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:eme:0"


class Encryption(Payload, frozen=True, kw_only=True):
    """The namespace of the encryption, and its name for one that is not registered."""

    xml = Name(NAMESPACE, "encryption")

    namespace: Annotated[str, Attr()]
    name: Annotated[str | None, Attr()] = None
