"""What the parser reports of streams as they should be."""

import pytest

from tests.xep.stream.streams import CLOSE, EXECUTE, HEADER, join, parse
from xep.stream import (
    ElementReceived,
    ParserFailed,
    StreamClosed,
    StreamOpened,
    StreamParser,
    encode_header,
)


def _elements(data: bytes, **options: object) -> list[ElementReceived]:
    parser = StreamParser(**options)
    return [e for e in parser.receive(data) if isinstance(e, ElementReceived)]


def test_header_attributes_are_decoded() -> None:
    header = encode_header(
        "jabber:client", to="a&b's", from_="<x>\t\n", id_="\u2603", version="1.0", lang="de"
    )
    [event] = StreamParser(("jabber:client",)).receive(header)
    assert event == StreamOpened(
        from_="<x>\t\n",
        to="a&b's",
        id="\u2603",
        version="1.0",
        lang="de",
        namespace="jabber:client",
    )


def test_absent_header_attributes_are_none() -> None:
    [event] = StreamParser().receive(encode_header("jabber:component:accept"))
    assert event == StreamOpened(None, None, None, None, None, "jabber:component:accept")


def test_what_xml_cannot_hold_does_not_get_into_a_header() -> None:
    [event] = StreamParser().receive(encode_header("jabber:component:accept", to="a\0\ud800b"))
    assert isinstance(event, StreamOpened)
    assert event.to == "a\ufffd\ufffdb"


@pytest.mark.parametrize("default", [b"", b" xmlns='http://etherx.jabber.org/streams'"])
def test_each_stanza_may_name_the_content_namespace_itself(default: bytes) -> None:
    # RFC 6120 §4.8.2: "Alternatively … an entity MAY explicitly qualify the namespace"
    header = b"<s:stream xmlns:s='http://etherx.jabber.org/streams'" + default + b">"
    opened, stanza = StreamParser().receive(header + b"<iq xmlns='jabber:component:accept'/>")
    assert isinstance(opened, StreamOpened)
    assert isinstance(stanza, ElementReceived)
    assert opened.namespace == ""
    assert stanza.element.tag == "{jabber:client}iq"


@pytest.mark.parametrize("namespace", ["jabber:component:accept", "jabber:server", "jabber:client"])
def test_content_namespaces_become_one(namespace: str) -> None:
    stanza = b"<message><body><deep/></body><error><x xmlns='urn:x'/></error></message>"
    header = encode_header(namespace)
    [received] = _elements(header + stanza, content_namespaces=(namespace,))
    assert received.element.tag == "{jabber:client}message"
    assert [child.tag for child in received.element] == [
        "{jabber:client}body",
        "{jabber:client}error",
    ]
    # However deep: the namespace is that of the header.
    assert received.element[0][0].tag == "{jabber:client}deep"
    assert received.element[1][0].tag == "{urn:x}x"


@pytest.mark.parametrize(
    "stanza",
    [
        b"<message xmlns='jabber:component:accept'><body/></message>",
        b"<message xmlns='jabber&#58;component:accept'><body/></message>",
        b"<message><body xmlns='jabber:component:accept'/></message>",
        b"<message><body xmlns='jabber:component&#x3a;accept'/></message>",
        b"<message xmlns:p='jabber:component:accept'><p:body/></message>",
        b"<h:message><h:body/></h:message>",
    ],
)
def test_a_content_namespace_is_one_however_it_is_declared(stanza: bytes) -> None:
    header = HEADER[:-1] + b" xmlns:h='jabber:component:accept'>"
    [received] = _elements(header + stanza)
    assert [each.tag for each in received.element.iter()] == [
        "{jabber:client}message",
        "{jabber:client}body",
    ]


def test_other_namespaces_stay() -> None:
    tags = [e.element.tag for e in _elements(HEADER + b"<iq xmlns='jabber:server'/><a xmlns=''/>")]
    assert tags == ["{jabber:server}iq", "a"]


def test_size_is_in_bytes_as_received() -> None:
    stanza = "<message  ><body>\u2603&amp;</body></message  >".encode()
    assert [e.size for e in _elements(HEADER + b" " + stanza + b"\n" + EXECUTE)] == [
        len(stanza),
        len(EXECUTE),
    ]


def test_white_space_between_stanzas_is_nothing() -> None:
    parser = StreamParser()
    parser.receive(HEADER)
    assert parser.receive(b" ") == []
    assert parser.receive(b"\r\n\t" * 1000) == []
    assert parser.pending == 0
    assert len(parser.receive(EXECUTE + b" ")) == 1
    assert parser.receive(b"") == []


def test_the_closing_tag() -> None:
    events = StreamParser().receive(HEADER + EXECUTE + CLOSE + b"\n")
    assert events[-1] == StreamClosed()


def test_a_new_stream_after_a_restart() -> None:
    parser = StreamParser(("jabber:client",))
    parser.receive(encode_header("jabber:client") + b"<starttls/><iq id='unfinished")
    assert parser.pending == len(b"<iq id='unfinished")
    parser.reset()
    assert parser.pending == 0
    opened, stanza = parser.receive(encode_header("jabber:client", id_="2") + b"<iq/>")
    assert isinstance(opened, StreamOpened)
    assert opened.id == "2"
    assert isinstance(stanza, ElementReceived)


def test_a_new_stream_after_a_failure() -> None:
    parser = StreamParser()
    assert isinstance(parser.receive(b"x")[-1], ParserFailed)
    parser.reset()
    assert len(parser.receive(HEADER)) == 1


def test_a_delivered_stanza_does_not_change_any_more() -> None:
    parser = StreamParser()
    _, first = parser.receive(HEADER + EXECUTE)
    assert isinstance(first, ElementReceived)
    before = parse([HEADER + EXECUTE])[1]
    parser.receive(b" \n" + EXECUTE + CLOSE)
    assert ("element", before[1], first.size) == before
    assert first.element.tail is None


def test_many_stanzas_in_one_chunk_keep_their_order() -> None:
    stanzas = [b"<iq id='%d'/>" % i if i % 3 else b"<iq id='%d'></iq>" % i for i in range(2000)]
    got = [e.element.get("id") for e in _elements(join(stanzas))]
    assert got == [str(i) for i in range(2000)]
