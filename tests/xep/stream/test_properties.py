"""What holds for every stream and every way to cut it, judged by expat on the whole of it."""

import re
from collections.abc import Sequence
from itertools import chain, pairwise
from xml.etree.ElementTree import ParseError, fromstring

from hypothesis import example, given
from hypothesis import strategies as st

from tests.xep.stream.hostile import HOSTILE
from tests.xep.stream.streams import CLOSE, HEADER, SMALL, VALID, join, parse, tree
from xep.stream import (
    ElementReceived,
    ParserFailed,
    StanzaSkipped,
    StreamClosed,
    StreamError,
    StreamLimits,
    StreamParser,
)

SPACE = st.sampled_from(["", " ", "\n", "\t  "])
TEXT = st.lists(
    st.sampled_from(
        ["a", "\u2603", "&lt;", "&#9731;", "&#x41;", ">", "/>", "'", '"', "!", "?", "]", " ", "\n"]
    ),
    max_size=6,
).map(lambda parts: "".join(parts).replace("]]>", "]]"))
CDATA = st.sampled_from(
    ["<![CDATA[]]>", "<![CDATA[</iq>]]>", "<![CDATA[]]]]>", "<![CDATA[<!-- &x;]]>"]
)
NAMES = st.sampled_from(["iq", "message", "presence", "a", "b", "iqs", "stream:a", "i", "m-1"])


@st.composite
def _attributes(draw: st.DrawFn) -> str:
    found = ""
    for name in draw(st.lists(st.sampled_from(["id", "from", "xmlns", "xml:lang"]), unique=True)):
        quote = draw(st.sampled_from("'\""))
        value = draw(TEXT).replace(quote, "")
        found += f" {draw(SPACE)}{name}{draw(SPACE)}={draw(SPACE)}{quote}{value}{quote}"
    return found


@st.composite
def _element(draw: st.DrawFn, content: st.SearchStrategy[str]) -> str:
    name = draw(NAMES)
    tag = name + draw(_attributes()) + draw(SPACE)
    if draw(st.booleans()):
        return f"<{tag}/>"
    inside = "".join(draw(st.lists(content, max_size=3)))
    return f"<{tag}>{inside}</{name}{draw(SPACE)}>"


ELEMENTS = _element(
    st.recursive(TEXT | CDATA, lambda content: _element(content | TEXT), max_leaves=5)
).map(str.encode)
STREAMS = st.lists(
    ELEMENTS | st.sampled_from(list(chain.from_iterable(VALID.values()))), max_size=5
).map(join)
CUTS = st.lists(st.integers(0, 2000), max_size=8)


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """A stream in which a few pieces were replaced by what XML cares about."""
    data = bytearray(draw(STREAMS | st.sampled_from([hostile.data for hostile in HOSTILE])))
    pieces = st.sampled_from(
        [
            b"<",
            b">",
            b"/>",
            b"</",
            b"'",
            b'"',
            b"&",
            b";",
            b"]]>",
            b"<!",
            b"<?",
            b"\0",
            b"\xff",
            b"<![CDATA[",
            b"</iq>",
            b"<iq>",
            b"<iq ",
            b"",
            b" ",
            b"x",
            CLOSE,
            b"&amp;",
            b"\xe2",
        ]
    )
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 6))] = draw(pieces)
    return bytes(data)


ANY = STREAMS | _mutated() | st.binary(max_size=200).map(lambda data: HEADER + data) | st.binary()


def _cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(at)]


@given(ANY, CUTS, st.sampled_from([None, SMALL, StreamLimits(60, 3, 4)]))
@example(HEADER + b"<presence a='/>", [190], None)
@example(HEADER + b"<iq a='/>'><x></x></iq><iq <b/>", [], None)
def test_how_it_is_cut_makes_no_difference(
    data: bytes, cuts: list[int], limits: StreamLimits | None
) -> None:
    whole = parse([data], limits)
    assert parse(_cut(data, cuts), limits) == whole


