"""Compares the stream parser with one in which expat finds the ends of stanzas, and Python only
counts.

`python -m benchmarks.stream_expat` prints stanzas per second of CPU time. `pytest -p
benchmarks.stream_expat tests/xep/stream` runs the tests of the stream parser with the peer in its
place: failures show what the peer cannot do. docs/explanation/stream-parser.md has the conclusion.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from xml.etree.ElementTree import TreeBuilder, XMLPullParser
from xml.parsers import expat

from benchmarks.report import Line, cells, table
from benchmarks.wire import HEADER, PER_CHUNK, Receive, _cut, execute
from xep.stream import (
    ElementReceived,
    Limit,
    ParserEvent,
    ParserFailed,
    StanzaSkipped,
    StreamClosed,
    StreamError,
    StreamLimits,
    StreamParser,
)
from xep.stream.careful import refusal
from xep.stream.header import canonical_header, check_declaration, decode_header

_SEPARATOR: Final = "\f"
_RENEW_AFTER: Final = 128 * 1024
_UNDEFINED_ENTITY: Final = 11
_TAG: Final = re.compile(rb"<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>")
_HEADER: Final = re.compile(rb"[ \t\r\n]*(<\?xml.*?\?>)?[ \t\r\n]*", re.DOTALL)


class ExpatParser:
    """The equivalent of `StreamParser`, as far as expat alone allows it."""

    def __init__(
        self,
        content_namespaces: Iterable[str] = ("jabber:component:accept",),
        limits: StreamLimits | None = None,
    ) -> None:
        self._names = tuple(content_namespaces)
        self._limits = limits or StreamLimits()
        self.reset()

    def reset(self) -> None:
        """Expect a new stream header."""
        self._error: StreamError | None = None
        self._content: _Content | None = None
        self._head = b""

    @property
    def pending(self) -> int:
        """Bytes of an incomplete element or header that are kept."""
        return len(self._head) if self._content is None else self._content.pending

    def receive(self, data: bytes) -> list[ParserEvent]:
        """Process the next bytes; return the completed events."""
        if self._error is not None:
            raise StreamError(self._error.condition, self._error.text)
        events: list[ParserEvent] = []
        try:
            if self._content is None:
                data = self._read_head(data, events)
            if self._content is not None and data:
                self._content.feed(data, events)
        except StreamError as error:
            self._error = error
            self._head = b""
            events.append(ParserFailed(error))
        return events

    def _read_head(self, data: bytes, events: list[ParserEvent]) -> bytes:
        """Parse the header with the current code, which both need."""
        self._head += data
        if self._head[:1] in (b"\0", b"\xfe", b"\xff") or self._head.startswith(b"<\0"):
            raise StreamError("unsupported-encoding", "The only encoding of XMPP is UTF-8.")
        before = _HEADER.match(self._head)
        assert before is not None
        if before[1]:
            check_declaration(before[1])
        start = self._head[before.end() :]
        if start[:1] not in (b"", b"<"):
            raise StreamError("not-well-formed", "There is text outside of the stream.")
        if start.startswith((b"<!", b"<?")) and not b"<?xml ".startswith(start[:6]):
            raise StreamError("restricted-xml", "Comments and DTDs are not allowed.")
        tag = _TAG.match(start)
        if tag is None:
            if len(self._head) > self._limits.bytes:
                raise StreamError("policy-violation", "The stream header is too long.")
            return b""
        if tag[0].startswith(b"</"):
            raise StreamError("not-well-formed", "An end tag stands before the stream header.")
        events.append(decode_header(tag[0], self._names))
        canonical = canonical_header(tag[0], self._names)
        self._content = _Content(canonical, self._names, self._limits)
        self._head = b""
        return start[tag.end() :]


class _Content:
    """The content between the header and the end of the stream."""

    def __init__(self, header: bytes, names: tuple[str, ...], limits: StreamLimits) -> None:
        self._header = header
        self._foreign = tuple("{" + name + "}" for name in names if name != "jabber:client")
        self._limits = limits
        self._closed = False
        self._depth = 0
        self._renew()

    @property
    def pending(self) -> int:
        """Bytes since the beginning of an element."""
        return len(self._window)

    def _renew(self) -> None:
        """Start another parser below the same header: expat stores names as long as it lives."""
        parser = expat.ParserCreate("utf-8", _SEPARATOR)
        parser.buffer_text = True
        self._events: list[ParserEvent] = []
        self._window = b""
        self._fed = self._start = self._ended = 0
        self._set_handlers(parser)
        parser.Parse(self._header, False)
        self._parser = parser
        self._base = len(self._header)  # expat's index of the beginning of the window
        self._fed = self._base

    def _set_handlers(self, parser: Any) -> None:  # noqa: C901 - closures are the fastest handlers
        limits, foreign = self._limits, self._foreign
        known: dict[str, str] = {}
        depth = elements = 0
        builder = TreeBuilder()
        broken: Limit | None = None
        head: tuple[str, dict[str, str]] = "", {}
        push, pop = builder.start, builder.end

        def clark(name: str) -> str:
            known[name] = full = "{" + name.replace(_SEPARATOR, "}") if _SEPARATOR in name else name
            return full

        def start(name: str, attributes: dict[str, str]) -> None:
            nonlocal depth, elements, head, builder, push, pop
            tag = known.get(name) or clark(name)
            depth += 1
            self._depth = depth
            if depth <= 3 and tag.startswith(foreign):
                tag = "{jabber:client}" + tag.rpartition("}")[2]
            if attributes and _SEPARATOR in "".join(attributes):
                attributes = {known.get(k) or clark(k): v for k, v in attributes.items()}
            if depth == 2:
                self._start = parser.CurrentByteIndex
                elements, head = 1, (tag, attributes)
                builder = TreeBuilder()
                push, pop = builder.start, builder.end
                parser.CharacterDataHandler = builder.data
                push(tag, attributes)
                return
            elements += 1
            if depth == 1 or (elements <= limits.elements and depth - 1 <= limits.depth):
                push(tag, attributes)
            else:
                limit: Limit = "depth" if depth - 1 > limits.depth else "elements"
                skip("bytes" if parser.CurrentByteIndex - self._start > limits.bytes else limit)

        def end(name: str) -> None:
            nonlocal depth
            depth -= 1
            self._depth = depth
            if depth > 1:
                pop(known[name])
            elif depth == 0:
                self._closed = True
                self._events.append(StreamClosed())
            else:
                size = stanza_size()
                if size > limits.bytes:
                    skip("bytes")
                    skipped(size)
                    return
                parser.CharacterDataHandler = between
                pop("")
                self._events.append(ElementReceived(builder.close(), size))

        def stanza_size() -> int:
            # expat is behind an empty element, but before an end tag: search for its end again.
            at = parser.CurrentByteIndex - self._base
            empty = elements == 1 and _TAG.match(self._window, max(0, self._start - self._base))
            if empty and empty.end() == at:
                self._ended = self._base + at
            else:
                self._ended = self._base + self._window.index(b">", at) + 1
            return self._ended - self._start

        def skip(limit: Limit) -> None:
            nonlocal broken, builder, push, pop
            broken = limit
            builder = TreeBuilder()
            push, pop = builder.start, builder.end
            parser.StartElementHandler = deeper
            parser.EndElementHandler = higher
            parser.CharacterDataHandler = None

        def deeper(_: str, __: object) -> None:
            nonlocal depth
            depth += 1
            self._depth = depth

        def higher(_: str) -> None:
            nonlocal depth
            depth -= 1
            self._depth = depth
            if depth == 1:
                skipped(stanza_size())

        def skipped(size: int) -> None:
            get = head[1].get
            told = get("type"), get("id"), get("from"), get("to")
            self._events.append(StanzaSkipped(broken, size, head[0], *told))
            parser.StartElementHandler = start
            parser.EndElementHandler = end
            parser.CharacterDataHandler = between

        def between(text: str) -> None:
            if text.strip(" \t\r\n"):
                raise StreamError("bad-format", "There is text between stanzas.")

        def cdata() -> None:
            if depth == 1:
                raise StreamError("bad-format", "There is CDATA in place of an element.")

        def forbidden(*_: object) -> None:
            raise StreamError("restricted-xml", "It is not allowed here.")

        self._skip = skip
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = between
        parser.StartCdataSectionHandler = cdata
        parser.CommentHandler = forbidden
        parser.ProcessingInstructionHandler = forbidden
        parser.StartDoctypeDeclHandler = forbidden
        if hasattr(parser, "SetReparseDeferralEnabled"):  # expat 2.6
            parser.SetReparseDeferralEnabled(False)

    def feed(self, data: bytes, events: list[ParserEvent]) -> None:
        """Parse the next bytes. Raises StreamError for everything that expat refuses."""
        self._events = events
        self._window += data
        self._fed += len(data)
        try:
            self._parser.Parse(data, False)
        except expat.ExpatError as error:
            if error.code == _UNDEFINED_ENTITY:
                text = "Only the five predefined entities of XML are allowed."
                raise StreamError("restricted-xml", text) from None
            raise refusal(error.code, self._window) from None
        at = max(self._parser.CurrentByteIndex, self._ended)
        if at > self._base:
            self._window = self._window[at - self._base :]
            self._base = at
        size = self._fed - self._start
        if self._depth > 1 and size > self._limits.bytes:
            self._skip("bytes")
            if size > self._limits.skipped:
                raise StreamError("policy-violation", "An element does not end.")
        elif self._depth == 1 and self._fed > _RENEW_AFTER and not self._window.strip():
            self._renew()


def _counting_pull() -> Receive:
    """Return the fastest way to count: over the events of a parser in C, after a chunk was parsed.

    It does not know the sizes of stanzas, and checks limits only after the tree was built.
    """
    parser: Any = XMLPullParser(("start", "end", "comment", "pi"))
    parser.feed(HEADER)
    next(parser.read_events())
    limits = StreamLimits()
    depth = elements = 0
    root: Any = None

    def receive(data: bytes) -> list[object]:
        nonlocal depth, elements, root
        found: list[object] = []
        parser.feed(data)
        for kind, element in parser.read_events():
            if kind == "start":
                depth += 1
                elements += 1
                if depth > limits.depth or elements > limits.elements:
                    raise StreamError("policy-violation")
            elif kind == "end":
                depth -= 1
                if not depth:
                    elements = 0
                    found.append(ElementReceived(element, 0))
            else:
                raise StreamError("restricted-xml")
        return found

    return receive


def _ours() -> Receive:
    parser = StreamParser()
    parser.receive(HEADER)
    return parser.receive


def _peer() -> Receive:
    parser = ExpatParser()
    parser.receive(HEADER)
    return parser.receive


_LARGE: Final = (
    b"<iq from='alice@example.org/desk' id='1'><x xmlns='urn:x'>"
    + b"<value a='1'>some text</value>" * 2000
    + b"</x></iq>"
)


def _cases() -> dict[str, tuple[list[bytes], int]]:
    """Return chunks, and the number of stanzas in them."""
    count = 10_000
    small = [
        b"".join(execute(at + i) for i in range(PER_CHUNK)) for at in range(0, count, PER_CHUNK)
    ]
    text = _LARGE.replace(b"<value a='1'>some text</value>" * 2000, b"a line of text\n" * 4000)
    return {
        f"small IQs, {PER_CHUNK} in each chunk": (small, count),
        "small IQs, each chunk cuts one": (_cut(small), count),
        "one small IQ in each chunk": ([execute(i) for i in range(count)], count),
        "stanzas of 60 KB, 2,002 elements": ([_LARGE] * 100, 100),
        "stanzas of 60 KB text": ([text] * 100, 100),
        "stanzas of 60 KB, 2,002 elements, in chunks of 4 KB": (
            [_LARGE[at : at + 4096] for at in range(0, len(_LARGE), 4096)] * 100,
            100,
        ),
    }


def _rate(receive: Callable[[bytes], Any], chunks: list[bytes], count: int) -> float:
    start = time.process_time()
    found = sum(len(receive(chunk)) for chunk in chunks)
    taken = time.process_time() - start
    assert found == count, f"{found} events of {count}"
    return count / taken


def measure(runs: int) -> Iterator[Line]:
    """Measure each case `runs` times, the parsers in turn."""
    for name, (chunks, count) in _cases().items():
        for way, make in (
            ("expat and counters", _peer),
            ("events of XMLPullParser", _counting_pull),
        ):
            ours, peer = [], []
            for _ in range(runs):
                peer.append(_rate(make(), chunks, count))
                ours.append(_rate(_ours(), chunks, count))
            # The peer is the candidate: its rate over that of today.
            yield Line(f"{way} / StreamParser: {name}", "stanzas/s", peer, ours)


def pytest_configure() -> None:
    """Let the tests of the stream parser use the other one."""
    import xep.stream

    xep.stream.StreamParser = ExpatParser  # type: ignore[misc, assignment]


if __name__ == "__main__":
    print(table(map(cells, measure(5))))
