"""Cut every stream at every byte: it must make no difference, and nothing may come late.

Run with `python -m tests.xep.stream.every_split` it tells the version of expat it ran with; the
tests run it under an interpreter whose expat defers half a token (2.6 and later).
"""

import os
import pyexpat

from tests.xep.stream.hostile import HOSTILE
from tests.xep.stream.streams import EXECUTE, HEADER, VALID, bytewise, join, parse
from xep.stream import ElementReceived, StreamClosed, StreamLimits, StreamParser

_THOROUGH = bool(os.environ.get("THOROUGH"))
_CUTS = 1_000_000 if _THOROUGH else 80
"""How often a stream is cut at most; a longer one is cut at equal distances."""


def check_splits(data: bytes, limits: StreamLimits | None = None) -> None:
    """Whole, in two parts, and byte by byte give the same."""
    whole = parse([data], limits)
    # Once is enough for what nearly all of them share; the streams of good stanzas have it too.
    shared = (HEADER,) if _THOROUGH else (HEADER + EXECUTE, HEADER)
    first = next((len(one) - 2 for one in shared if data.startswith(one)), 0)
    last = len(data)
    if not _THOROUGH and data.endswith(EXECUTE):
        last -= len(EXECUTE) - 2
    for at in range(first, last, 1 + max(0, last - first) // _CUTS):
        assert parse([data[:at], data[at:]], limits) == whole, (at, data)
    assert parse(bytewise(data), limits) == whole, data


def check_arrivals(elements: list[bytes]) -> None:
    """Each element is reported with its very last byte, whatever was cut before."""
    data = join(elements)
    expected = []
    at = len(HEADER) + 1
    for element in elements:
        at += len(element)
        expected.append(at)
        at += 1
    expected.append(len(data))
    for step in (1, 2, 3, 7, 50):
        parser = StreamParser()
        arrived = []
        for start in range(0, len(data), step):
            arrived += [
                start
                for event in parser.receive(data[start : start + step])
                if isinstance(event, ElementReceived | StreamClosed)
            ]
        assert arrived == [(end - 1) // step * step for end in expected], (step, data)


def check_large_arrivals() -> None:
    """So is one that is parsed in parts, however little the last read brings."""
    texts = ("a line & \u20ac ]] of it\r\n".replace("&", "&amp;") * 400).encode()
    for content in (texts, b"<value a='1'>x</value><y/>" * 700):
        element = b"<iq><x xmlns='urn:x'>" + content + b"</x></iq>"
        for end in range(len(element) - 40, len(element)):
            parser = StreamParser()
            parser.receive(HEADER)
            for start in range(0, end, 4099):
                assert parser.receive(element[start : min(start + 4099, end)]) == [], end
            (event,) = parser.receive(element[end:])
            assert isinstance(event, ElementReceived), (event, end)


def main() -> None:
    """Check all streams of the tests."""
    check_splits(b"\n" + join([EXECUTE]).removeprefix(HEADER[:21]))
    for elements in VALID.values():
        check_splits(join(elements, b""))
        check_splits(join(elements[:2], b" \n"))
        check_arrivals(elements)
    for hostile in HOSTILE:
        check_splits(hostile.data, hostile.limits)
    check_large_arrivals()
    print(".".join(map(str, pyexpat.version_info)))


if __name__ == "__main__":
    main()
