"""Streams for the tests, and what a parser makes of them in a form that can be compared.

Only the standard library, so that an interpreter without our environment can run it too.
"""

from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from msgspec.structs import replace

from xep.stream import ElementReceived, ParserFailed, StanzaSkipped, StreamLimits, StreamParser

HEADER = (
    b"<?xml version='1.0'?>"
    b"<stream:stream xmlns='jabber:component:accept'"
    b" xmlns:stream='http://etherx.jabber.org/streams' from='agent.example.org' id='3BF96D32'>"
)
CLOSE = b"</stream:stream>"
SMALL = StreamLimits(bytes=400, depth=6, elements=12)

EXECUTE = (
    b"<iq from='alice@example.org/desk' to='assistant@agent.example.org' type='set' id='q1'>"
    b"<execute xmlns='urn:fluux:agent:0#execute' skill='echo'>"
    b"<param name='text'>hello there</param></execute></iq>"
)
FORWARDED = (
    b"<message from='a@example.org' id='m1'><forwarded xmlns='urn:xmpp:forward:0'>"
    b"<message xmlns='jabber:client' id='m0'><body>inner</body></message></forwarded></message>"
)
QUIRKY = (
    b"<message id = 'm2' \n from=\"it's > that\" ><body>1 > 0 &amp; /> &#x2603; &#9731;</body>"
    b"<x:y xmlns:x='urn:x' x:a='\"' /><![CDATA[</message> <iq ]] ]>]]></message >"
)
UTF8 = "<presence id='p\u00e9'><status>\u2603 \U0001f600 \u65e5\u672c</status></presence>".encode()
STREAMERROR = (
    b"<stream:error><conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>"
)

VALID: dict[str, list[bytes]] = {
    "plain": [EXECUTE, EXECUTE, b"<iq type='result' id='r'/>", EXECUTE],
    "empty stanzas": [b"<presence/>", b"<presence id='/'/>", b"<iq/>", b"<message />"],
    "a stanza in a stanza": [FORWARDED, EXECUTE, FORWARDED],
    "quirky": [QUIRKY, EXECUTE, QUIRKY],
    "not ASCII": [UTF8, EXECUTE, UTF8],
    "handshake and error": [b"<handshake/>", EXECUTE, STREAMERROR],
    "unlike a stanza": [b"<iqs a='</>'/>".replace(b"</>", b"/>"), b"<i></i>", b"<iq\tid='1'></iq>"],
    "empty by the looks": [b"<presence id='/>'/>", b"<presence id='/>'></presence>", EXECUTE],
    "prefixed": [b"<c:iq xmlns:c='jabber:component:accept'><c:error/></c:iq>", EXECUTE],
    "inner iq": [b"<iq><iq></iq></iq>", b"<iq><x/><iq/></iq>", EXECUTE],
}
"""First-level elements by a word for what is special about them."""


def join(elements: Iterable[bytes], space: bytes = b"\n") -> bytes:
    """One stream, from the XML declaration to the closing tag."""
    return HEADER + space + b"".join(element + space for element in elements) + CLOSE


def tree(element: Element) -> object:
    """All there is about an element, comparable."""
    return (
        element.tag,
        dict(element.attrib),
        element.text,
        element.tail,
        [tree(child) for child in element],
    )


def plain(event: object) -> object:
    """An event, comparable."""
    if isinstance(event, ElementReceived):
        return ("element", tree(event.element), event.size)
    if isinstance(event, ParserFailed):
        return ("failed", event.error.condition)
    if isinstance(event, StanzaSkipped) and event.error is not None:
        return (replace(event, error=None), event.error.condition, event.error.text)
    return event


def parse(
    chunks: Iterable[bytes],
    limits: StreamLimits | None = None,
    namespaces: tuple[str, ...] = ("jabber:component:accept",),
) -> list[object]:
    """What a new parser reports of the chunks; it stops at a failure as a connection would."""
    parser = StreamParser(namespaces, limits)
    found: list[object] = []
    for chunk in chunks:
        events = parser.receive(chunk)
        found += map(plain, events)
        if events and isinstance(events[-1], ParserFailed):
            break
    return found


def bytewise(data: bytes) -> Iterator[bytes]:
    """One byte at a time."""
    return (data[i : i + 1] for i in range(len(data)))


def cut(data: bytes, size: int) -> Iterator[bytes]:
    """Chunks of one size."""
    return (data[i : i + size] for i in range(0, len(data), size))
