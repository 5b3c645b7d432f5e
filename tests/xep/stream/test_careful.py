"""One whole element that cannot be parsed costs its sender the stanza and nobody the stream."""

from itertools import pairwise
from xml.etree.ElementTree import Element

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.xep.stream.streams import EXECUTE, HEADER, bytewise, parse, plain
from xep.stream import ElementReceived, StanzaSkipped, StreamParser
from xep.stream.careful import is_one_element

HEAD = b"<iq type='get' id='&lt;1&#62;' from=\"a'\xc3\xa9@b\" to='c'>"
KNOWN = ("get", "<1>", "a'\u00e9@b", "c")


def _between(stanza: bytes) -> object:
    """What is reported of a stanza between two others, which must arrive, however it is cut."""
    data = HEADER + EXECUTE + stanza + EXECUTE
    found = parse([data])
    assert parse(bytewise(data)) == found
    _, before, event, after = found
    assert before == after == parse([HEADER + EXECUTE])[1]
    return event


def _element(stanza: bytes) -> Element:
    event = StreamParser().receive(HEADER + stanza)[1]
    assert isinstance(event, ElementReceived)
    return event.element


def test_a_brace_in_a_namespace_is_as_good_as_any_character() -> None:
    stanza = (
        b"<message id='1'><x xmlns='urn:}' xmlns:p='}{' p:a='1' b='2'>t<p:y/>&amp;<![CDATA[<]]>"
        b"</x>tail<body/></message>"
    )
    found = _element(stanza)
    assert [each.tag for each in found.iter()] == [
        "{jabber:client}message",
        "{urn:}}x",
        "{}{}y",
        "{jabber:client}body",
    ]
    x = found[0]
    assert x.attrib == {"{}{}a": "1", "b": "2"}
    assert (x.text, x[0].tail, x.tail) == ("t", "&<", "tail")
    assert _between(stanza) == plain(ElementReceived(found, len(stanza)))


@pytest.mark.parametrize("namespace", ["jabber:component:accept}", "jabber:client}"])
def test_a_namespace_that_begins_like_ours_is_another(namespace: str) -> None:
    found = _element(f"<message><body xmlns='{namespace}'/></message>".encode())
    assert found[0].tag == f"{{{namespace}}}body"
    found = _element(f"<p:message xmlns:p='{namespace}'/>".encode())
    assert found.tag == f"{{{namespace}}}message"


def test_a_content_namespace_beside_a_brace_is_canonical() -> None:
    found = _element(
        b"<message xmlns='jabber:component:accept'><body a='&#65;' xmlns:a='}'/></message>"
    )
    assert [each.tag for each in found.iter()] == ["{jabber:client}message", "{jabber:client}body"]


@pytest.mark.parametrize("content", [b"\0", b"\xff", b"<a:b/>", b"<a b='' b=''/>", b"&", b"<1/>"])
def test_a_skipped_malformed_stanza_is_known_by_its_start_tag(content: bytes) -> None:
    stanza = HEAD + content + b"</iq>"
    skipped, *_ = _between(stanza)  # type: ignore[misc]
    assert skipped == StanzaSkipped(None, len(stanza), "{jabber:client}iq", *KNOWN)
    assert skipped.kind == "iq"


@pytest.mark.parametrize(
    "at_fault",
    [
        b"xmlns:p='http://www.w3.org/XML/1998/namespace' p:foo='1'",
        b"p:foo='1'",
        b"xmlns:p='' p:foo='1'",
        b"xmlns='jabber:client' p:foo='1'",
        b"xmlns='jabber:component:accept' p:foo='1'",
        b"xmlns='jabber&#58;component:accept' p:foo='1'",
    ],
)
def test_a_start_tag_that_is_at_fault_in_its_namespaces_is_read(at_fault: bytes) -> None:
    stanza = HEAD[:-1] + b" " + at_fault + b"/>"
    skipped, *_ = _between(stanza)  # type: ignore[misc]
    assert skipped == StanzaSkipped(None, len(stanza), "{jabber:client}iq", *KNOWN)


@pytest.mark.parametrize(
    ("tag", "kind"),
    [(b"iq xmlns='urn:x' p:y=''", "{urn:x}iq"), (b"p:iq id='1'", None), (b"iq a='' a=''", None)],
)
def test_it_is_not_taken_for_what_it_may_not_be(tag: bytes, kind: str | None) -> None:
    skipped, *_ = _between(b"<" + tag + b"/>")  # type: ignore[misc]
    assert (skipped.tag, skipped.kind) == (kind, None)


@pytest.mark.parametrize(
    ("piece", "is_one"),
    [
        (b"<a/>", True),
        (b"<a\n b='>' c=\"/>'\"><b/>x<c >\xff</c\t></a >", True),
        (b"<a><![CDATA[</a>]]></a>", True),
        (b"<a><![CDATA[]]]]></a>", True),
        (b"<a / ></a>", True),
        (b"<a b=c/>", True),
        (b"<a>", False),
        (b"<a></b>", False),
        (b"<a><b></a></b>", False),
        (b"<a/><b/>", False),
        (b"<a/>x", False),
        (b"</a>", False),
        (b"<a b='></a>", False),
        (b"<a b='<'/>", False),
        (b"<a <b/></a>", False),
        (b"<a><![CDATA[</a>", False),
        (b"", False),
    ],
)
def test_one_whole_element(piece: bytes, is_one: bool) -> None:
    assert is_one_element(piece) == is_one


# Whatever stands where no tag begins or ends: bytes of all kinds, and names that are none.
_BYTES = st.binary(max_size=8).map(lambda data: data.translate(None, b"<>&'\""))
_NAMES = st.sampled_from([b"b", b"p:b", b"xml:b", b"xmlns", b"1", b"", b"\xff", b"\xc3\xa9", b"b}"])


@st.composite
def _contents(draw: st.DrawFn, depth: int = 2) -> bytes:
    text = draw(_BYTES | st.sampled_from([b"& ", b"&#0;", b"&#x0c;", b"]]>", b"<![CDATA[</iq>]]>"]))
    if not depth:
        return text
    name = draw(_NAMES)
    attributes = b"".join(
        b" %s=%s" % (key, draw(st.sampled_from([b"'%s'", b'"%s"', b"%s"])) % draw(_BYTES))
        for key in draw(st.lists(_NAMES | st.sampled_from([b"xmlns", b"xmlns:p"]), max_size=3))
    )
    inside = b"".join(draw(st.lists(_contents(depth - 1), max_size=2)))
    if name[:1] in (b"/", b"!", b"?") or attributes.rstrip().endswith(b"/"):
        return text
    return text + b"<%s%s>%s</%s>" % (name, attributes, inside, name)


@given(_contents(), st.lists(st.integers(0, 2000), max_size=5))
@example(b"<b xmlns='urn:}'>&#12;</b>", [])
def test_whatever_is_in_it_the_stanzas_around_it_arrive(content: bytes, cuts: list[int]) -> None:
    data = HEADER + EXECUTE + HEAD + content + b"</iq>" + EXECUTE
    good = parse([HEADER + EXECUTE])[1]
    at = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    found = parse([data[start:end] for start, end in pairwise(at)])
    assert len(found) == 4, found
    assert found[1] == found[3] == good
    skipped = found[2][0] if isinstance(found[2][0], StanzaSkipped) else None  # type: ignore[index]
    if skipped is not None:
        assert (skipped.type, skipped.id, skipped.from_, skipped.to) == KNOWN
