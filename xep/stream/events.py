"""The events of `StreamParser.receive`, in the order in which the peer sent the input."""

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from xep.stream.errors import StreamError

Limit = Literal["bytes", "depth", "elements"]
"""The limit of `xep.stream.scanner.StreamLimits` that a stanza exceeded first."""

StanzaKind = Literal["iq", "message", "presence"]
"""The three stanzas of RFC 6120 §8."""

STANZA_TAGS: dict[str, StanzaKind] = {
    "{jabber:client}iq": "iq",
    "{jabber:client}message": "message",
    "{jabber:client}presence": "presence",
}
"""The canonical tags of the stanzas, and their kinds."""


class StreamOpened(msgspec.Struct):
    """The stream header was read (RFC 6120 §4.7). An attribute that is absent is None."""

    from_: str | None
    to: str | None
    id: str | None
    version: str | None
    lang: str | None
    namespace: str
    """The content namespace declared as the default one, or "" if each stanza declares its own
    (RFC 6120 §4.8.2)."""


class ElementReceived(msgspec.Struct):
    """A first-level element is complete: a stanza, `<stream:error/>`, `<handshake/>` …

    Names in a content namespace are canonical: `jabber:component:accept` and `jabber:server` become
    `jabber:client`, if it is that of the stream header, and in the element and its direct children
    also if they declare it themselves.
    """

    element: "Element"
    size: int
    """Bytes as received, from the first `<` to the last `>`."""


class StanzaSkipped(msgspec.Struct):
    """A first-level element was skipped, and the stream continues: it exceeded a limit, or it is
    one whole element that cannot be parsed.

    The attributes are known if the start tag was complete within the byte limit and can be parsed;
    `tag` is None if not. A missing attribute is None.
    """

    limit: Limit | None
    """The limit that was exceeded first; None if none was."""
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
    def kind(self) -> StanzaKind | None:
        """The kind of stanza, or None if that is unknown or it was not a stanza."""
        return STANZA_TAGS.get(self.tag or "")


class StreamClosed(msgspec.Struct):
    """The peer closed its stream with `</stream:stream>` (RFC 6120 §4.4)."""


class ParserFailed(msgspec.Struct):
    """The input is no longer a stream: always the last event. The parser refuses more input."""

    error: "StreamError"


Other = StreamOpened | StanzaSkipped | StreamClosed | ParserFailed
"""The events besides complete elements."""

ParserEvent = ElementReceived | Other
