"""Streams nobody should send, what ends them, and how much is delivered before.

Only the standard library, so that an interpreter without our environment can run it too.
"""

from dataclasses import dataclass

from tests.xep.stream.streams import CLOSE, EXECUTE, HEADER, SMALL
from xep.stream import Condition, StreamLimits

LAUGHS = (
    b"<?xml version='1.0'?><!DOCTYPE s [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>"
    b"<!ENTITY c '&b;&b;&b;&b;&b;&b;&b;&b;'>]>"
)
BODY = b"<message><body>%s</body></message>"


@dataclass(frozen=True)
class Hostile:
    """One stream. `good` stanzas are delivered, `skipped` ones reported, then `condition`.

    `error` is the condition with which those are skipped that no limit forbids.
    """

    name: str
    data: bytes
    condition: Condition | None
    good: int = 0
    skipped: int = 0
    closed: bool = False
    limits: StreamLimits | None = None
    error: Condition | None = None


def _in_body(name: str, body: bytes, condition: Condition) -> Hostile:
    return Hostile(name, HEADER + EXECUTE + BODY % body + EXECUTE, condition, good=1)


def _skipped(name: str, body: bytes, error: Condition = "not-well-formed") -> Hostile:
    data = HEADER + EXECUTE + BODY % body + EXECUTE
    return Hostile(name, data, None, good=2, skipped=1, error=error)


