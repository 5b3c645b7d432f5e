"""XEP-0297 Stanza Forwarding, for IQs: what XEP-0356 wraps the answers to privileged IQs in."""

from typing import Annotated, Final, Literal
from xml.etree.ElementTree import fromstring

from xep.binding import AnyChild, Attr, Child, Name, Payload, RawXML, encode
from xep.stanza import NAMESPACE as STANZAS
from xep.stanza import Incoming

NAMESPACE: Final = "urn:xmpp:forward:0"


class ForwardedIQ(Payload, frozen=True, kw_only=True):
    """An IQ inside another stanza. Its addresses stay as they were received."""

    xml = Name(STANZAS, "iq")

    type: Annotated[Literal["get", "set", "result", "error"], Attr()]
    id: Annotated[str, Attr()]
    to: Annotated[str | None, Attr()] = None
    from_: Annotated[str | None, Attr("from")] = None
    payloads: Annotated[tuple[RawXML, ...], AnyChild()] = ()


class Forwarded(Payload, frozen=True, kw_only=True):
    """A stanza that is passed on (XEP-0297 §3)."""

    xml = Name(NAMESPACE, "forwarded")

    iq: Annotated[ForwardedIQ | None, Child()] = None


def as_received(iq: ForwardedIQ) -> Incoming:
    """The IQ as the struct of those that are received directly, to read its payload or error."""
    text = encode(iq)
    # It was parsed by the stream before, and written again by `encode`.
    return Incoming.of(fromstring(text), len(text.encode()))  # noqa: S314
