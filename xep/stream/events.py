"""What `StreamParser.receive` reports, in the order in which the peer sent it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from xep.stream.errors import StreamError

Limit = Literal["bytes", "depth", "elements"]
"""Which bound of `xep.stream.scanner.Limits` a stanza broke first."""

Kind = Literal["iq", "message", "presence"]
"""The three stanzas of RFC 6120 §8."""

STANZA_TAGS: dict[str, Kind] = {
    "{jabber:client}iq": "iq",
    "{jabber:client}message": "message",
    "{jabber:client}presence": "presence",
}
"""The canonical tags of the stanzas, and their kinds."""


@dataclass(slots=True)
class StreamOpened:
    """The stream header was read (RFC 6120 §4.7). An attribute that is absent is None."""

    from_: str | None
    to: str | None
    id: str | None
    version: str | None
    lang: str | None
    namespace: str
    """The content namespace declared as the default one, or "" if each stanza declares its own
    (RFC 6120 §4.8.2)."""


@dataclass(slots=True)
class ElementReceived:
    """A first-level element is complete: a stanza, `<stream:error/>`, `<handshake/>` …

    Names in a content namespace are canonical: `jabber:component:accept` and `jabber:server`
    read `jabber:client`, wherever it is that of the stream header, and in the element and its
    direct children also if they declare it themselves.
    """

    element: "Element"
    size: int
    """Bytes as received, from the first `<` to the last `>`."""


@dataclass(slots=True)
class StanzaSkipped:
    """A first-level element was passed over, and the stream goes on: it broke a limit, or it is one
    whole element that cannot be parsed.

    What follows is known as far as the start tag was complete within the byte limit and can be
    read; `tag` is None if not. An attribute that is absent is None.
    """

    limit: Limit | None
    """The limit that was broken first; None if none was."""
    size: int
    """Bytes as received, all of the element."""
    tag: str | None
    """The canonical tag, such as `{jabber:client}iq`."""
    type: str | None
    id: str | None
    from_: str | None
    to: str | None
    error: "StreamError | None" = None
    """Why it cannot be parsed; None if it was skipped because of a limit. For a stream that carries
    one sender's stanzas only, this is the error to end it with (RFC 6120 §11.3)."""

    @property
    def kind(self) -> Kind | None:
        """Which stanza it was, or None if that is unknown or it was no stanza."""
        return STANZA_TAGS.get(self.tag or "")


@dataclass(slots=True)
class StreamClosed:
    """The peer closed its stream with `</stream:stream>` (RFC 6120 §4.4)."""


@dataclass(slots=True)
class ParserFailed:
    """What followed was no stream any more: always the last event. The parser refuses more."""

    error: "StreamError"


Other = StreamOpened | StanzaSkipped | StreamClosed | ParserFailed
"""What there is beside complete elements."""

Event = ElementReceived | Other