HOSTILE = [
    # before the stream
    Hostile("billion laughs", LAUGHS + HEADER[21:] + BODY % b"&c;", "restricted-xml"),
    Hostile("external DTD", b"<!DOCTYPE s SYSTEM 'http://x.example/'>" + HEADER, "restricted-xml"),
    Hostile("comment first", b"<!-- -->" + HEADER, "restricted-xml"),
    Hostile("comment after declaration", HEADER[:21] + b"<!---->", "restricted-xml"),
    Hostile("PI first", b"<?xml-stylesheet href='x'?>" + HEADER, "restricted-xml"),
    Hostile("declaration after space", b" " + HEADER, "restricted-xml"),
    Hostile("two declarations", HEADER[:21] + HEADER, "restricted-xml"),
    Hostile("Latin-1", b"<?xml version='1.0' encoding='ISO-8859-1'?>", "unsupported-encoding"),
    Hostile("UTF-16 declared", b'<?xml version="1.0" encoding="UTF-16"?>', "unsupported-encoding"),
    Hostile("XML 1.1", b"<?xml version='1.1'?>" + HEADER[21:], "not-well-formed"),
    Hostile("endless declaration", b"<?xml " + b"version='1.0' " * 99, "not-well-formed"),
    Hostile("UTF-16 BE with BOM", HEADER.decode().encode("utf-16-be"), "unsupported-encoding"),
    Hostile("UTF-16 with BOM", HEADER.decode().encode("utf-16"), "unsupported-encoding"),
    Hostile("UTF-16 LE", HEADER.decode().encode("utf-16-le"), "unsupported-encoding"),
    Hostile("UTF-16 after space", b"\n" + "<s/>".encode("utf-16-le"), "not-well-formed"),
    # RFC 6120 §11.6: U+FEFF is a character, never a mark; and none may stand before the root.
    Hostile("UTF-8 BOM", b"\xef\xbb\xbf" + HEADER, "not-well-formed"),
    Hostile("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not-well-formed"),
    Hostile("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "not-well-formed"),
    Hostile("end first", CLOSE, "not-well-formed"),
    Hostile("CDATA first", b"<![CDATA[x]]>" + HEADER, "bad-format"),
    # the header
    Hostile(
        "no stream namespace", b"<stream xmlns='jabber:component:accept'>", "invalid-namespace"
    ),
    Hostile("other stream namespace", HEADER.replace(b"etherx", b"ether"), "invalid-namespace"),
    Hostile("other content", HEADER.replace(b"component:accept", b"server"), "invalid-namespace"),
    Hostile("no stream", HEADER.replace(b"stream:stream", b"stream:features"), "bad-format"),
    Hostile("unbound root", b"<stream:stream xmlns='jabber:client'>", "not-well-formed"),
    Hostile("entity in header", HEADER[:-1] + b" to='&x;'>", "restricted-xml"),
    Hostile("bad UTF-8 in header", HEADER[:-1] + b" to='\xc3\x28'>", "unsupported-encoding"),
    Hostile("attribute twice in header", HEADER[:-1] + b" id='2'>", "not-well-formed"),
    Hostile("huge header", HEADER[:-1] + b" to='" + b"x" * 400, "policy-violation", limits=SMALL),
    Hostile(
        "huge header gone wrong", HEADER[:-1] + b" " * 400 + b"<", "policy-violation", limits=SMALL
    ),
    Hostile("header with end", HEADER[:-1] + b"/>" + EXECUTE, "not-well-formed", closed=True),
    # inside a stanza
    _in_body("comment", b"<!-- -->", "restricted-xml"),
    _in_body("PI", b"<?php x?>", "restricted-xml"),
    _in_body("DTD", b"<!DOCTYPE x>", "restricted-xml"),
    _in_body("undefined entity", b"&nbsp;", "restricted-xml"),
    _in_body("entity like a predefined one", b"&ampx;", "restricted-xml"),
    _in_body("entity cut short", b"&am;", "restricted-xml"),
    _in_body("entity in an attribute", b"<x a='&nbsp;'/>", "restricted-xml"),
    _skipped("bare ampersand", b"a & b"),
    _skipped("ampersand at the end", b"&"),
    _skipped("nothing referred to", b"&;"),
    _skipped("reference to NUL", b"&#0;"),
    _skipped("reference to no number", b"&#x;"),
    _skipped("reference to a surrogate", b"&#xD800;"),
    _skipped("NUL", b"\0"),
    _skipped("control character", b"\x1b"),
    _skipped("U+FFFE", b"\xef\xbf\xbe"),
    _skipped("end of CDATA in text", b"]]>"),
    _skipped("half a UTF-8 character", b"\xe2\x98", "unsupported-encoding"),
    _skipped("overlong UTF-8", b"\xc0\xaf", "unsupported-encoding"),
    _skipped("surrogate in UTF-8", b"\xed\xa0\x80", "unsupported-encoding"),
    _skipped("unbound prefix", b"<a:b/>"),
    _skipped("unbound attribute prefix", b"<b a:c=''/>"),
    _skipped("prefix bound to nothing", b"<a:b xmlns:a=''/>"),
    _skipped("attribute twice", b"<b c='' c=''/>"),
    _skipped("attribute twice by namespace", b"<b xmlns:x='u' xmlns:y='u' x:c='' y:c=''/>"),
    _skipped(
        "the namespace of xml as the default", b"<b xmlns='http://www.w3.org/XML/1998/namespace'/>"
    ),
    _skipped("another prefix for xml", b"<b xmlns:c='http://www.w3.org/XML/1998/namespace'/>"),
    _skipped("xml bound to something else", b"<b xmlns:xml='urn:x'/>"),
    _skipped("xmlns bound", b"<b xmlns:xmlns='urn:x'/>"),
    _skipped("the namespace of xmlns", b"<b xmlns='http://www.w3.org/2000/xmlns/'/>"),
    _skipped("two colons", b"<a:b:c xmlns:a='urn:x'/>"),
    _skipped("a brace and an unbound prefix", b"<x xmlns='urn:}'/><a:b/>"),
    _skipped("reference to a form feed", b"<x xmlns='urn:&#12;'/>"),
    _skipped("form feed", b"<x xmlns='urn:\f'/>"),
    _in_body("a brace and a wrong end tag", b"<x xmlns='urn:}'/><b></c>", "not-well-formed"),
    _in_body("bad UTF-8 and a wrong end tag", b"\xff<b></c>", "unsupported-encoding"),
    _skipped("attribute without quotes", b"<b c=1/>"),
    _skipped("attribute without value", b"<b c/>"),
    _in_body("less-than in an attribute", b"<b c='<'/>", "not-well-formed"),
    _in_body("less-than in a tag", b"<b <c/>", "not-well-formed"),
    _skipped("nameless tag", b"< b/>"),
    _skipped("empty tag", b"<><b/></>"),
    _skipped("name of a digit", b"<1/>"),
    _in_body("wrong end tag", b"<b></c>", "not-well-formed"),
    _skipped("end tag with an attribute", b"<b></b c=''>"),
    _in_body("stream closed inside", CLOSE, "not-well-formed"),
    _in_body("DTD in CDATA's clothes", b"<![cdata[x]]>", "restricted-xml"),
    Hostile("wrong end of a stanza", HEADER + b"<iq></message>", "not-well-formed"),
    Hostile(
        "slash apart",
        HEADER + EXECUTE + b"<iq/ ></iq>" + EXECUTE,
        None,
        good=2,
        skipped=1,
        error="not-well-formed",
    ),
    Hostile(
        "ends in the middle of another", HEADER + b"<iq>\0<a></iq><iq></a></iq>", "not-well-formed"
    ),
    # between stanzas
    Hostile("text", HEADER + EXECUTE + b"x" + EXECUTE, "bad-format", good=1),
    Hostile("reference", HEADER + EXECUTE + b"&#32;" + EXECUTE, "bad-format", good=1),
    Hostile("CDATA", HEADER + EXECUTE + b"<![CDATA[]]>", "bad-format", good=1),
    Hostile("comment between", HEADER + EXECUTE + b"<!---->", "restricted-xml", good=1),
    Hostile("PI between", HEADER + EXECUTE + b"<?x?>", "restricted-xml", good=1),
    Hostile("NUL between", HEADER + EXECUTE + b"\0", "bad-format", good=1),
    Hostile("no-break space", HEADER + EXECUTE + b"\xc2\xa0", "bad-format", good=1),
    Hostile("wrong end", HEADER + EXECUTE + b"</stream>", "not-well-formed", good=1),
    Hostile("end with an attribute", HEADER + b"</stream:stream a=''>", "not-well-formed"),
    Hostile("endless end", HEADER + CLOSE[:-1] + b" " * 400, "policy-violation", limits=SMALL),
    Hostile("long end", HEADER + CLOSE[:-1] + b" " * 400 + b">", "policy-violation", limits=SMALL),
    Hostile(
        "long end gone wrong",
        HEADER + CLOSE[:-1] + b" " * 400 + b"<",
        "policy-violation",
        limits=SMALL,
    ),
    # after the stream
    Hostile("two roots", HEADER + CLOSE + HEADER, "not-well-formed", closed=True),
    Hostile("two ends", HEADER + CLOSE + CLOSE, "not-well-formed", closed=True),
    Hostile("stanza after", HEADER + CLOSE + EXECUTE, "not-well-formed", closed=True),
    Hostile("comment after", HEADER + CLOSE + b" <!---->", "not-well-formed", closed=True),
    Hostile("text after", HEADER + CLOSE + b"x", "not-well-formed", closed=True),
    # fine, however it looks
    Hostile("brace in a namespace", HEADER + BODY % b"<x xmlns='urn:}'/>" + EXECUTE, None, good=2),
    Hostile(
        "brace in a prefix's namespace",
        HEADER + BODY % b"<a:x xmlns:a='}{' a:b='1' b='2'/>" + EXECUTE,
        None,
        good=2,
    ),
    Hostile("an element of xml", HEADER + BODY % b"<xml:x xml:y='1'/>", None, good=1),
    Hostile("fake tags in CDATA", HEADER + BODY % b"<![CDATA[</message><!--&x;]]>", None, good=1),
    Hostile("brackets in CDATA", HEADER + BODY % b"<![CDATA[]]]]]>" + EXECUTE, None, good=2),
    Hostile("fake end in attribute", HEADER + BODY % b"<b c='/>' d=\"'>\"/>", None, good=1),
    Hostile("fake comment in attribute", HEADER + BODY % b"<b c='!-- ?'/>", None, good=1),
    Hostile("space only", HEADER + b" \r\n\t" * 9, None),
    # too big
    Hostile("huge text", HEADER + BODY % (b"x" * 400) + EXECUTE, None, 1, 1, limits=SMALL),
    Hostile("huge name", HEADER + b"<m" + b"x" * 400 + b"/>" + EXECUTE, None, 1, 1, limits=SMALL),
    Hostile(
        "huge attribute", HEADER + b"<iq id='" + b"/>" * 200 + b"'/>", None, 0, 1, limits=SMALL
    ),
    Hostile(
        "huge CDATA",
        HEADER + BODY % (b"<![CDATA[" + b"]" * 400 + b"</message>]]>") + EXECUTE,
        None,
        good=1,
        skipped=1,
        limits=SMALL,
    ),
    Hostile(
        "huge in references",
        HEADER + BODY % (b"&amp;" * 99 + b"&#38;" * 99) + EXECUTE,
        None,
        good=1,
        skipped=1,
        limits=SMALL,
    ),
    Hostile(
        "deep", HEADER + b"<iq>" + b"<a>" * 6 + b"</a>" * 6 + b"</iq>", None, 0, 1, limits=SMALL
    ),
    Hostile(
        "deep at its end",
        HEADER + b"<iq>" + b"<a>" * 5 + b"<b/>" + b"</a>" * 5 + b"</iq>",
        None,
        skipped=1,
        limits=SMALL,
    ),
    Hostile("wide", HEADER + b"<iq>" + b"<a/>" * 12 + b"</iq>", None, 0, 1, limits=SMALL),
    Hostile(
        "without end",
        HEADER + b"<iq>" + b"<a>" * 300 + b"</a>" * 299,
        "policy-violation",
        limits=StreamLimits(bytes=400, depth=6, elements=12, skipped=1000),
    ),
    Hostile(
        "ill-formed and over a limit",
        HEADER + BODY % (b"\xff" + b"x" * 400) + EXECUTE,
        None,
        1,
        1,
        limits=SMALL,
    ),
    Hostile(
        "forbidden in what is skipped",
        HEADER + BODY % (b"x" * 400 + b"<!---->"),
        "restricted-xml",
        limits=SMALL,
    ),
]
