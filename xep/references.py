"""XEP-0372 References: parts of a text that stand for an address, such as the name of a person."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:reference:0"


class Reference(Payload, frozen=True, kw_only=True):
    """A reference to ``uri``; one of the type ``mention`` mentions a person (XEP-0372 §3.2).

    ``begin`` and ``end`` are the range of the body, as it is written: a range that cannot be read
    does not make the reference invalid.
    """

    xml = Name(NAMESPACE, "reference")

    type: Annotated[str | None, Attr()] = None
    uri: Annotated[str | None, Attr()] = None
    begin: Annotated[str | None, Attr()] = None
    end: Annotated[str | None, Attr()] = None
