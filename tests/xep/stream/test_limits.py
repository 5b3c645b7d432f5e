"""What is too big is passed over in bounded memory, and the stream goes on."""

import tracemalloc
from collections.abc import Iterator

import pytest

from tests.xep.stream.streams import CLOSE, EXECUTE, HEADER, bytewise, cut, parse
from xep.stream import (
    ElementReceived,
    ParserFailed,
    StanzaSkipped,
    StreamLimits,
    StreamParser,
    framing,
)
from xep.stream.scanner import Scanner

SMALL = StreamLimits(bytes=400, depth=6, elements=12)
START = b"<iq type='set' id='&lt;1&#62;' from=\"a'\xc3\xa9@b\" to='c'>"


def _skipped(stanza: bytes, limits: StreamLimits = SMALL) -> StanzaSkipped:
    parser = StreamParser(limits=limits)
    _, skipped, after = parser.receive(HEADER + stanza + EXECUTE)
    assert isinstance(skipped, StanzaSkipped)
    assert isinstance(after, ElementReceived)
    assert after.element.get("id") == "q1"
    return skipped


@pytest.mark.parametrize(
    ("limit", "content"),
    [
        ("bytes", b"x" * 400),
        ("depth", b"<a>" * 6 + b"</a>" * 6),
        ("elements", b"<a/>" * 12),
        ("bytes", b"x" * 400 + b"<a>" * 6 + b"</a>" * 6),
        ("bytes", b"<a/>" * 2 + b" " * 400 + b"<a/>" * 20),
        ("depth", b"<a>" * 6 + b"</a>" * 6 + b"x" * 400),
    ],
)
def test_a_stanza_skipped_for_a_limit_is_known_by_its_start_tag(limit: str, content: bytes) -> None:
    stanza = START + content + b"</iq>"
    expected = StanzaSkipped(
        limit, len(stanza), "{jabber:client}iq", "set", "<1>", "a'\u00e9@b", "c"
    )
    assert _skipped(stanza) == expected
    assert expected.kind == "iq"


def test_a_start_tag_that_is_too_long_tells_nothing() -> None:
    stanza = b"<iq id='1' from='" + b"x" * 400 + b"'/>"
    skipped = _skipped(stanza)
    assert skipped == StanzaSkipped("bytes", len(stanza), None, None, None, None, None)
    assert skipped.kind is None


def test_what_is_no_stanza_has_no_kind() -> None:
    skipped = _skipped(b"<x xmlns='urn:x'>" + b"<a/>" * 12 + b"</x>")
    assert (skipped.tag, skipped.kind) == ("{urn:x}x", None)


def test_a_start_tag_that_cannot_be_read_tells_nothing() -> None:
    stanza = b"<iq id='1' id='2'>" + b"<a/>" * 20 + b"</iq>"
    assert _skipped(stanza) == StanzaSkipped("elements", len(stanza), *[None] * 5)


def _levels(start: bytes, count: int, inside: bytes = b"") -> bytes:
    return b"<iq >" + start * count + inside + b"</a>" * count + b"</iq>"


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b"<iq>" + b"x" * 391 + b"</iq>", b"<iq>" + b"x" * 392 + b"</iq>"),
        (b"<iq >" + b"x" * 390 + b"</iq>", b"<iq >" + b"x" * 391 + b"</iq>"),
        (_levels(b"<a>", 5), _levels(b"<a>", 6)),
        (_levels(b"<a>", 4, b"<b/>"), _levels(b"<a>", 5, b"<b/>")),
        (_levels(b"<a b='/>'>", 5), _levels(b"<a b='/>'>", 6)),
        (b"<iq >" + b"<a/>" * 11 + b"</iq>", b"<iq >" + b"<a/>" * 12 + b"</iq>"),
        (b"<iq >" + b"<a></a>" * 11 + b"</iq>", b"<iq >" + b"<a></a>" * 12 + b"</iq>"),
    ],
)
def test_limits_are_exact(good: bytes, bad: bytes) -> None:
    for chunks in ([HEADER + good + bad + good], bytewise(HEADER + good + bad + good)):
        found = parse(chunks, SMALL)[1:]
        assert [isinstance(event, StanzaSkipped) for event in found] == [False, True, False]


