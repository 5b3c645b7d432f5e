"""Streams nobody should send, what ends them, and how much is delivered before.

Only the standard library, so that an interpreter without our environment can run it too.
"""

from dataclasses import dataclass

from tests.xep.stream.streams import CLOSE, EXECUTE, HEADER, SMALL
from xep.stream import Condition, Limits

LAUGHS = (
    b"<?xml version='1.0'?><!DOCTYPE s [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>"
    b"<!ENTITY c '&b;&b;&b;&b;&b;&b;&b;&b;'>]>"
)
BODY = b"<message><body>%s</body></message>"


@dataclass(frozen=True)
class Hostile:
    """One stream. `good` stanzas are delivered, `skipped` ones reported, then `condition`."""

    name: str
    data: bytes
    condition: Condition | None
    good: int = 0
    skipped: int = 0
    closed: bool = False
    limits: Limits | None = None


def _in_body(name: str, body: bytes, condition: Condition) -> Hostile:
    return Hostile(name, HEADER + EXECUTE + BODY % body + EXECUTE, condition, good=1)


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
    _in_body("bare ampersand", b"a & b", "not-well-formed"),
    _in_body("ampersand at the end", b"&", "not-well-formed"),
    _in_body("nothing referred to", b"&;", "not-well-formed"),
    _in_body("reference to NUL", b"&#0;", "not-well-formed"),
    _in_body("reference to no number", b"&#x;", "not-well-formed"),
    _in_body("reference to a surrogate", b"&#xD800;", "not-well-formed"),
    _in_body("NUL", b"\0", "not-well-formed"),
    _in_body("control character", b"\x1b", "not-well-formed"),
    _in_body("U+FFFE", b"\xef\xbf\xbe", "not-well-formed"),
    _in_body("end of CDATA in text", b"]]>", "not-well-formed"),
    _in_body("half a UTF-8 character", b"\xe2\x98", "unsupported-encoding"),
    _in_body("overlong UTF-8", b"\xc0\xaf", "unsupported-encoding"),
    _in_body("surrogate in UTF-8", b"\xed\xa0\x80", "unsupported-encoding"),
    _in_body("unbound prefix", b"<a:b/>", "not-well-formed"),
    _in_body("unbound attribute prefix", b"<b a:c=''/>", "not-well-formed"),
    _in_body("prefix bound to nothing", b"<a:b xmlns:a=''/>", "not-well-formed"),
    _in_body("attribute twice", b"<b c='' c=''/>", "not-well-formed"),
    _in_body(
        "attribute twice by namespace",
        b"<b xmlns:x='u' xmlns:y='u' x:c='' y:c=''/>",
        "not-well-formed",
    ),
    _in_body("attribute without quotes", b"<b c=1/>", "not-well-formed"),
    _in_body("attribute without value", b"<b c/>", "not-well-formed"),
    _in_body("less-than in an attribute", b"<b c='<'/>", "not-well-formed"),
    _in_body("less-than in a tag", b"<b <c/>", "not-well-formed"),
    _in_body("nameless tag", b"< b/>", "not-well-formed"),
    _in_body("empty tag", b"<><b/></>", "not-well-formed"),
    _in_body("name of a digit", b"<1/>", "not-well-formed"),
    _in_body("wrong end tag", b"<b></c>", "not-well-formed"),
    _in_body("end tag with an attribute", b"<b></b c=''>", "not-well-formed"),
    _in_body("stream closed inside", CLOSE, "not-well-formed"),
    _in_body("DTD in CDATA's clothes", b"<![cdata[x]]>", "restricted-xml"),
    Hostile("wrong end of a stanza", HEADER + b"<iq></message>", "not-well-formed"),
    Hostile("slash apart", HEADER + EXECUTE + b"<iq/ ></iq>", "not-well-formed", good=1),
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
        "forbidden in what is skipped",
        HEADER + BODY % (b"x" * 400 + b"<!---->"),
        "restricted-xml",
        limits=SMALL,
    ),
]
