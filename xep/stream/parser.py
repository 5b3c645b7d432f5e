"""The stream parser: bytes in, events out.

The scanner (or, for plain stanzas, `framing`) finds where each first-level element ends and checks
the limits; only then does `tree` pass it to expat; `header` parses the stream header. This module
controls the order.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar
from xml.etree.ElementTree import Element

from xep.stream import careful
from xep.stream.errors import StreamError
from xep.stream.events import (
    ElementReceived,
    Limit,
    Other,
    ParserFailed,
    StanzaSkipped,
    StreamClosed,
)
from xep.stream.framing import frame
from xep.stream.header import canonical_header, check_declaration, decode_header
from xep.stream.scanner import Scanner, StreamLimits
from xep.stream.tree import Forest

_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_DECLARATION: Final = re.compile(rb"<\?xml[ \t\r\n]")
_LONGEST_DECLARATION: Final = 256
_WORTH_PARSING: Final = 4096
"""An incomplete element of at least this size is parsed in advance."""
_LESS: Final = ord("<")

E = TypeVar("E")


class ParserOf(Generic[E]):
    """One direction of one XMPP stream (RFC 6120 §4), whose complete elements are events E.

    Feed it with `receive`. However the input is divided into chunks, it reports the same events and
    stores at most about one stanza of the allowed size.
    """

    def __init__(
        self,
        received: Callable[[Element, int], E],
        content_namespaces: Iterable[str] = ("jabber:component:accept",),
        limits: StreamLimits | None = None,
    ) -> None:
        """Accept streams whose default namespace is one of `content_namespaces` (or none).

        `received` makes the event of a complete element and its size in bytes, as `ElementReceived`
        describes them. `limits` apply to each first-level element; the one in bytes applies to the
        stream header too, which cannot be skipped, so the stream fails. By default they are those
        of `StreamLimits`.
        """
        self._received = received
        self._content_namespaces = tuple(content_namespaces)
        self._limits = limits or StreamLimits()
        self._scanner = Scanner(self._limits)
        self.reset()

    def reset(self) -> None:
        """Expect a new stream header, as after STARTTLS or SASL (RFC 6120 §4.3.3).

        All input so far is discarded, including the bytes of an incomplete element: the peer had to
        wait for our answer before it sent more (RFC 6120 §5.4.3.3). To find out whether it did,
        check the events that `receive` reported after the element, and `pending`.
        """
        self._buffer = bytearray()
        self._forest: Forest | None = None
        self._error: StreamError | None = None
        self._at_start = True  # no byte yet, so an XML declaration may follow
        self._inside = False  # an element, or the stream header, has begun
        self._closed = False
        self._skipped: StanzaSkipped | None = None
        self._ahead = 0  # bytes of the buffer that were parsed; -1 to parse them at the end
        self._scanner.begin()

    @property
    def pending(self) -> int:
        """The stored bytes of an incomplete element or header."""
        return len(self._buffer)

    def receive(self, data: bytes) -> list[E | Other]:
        """Process the next bytes, in chunks of any size; return the completed events.

        White space between elements is a keepalive (RFC 6120 §4.6.1) and is ignored. One whole
        element that cannot be parsed gives `StanzaSkipped`. Input that is not a sequence of
        elements gives `ParserFailed` as the last event, after all elements that were complete
        before it. Raises `StreamError` only if the parser has reported `ParserFailed` already.
        """
        if self._error is not None:
            raise StreamError(self._error.condition, self._error.text)
        events: list[E | Other] = []
        try:
            self._read(data, events)
        except StreamError as error:
            self._error = error
            self._buffer = bytearray()
            self._skipped = None
            events.append(ParserFailed(error))
        return events

    def _read(self, data: bytes, events: list[E | Other]) -> None:
        pos = 0
        if self._at_start:
            data = self._read_declaration(data)
            if self._at_start:
                return
        fast = first = True
        odd = b"!" in data or b"?" in data
        length = len(data)
        while pos < length:
            if not self._inside:
                if fast and self._forest is not None and not self._closed:
                    start = pos
                    sizes, pos, fast = frame(data, start, self._limits, odd=odd, first=first)
                    first = False
                    if sizes:
                        elements = self._forest.feed(data[start:pos], sizes)
                        if elements is not None:
                            events += map(self._received, elements, sizes)
                        else:  # an element is invalid: parse them one by one
                            pos, fast = start, False
                    if pos == length:
                        return
                pos = self._skip_space(data, pos)
                if pos == length:
                    return
                self._begin()
            pos = self._read_element(data, pos, events)

    def _read_declaration(self, data: bytes) -> bytes:
        """Skip an XML declaration; return the bytes after it, or store them while undecided."""
        start = bytes(self._buffer) + data
        if not start:
            return b""
        if start[0] in (0x00, 0xFE, 0xFF) or start.startswith(b"<\x00"):
            raise StreamError("unsupported-encoding", "The only encoding of XMPP is UTF-8.")
        if b"<?xml ".startswith(start) or _DECLARATION.match(start):
            end = start.find(b"?>", 0, _LONGEST_DECLARATION)
            if end < 0:
                if len(start) > _LONGEST_DECLARATION:
                    raise StreamError("not-well-formed", "The XML declaration does not end.")
                self._buffer = bytearray(start)
                return b""
            check_declaration(start[: end + 2])
            start = start[end + 2 :]
        self._at_start = False
        self._buffer = bytearray()
        return start

    def _skip_space(self, data: bytes, pos: int) -> int:
        space = _SPACE.match(data, pos)
        pos = space.end() if space else pos
        if pos < len(data) and data[pos] != _LESS:
            if self._forest is None or self._closed:
                raise StreamError("not-well-formed", "There is text outside of the stream.")
            raise StreamError("bad-format", "There is text between stanzas.")
        return pos

    def _begin(self) -> None:
        if self._closed:
            raise StreamError("not-well-formed", "The stream was closed already.")
        self._inside = True
        self._skipped = None
        self._ahead = 0
        self._scanner.begin(root=self._forest is None)

    def _read_element(self, data: bytes, pos: int, events: list[E | Other]) -> int:
        """Continue with the element that has begun; return the index after the used bytes."""
        scanner = self._scanner
        # An exceeded byte limit is noticed at the exact position, whatever follows in the same
        # chunk.
        room = self._limits.bytes + 1 - scanner.size
        stop = min(len(data), pos + room) if room > 0 else len(data)
        end = scanner.scan(data, pos, stop)
        stop = stop if end < 0 else end
        if scanner.broken is not None:
            if scanner.size > self._limits.skipped:
                text = f"An element goes on after {self._limits.skipped} bytes."
                raise StreamError("policy-violation", text)
            if self._skipped is None:
                if self._ahead > 0 and self._forest is not None:
                    self._forest.forget()
                self._skipped = self._skip(data, pos)
                self._buffer = bytearray()
            if end >= 0:
                self._inside = False
                self._skipped.size = scanner.size
                events.append(self._skipped)
            return stop
        if end < 0:
            self._buffer += data[pos:stop]
            self._parse_ahead()
            return stop
        piece = data[pos:stop]
        if self._buffer:
            piece = bytes(self._buffer) + piece
            self._buffer = bytearray()
        self._inside = False
        if self._forest is None:
            self._open(piece, events)
        elif scanner.closes_stream:
            self._forest.feed_end(piece)
            self._close(events)
        else:
            try:
                event: E | Other = self._received(
                    self._forest.feed_one(piece, max(self._ahead, 0)), len(piece)
                )
            except StreamError as error:
                event = self._unparsable(self._forest, piece, error)
            events.append(event)
        return stop

    def _parse_ahead(self) -> None:
        """Parse the settled part of a large element, so that its last read does not take all the
        time.
        """
        ahead, settled = self._ahead, self._scanner.settled
        if self._forest is None or ahead < 0 or settled - ahead < _WORTH_PARSING:
            return
        part = bytes(self._buffer[ahead:settled])
        self._ahead = settled if self._forest.feed_ahead(part, first=not ahead) else -1

    def _open(self, header: bytes, events: list[E | Other]) -> None:
        if self._scanner.closes_stream:
            raise StreamError("not-well-formed", "An end tag stands before the stream header.")
        events.append(decode_header(header, self._content_namespaces))
        if self._scanner.is_empty_tag:
            self._close(events)
        else:
            canonical = canonical_header(header, self._content_namespaces)
            self._forest = Forest(canonical, self._content_namespaces)

    def _close(self, events: list[E | Other]) -> None:
        self._closed = True
        events.append(StreamClosed())

    def _skip(self, data: bytes, pos: int) -> StanzaSkipped:
        """Return the event of an element that has just exceeded a limit."""
        scanner = self._scanner
        limit = scanner.broken or "bytes"
        if self._forest is None:
            raise StreamError("policy-violation", f"The stream header breaks the limit of {limit}.")
        if scanner.closes_stream or scanner.in_end_tag_of_stream:
            raise StreamError("policy-violation", "The end tag of the stream is too long.")
        end = scanner.start_tag_end
        if not 0 < end <= self._limits.bytes:
            return StanzaSkipped(limit, 0, None, None, None, None, None)
        start = bytes(self._buffer[:end]) + data[pos : pos + max(0, end - len(self._buffer))]
        return _skipped(limit, 0, *self._forest.read_start_tag(start), None)

    def _unparsable(self, forest: Forest, piece: bytes, error: StreamError) -> StanzaSkipped:
        """Return the event of an element that cannot be parsed.

        Raises `StreamError` if parsers could disagree about where it ends: then the rest might be
        anything.
        """
        if not careful.is_one_element(piece):
            raise error
        start = piece[: self._scanner.start_tag_end]
        return _skipped(None, len(piece), *forest.read_start_tag(start), error)


def _skipped(
    limit: Limit | None,
    size: int,
    tag: str | None,
    attributes: Mapping[str, str],
    error: StreamError | None,
) -> StanzaSkipped:
    get = attributes.get
    return StanzaSkipped(limit, size, tag, get("type"), get("id"), get("from"), get("to"), error)


class StreamParser(ParserOf[ElementReceived]):
    """A parser whose complete elements are `ElementReceived`, as they are."""

    def __init__(
        self,
        content_namespaces: Iterable[str] = ("jabber:component:accept",),
        limits: StreamLimits | None = None,
    ) -> None:
        """As documented above."""
        super().__init__(ElementReceived, content_namespaces, limits)