def _repeat(piece: bytes) -> Iterator[bytes]:
    chunk = piece * (4096 // len(piece))
    return (chunk for _ in range(50))


# What begins an element, what it never ends with, what could end it.
ENDLESS: dict[str, tuple[bytes, bytes, bytes]] = {
    "text": (b"<iq id='1'>", b"x", b"</iq>"),
    "white space": (b"<iq id='1'>", b" ", b"</iq>"),
    "references": (b"<iq id='1'>", b"&amp;", b"</iq>"),
    "numbers": (b"<iq id='1'>&#", b"0", b"9;</iq>"),
    "CDATA": (b"<iq id='1'><![CDATA[", b"]]<>", b"]]></iq>"),
    "an attribute": (b"<iq id='", b">", b"'/>"),
    "references in an attribute": (b"<iq id='", b"&lt;", b"'/>"),
    "attributes": (b"<iq", b" a='/>'", b"/>"),
    "a name": (b"<iq", b"x", b"/>"),
    "a wide stanza": (b"<iq id='1'>", b"<a/>", b"</iq>"),
    "a deep stanza": (b"<iq id='1'>", b"<a>", b""),
    "between stanzas": (b"", b" ", b"<iq/>"),
}


@pytest.mark.parametrize(("start", "middle", "end"), ENDLESS.values(), ids=ENDLESS)
def test_memory_is_bounded(start: bytes, middle: bytes, end: bytes) -> None:
    parser = StreamParser(limits=StreamLimits(bytes=8192))
    parser.receive(HEADER + start)
    tracemalloc.start()
    try:
        for chunk in _repeat(middle):
            assert parser.receive(chunk) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 150_000  # the elements of what is within the limit are among it
    assert parser.pending <= 8192
    assert len(parser.receive(end)) == (1 if end else 0)


@pytest.mark.parametrize(
    "element",
    [
        b"<n%030d/>",
        pytest.param(b"<iq a%030d=''/>", marks=pytest.mark.thorough),
        pytest.param(b"<p%030d:a xmlns:p%030d='u'/>", marks=pytest.mark.thorough),
    ],
)
def test_names_do_not_pile_up(element: bytes) -> None:
    # expat keeps each name it has seen as long as the parser lives.
    parser = StreamParser()
    parser.receive(HEADER)
    tracemalloc.start()
    try:
        for i in range(0, 9_000, 1000):
            count = element.count(b"%")
            names = ((j,) * count for j in range(i, i + 1000))
            parser.receive(b"".join(element % name for name in names))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_a_hundred_thousand_levels() -> None:
    data = b"<iq id='1'>" + b"<a>" * 10**5 + b"</a>" * 10**5 + b"</iq>"
    _, skipped, _ = parse(cut(HEADER + data + EXECUTE, 65536))
    assert skipped == StanzaSkipped("depth", len(data), "{jabber:client}iq", None, "1", None, None)


def test_an_endless_header_ends_the_stream() -> None:
    parser = StreamParser()
    events = []
    for chunk in cut(HEADER[:-1] + b" to='" + b"x" * 300_000, 4096):
        events = parser.receive(chunk)
        if events:
            break
    assert isinstance(events[-1], ParserFailed)
    assert events[-1].error.condition == "policy-violation"


@pytest.mark.parametrize(
    "data",
    [b"<iq id='" + b"x" * 20_000, b"<iq>" + b"x" * 20_000, b"<iq " + b"x" * 20_000],
    ids=["attribute", "text", "tag"],
)
def test_one_byte_at_a_time_costs_no_more_per_byte(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = StreamParser()
    parser.receive(HEADER)
    scanned = 0
    scan = Scanner.scan

    def counted(scanner: Scanner, data: bytes, pos: int, stop: int) -> int:
        nonlocal scanned
        scanned += stop - pos
        return scan(scanner, data, pos, stop)

    monkeypatch.setattr(Scanner, "scan", counted)
    for byte in bytewise(data):
        assert parser.receive(byte) == []
    assert parser.pending == len(data)
    assert scanned == len(data), "the bytes so far are scanned again"


def test_a_stream_of_nothing_but_odd_stanzas_is_no_more_work_per_stanza(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches = 0
    search = framing._only_iqs

    def counted(data: bytes, pos: int, harmless: int) -> list[int]:
        nonlocal searches
        searches += 1
        return search(data, pos, harmless)

    monkeypatch.setattr(framing, "_only_iqs", counted)
    found = parse([HEADER + b"<iq >a>b</iq><i/>" * 2_000 + CLOSE])
    assert len(found) == 4_002
    assert searches <= 1, "the rest of the chunk is searched again for each stanza"
