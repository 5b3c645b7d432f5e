"""Compares the stream parser with the bare XML parser that it uses: the cost of framing and limits.

`python -m benchmarks.wire` prints stanzas per second of CPU time. The peer is `XMLPullParser`
alone: it reads the same chunks and returns its events, but has no limits, refuses nothing and does
not measure sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree.ElementTree import XMLPullParser

from benchmarks.report import Line, cells, table
from xep.component_stream import ComponentStream
from xep.stream import StreamParser, encode_header

HEADER = encode_header("jabber:component:accept", from_="agent.example.org", id_="3BF96D32")
PER_CHUNK = 20
CHUNKS = 500

Receive = Callable[[bytes], object]


def execute(number: int, text: str = "the text that is to be echoed") -> bytes:
    """Return an execute request of about 260 bytes."""
    return (
        f"<iq from='alice@example.org/desk' to='assistant@agent.example.org' type='set'"
        f" id='q{number:06}'><execute xmlns='urn:fluux:agent:0#execute' skill='echo'>"
        f"<param name='text'>{text}, number {number:06}</param></execute></iq>"
    ).encode()


def _chunks(text: str = "the text that is to be echoed in the answer") -> list[bytes]:
    return [
        b"".join(execute(at + i, text) for i in range(PER_CHUNK))
        for at in range(0, CHUNKS * PER_CHUNK, PER_CHUNK)
    ]


def _cut(chunks: list[bytes]) -> list[bytes]:
    """Return the same bytes in chunks that each end within a stanza."""
    whole, size = b"".join(chunks), len(chunks[0])
    ends = [100, *range(100 + size, len(whole), size), len(whole)]
    return [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _odd(chunks: list[bytes]) -> list[bytes]:
    """Return stanzas inside stanzas, which need the slow path."""
    return [chunk.replace(b"</execute>", b"<iq/></execute>") for chunk in chunks]


def _bare() -> Receive:
    parser: Any = XMLPullParser()
    parser.feed(HEADER)

    def receive(data: bytes) -> None:
        parser.feed(data)
        for _, element in parser.read_events():
            if element.tag == "{jabber:component:accept}iq":
                element.clear()

    return receive


def _parser() -> Receive:
    parser = StreamParser()
    parser.receive(HEADER)
    return parser.receive


def _component() -> Receive:
    stream = ComponentStream("agent.example.org", "secret")
    stream.open()
    stream.receive(HEADER)
    stream.handshake()
    stream.receive(b"<handshake/>")
    return stream.receive


def _rate(receive: Receive, chunks: list[bytes]) -> float:
    start = time.process_time()
    for chunk in chunks:
        receive(chunk)
    return CHUNKS * PER_CHUNK / (time.process_time() - start)


def measure(runs: int) -> Iterator[Line]:
    """Measure each case `runs` times, ours and the bare parser alternately."""
    plain = _chunks()
    cases = {
        "StreamParser": (_parser, plain),
        "StreamParser, each chunk cuts a stanza": (_parser, _cut(plain)),
        "StreamParser, a stanza in each stanza": (_parser, _odd(plain)),
        "ComponentStream, to Incoming": (_component, plain),
    }
    for name, (make, chunks) in cases.items():
        ours, peer = [], []
        for _ in range(runs):
            ours.append(_rate(make(), chunks))
            peer.append(_rate(_bare(), chunks))
        yield Line(f"{name} : bare XMLPullParser", "stanzas/s", ours, peer)


if __name__ == "__main__":
    print(table(map(cells, measure(5))))
