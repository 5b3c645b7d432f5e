"""XEP-0198 Stream Management: counts the stanzas that each side has received, also across a
resumption.

`StreamManagement` outlives the streams of a session: it stores unacknowledged stanzas, so that the
next stream can send them again. It reads no clock and does no I/O.
"""

from collections import deque
from typing import Final
from xml.etree.ElementTree import Element

from xep.stream import StreamError
from xep.stream.escape import escape
from xep.stream.scanner import Scanner, StreamLimits

NAMESPACE: Final = "urn:xmpp:sm:3"

REQUEST: Final = f"<r xmlns='{NAMESPACE}'/>".encode()
"""Requests the number of stanzas that the peer has received (XEP-0198 §4)."""
ENABLE: Final = f"<enable xmlns='{NAMESPACE}' resume='true'/>".encode()
"""Requests acknowledgements and resumption (§3)."""

_COUNT: Final = 1 << 32
_SPACE: Final = b" \t\r\n"
_UNBOUNDED: Final = StreamLimits(bytes=1 << 62, depth=1 << 62, elements=1 << 62, skipped=1 << 62)


class StreamManagement:
    """The counters of one session, and the unacknowledged stanzas.

    Attributes:
        id: identifies the session for resumption; None if it cannot be resumed.
        max_s: seconds for which the server keeps the session after its stream broke; None if it
            does not say.
        received: stanzas received from the server, modulo 2^32.
        asked: a request for an acknowledgement is outstanding.
        sent_in_all: stanzas that were sent in this session.
    """

    def __init__(self) -> None:
        self.id: str | None = None
        self.max_s: int | None = None
        self.received = 0
        self.asked = False
        self.sent_in_all = 0
        self._acknowledged = 0
        self._unacknowledged: deque[bytes] = deque()
        self._bytes = 0

    @property
    def unacknowledged(self) -> tuple[bytes, ...]:
        """Stanzas that were sent and not acknowledged, oldest first."""
        return tuple(self._unacknowledged)

    @property
    def waiting_bytes(self) -> int:
        """The size of these in bytes."""
        return self._bytes

    @property
    def acknowledged_in_all(self) -> int:
        """The number of acknowledged stanzas of this session."""
        return self.sent_in_all - len(self._unacknowledged)

    def enabled(self, element: Element) -> None:
        """Process the server's ``<enabled/>`` (§3)."""
        resume = element.get("resume") in ("true", "1")
        self.id = (element.get("id") or None) if resume else None
        self.max_s = _number(element.get("max"))

    def sent(self, stanza: bytes) -> None:
        """Store a stanza until it is acknowledged."""
        self.sent_in_all += 1
        self._unacknowledged.append(stanza)
        self._bytes += len(stanza)

    def count_received(self) -> None:
        """Count a stanza from the server."""
        self.received = (self.received + 1) % _COUNT

    def acknowledge(self, element: Element) -> int:
        """Process the count ``h`` of an element; return how many stanzas it acknowledges.

        Raises:
            StreamError: it is not a number, or counts more than was sent (§4).
        """
        count = _number(element.get("h"))
        if count is None or count >= _COUNT:
            raise StreamError("invalid-xml", "An acknowledgement needs a number h.")
        more = (count - self._acknowledged) % _COUNT
        if more > len(self._unacknowledged):
            sent = (self._acknowledged + len(self._unacknowledged)) % _COUNT
            text = f"You acknowledged {count} stanzas, and {sent} were sent."
            raise StreamError("undefined-condition", text)
        self._acknowledged = count
        for _ in range(more):
            self._bytes -= len(self._unacknowledged.popleft())
        return more

    def answer(self) -> bytes:
        """Return the acknowledgement of the received stanzas (§4)."""
        return f"<a xmlns='{NAMESPACE}' h='{self.received}'/>".encode()

    def resume(self) -> bytes:
        """Return the request to resume the session on a new stream (§5)."""
        assert self.id is not None, "it can be resumed"
        self.asked = False
        previous = escape(self.id)
        return f"<resume xmlns='{NAMESPACE}' h='{self.received}' previd='{previous}'/>".encode()


class StanzaSplitter:
    """Splits outbound bytes into stanzas, in chunks of any size."""

    def __init__(self) -> None:
        self._scanner = Scanner(_UNBOUNDED)
        self._part = bytearray()

    @property
    def part_bytes(self) -> int:
        """The size of an incomplete stanza in bytes."""
        return len(self._part)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the stanzas that end in ``data``; white space between stanzas is a
        separate entry.
        """
        found: list[bytes] = []
        pos = 0
        while pos < len(data):
            if not self._part:
                end = pos
                while end < len(data) and data[end] in _SPACE:
                    end += 1
                if end > pos:
                    found.append(data[pos:end])
                    pos = end
                    continue
                self._scanner.begin()
            end = self._scanner.scan(data, pos, len(data))
            if end < 0:
                self._part += data[pos:]
                break
            found.append(bytes(self._part) + data[pos:end])
            self._part.clear()
            pos = end
        return found


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 10 else None