@given(st.lists(st.binary(max_size=300) | _mutated(), max_size=5))
def test_nothing_makes_it_raise_anything_else(chunks: list[bytes]) -> None:
    parser = StreamParser()
    failed = False
    for chunk in chunks:
        try:
            events = parser.receive(chunk)
        except StreamError:
            assert failed
            continue
        assert not failed
        assert not any(isinstance(event, ParserFailed) for event in events[:-1])
        failed = bool(events) and isinstance(events[-1], ParserFailed)


@given(STREAMS | _mutated(), CUTS)
@example(HEADER + b"<!a/>" + CLOSE, [])
@example(HEADER + b"<iq><iq><iq></iq></iq></iq>" + CLOSE, [])
def test_it_agrees_with_expat_about_whole_streams(data: bytes, cuts: list[int]) -> None:
    parser = StreamParser()
    events = []
    for chunk in _cut(data, cuts):
        events += parser.receive(chunk)
        if events and isinstance(events[-1], ParserFailed):
            break
    failed = bool(events) and isinstance(events[-1], ParserFailed)
    closed = any(isinstance(event, StreamClosed) for event in events)
    skipped = [event for event in events if isinstance(event, StanzaSkipped)]
    try:
        root = fromstring(data)
    except ParseError:
        assert failed or skipped or not closed
        return
    # expat takes the whole. So must we, unless it holds what a stream must not hold.
    text_between = [root.text or "", *(child.tail or "" for child in root)]
    forbidden = (
        re.search(rb"<!(?!\[CDATA\[)|<\?", data.removeprefix(HEADER[:21]))
        or not data.startswith(HEADER)
        or any(text.strip(" \t\r\n") for text in text_between)
        or re.search(rb"\A[^<]*(?:&#|<!\[)|>[ \t\r\n]*(?:&#|<!\[)", data)
    )
    if forbidden:
        return
    assert not failed
    assert not skipped
    assert closed
    received = [event.element for event in events if isinstance(event, ElementReceived)]
    # What inherits the namespace of the header is canonical at any depth.
    root = fromstring(data.replace(b"jabber:component:accept", b"jabber:client", 1))
    for child in root:
        child.tail = None
        if child.tag.startswith("{jabber:component:accept}"):
            child.tag = child.tag.replace("component:accept", "client")
        for grandchild in child:
            if grandchild.tag.startswith("{jabber:component:accept}"):
                grandchild.tag = grandchild.tag.replace("component:accept", "client")
    assert [tree(element) for element in received] == [tree(child) for child in root]


@given(st.lists(ELEMENTS, min_size=1, max_size=6), CUTS)
def test_sizes_are_those_of_the_elements(elements: list[bytes], cuts: list[int]) -> None:
    found = parse(_cut(join(elements), cuts))
    if isinstance(found[-1], StreamClosed) and not _any_skipped(found):
        sizes = [event[2] for event in found if isinstance(event, tuple)]
        assert sizes == [len(element) for element in elements]


@given(st.lists(ELEMENTS, min_size=1, max_size=6), CUTS, st.integers(1, 4), st.integers(1, 8))
def test_what_is_skipped_is_what_breaks_a_limit(
    elements: list[bytes], cuts: list[int], depth: int, count: int
) -> None:
    limits = StreamLimits(bytes=len(HEADER), depth=depth, elements=count)
    free = parse([join(elements)])
    bound = parse(_cut(join(elements), cuts), limits)
    if not isinstance(free[-1], StreamClosed) or _any_skipped(free):
        return  # ill-formed, as some generated names and attributes make it
    for (_, whole, size), event in zip(free[1:-1], bound[1:-1], strict=True):
        broken = size > len(HEADER) or _depth(whole) > depth or _count(whole) > count
        assert isinstance(event, StanzaSkipped) == broken
        if isinstance(event, StanzaSkipped):
            assert event.size == size


def _any_skipped(events: list[object]) -> bool:
    return any(isinstance(e, tuple) and isinstance(e[0], StanzaSkipped) for e in events)


def _depth(element: tuple[object, ...]) -> int:
    return 1 + max(map(_depth, element[4]), default=0)


def _count(element: tuple[object, ...]) -> int:
    return 1 + sum(map(_count, element[4]))
