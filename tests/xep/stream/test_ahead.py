"""A large element is parsed as it comes, and what is reported is the same."""

import pytest

from tests.xep.stream.streams import EXECUTE, HEADER, bytewise, cut, parse
from xep.stream import ElementReceived, ParserFailed, StanzaSkipped, StreamLimits, StreamParser

_TEXT = "a line & <more> \u00e9\u20ac\U0001f600 ]] of it\r\n"
_ESCAPED = _TEXT.replace("&", "&amp;").replace("<", "&#60;").encode()
_KINDS = {
    "text": _ESCAPED * 400,
    "elements": b"<value a='1'>x</value><y/>" * 700,
    "deep elements": (b"<a>" * 20 + b"text" + b"</a>" * 20) * 100,
    "long tags": (b"<a " + b" ".join(b"b%d='&lt;>'" % n for n in range(400)) + b"/>") * 4,
    "CDATA": b"<a><![CDATA[" + b"]] < & ]>" * 900 + b"]]></a>" + _ESCAPED * 100,
    "names of its own": b"<n:a xmlns:n='urn:n'><n:b/></n:a>" * 400,
}


def _large(content: bytes) -> bytes:
    return b"<iq id='large' type='set'><x xmlns='urn:x'>" + content + b"</x></iq>"


@pytest.mark.parametrize("content", _KINDS.values(), ids=_KINDS)
def test_how_it_is_cut_changes_nothing(content: bytes) -> None:
    limits = StreamLimits(elements=10_000)
    stream = HEADER + _large(content) + EXECUTE + _large(content) + EXECUTE
    together = parse([stream], limits)
    for size in (1000, 4096, 4097, 9001):
        assert parse(cut(stream, size), limits) == together, size


@pytest.mark.parametrize("content", _KINDS.values(), ids=_KINDS)
def test_one_byte_at_a_time_changes_nothing(content: bytes) -> None:
    limits = StreamLimits(elements=10_000)
    stream = HEADER + _large(content) + EXECUTE
    assert parse(bytewise(stream), limits) == parse([stream], limits)


@pytest.mark.parametrize("at", [100, 5_000, 11_000])
@pytest.mark.parametrize("fault", [b"<a></b>", b"\x01", b"\xff", b"<p:a/>", b"&#0;", b"]]>"])
def test_a_fault_is_reported_alike_wherever_it_stands(fault: bytes, at: int) -> None:
    whole = b"<y/>" * 3000
    stream = HEADER + _large(whole[:at] + fault + whole[at:]) + EXECUTE
    together = parse([stream])
    for size in (1000, 5000):
        assert parse(cut(stream, size)) == together, size


@pytest.mark.parametrize("size", [5000, 20_000])
def test_a_limit_that_breaks_late_leaves_nothing_behind(size: int) -> None:
    parser = StreamParser(limits=StreamLimits(elements=3000))
    stream = HEADER + _large(b"<y/>" * 5000) + EXECUTE + EXECUTE
    _, skipped, *after = [event for piece in cut(stream, size) for event in parser.receive(piece)]
    assert isinstance(skipped, StanzaSkipped)
    assert (skipped.limit, skipped.id) == ("elements", "large")
    assert [type(event) for event in after] == [ElementReceived, ElementReceived]


def test_what_is_forbidden_late_ends_the_stream() -> None:
    parser = StreamParser()
    stream = HEADER + _large(_ESCAPED * 400 + b"<!-- -->") + EXECUTE
    *_, last = [event for piece in cut(stream, 5000) for event in parser.receive(piece)]
    assert isinstance(last, ParserFailed)
    assert last.error.condition == "restricted-xml"
