"""The header that opens a stream and the tag that closes it (RFC 6120 §4.2, §4.4, §4.7)."""

import re
from collections.abc import Collection
from typing import Final
from xml.etree.ElementTree import ParseError, XMLParser

from xep.stream.careful import refusal
from xep.stream.errors import STREAMS, StreamError
from xep.stream.escape import escape
from xep.stream.events import StreamOpened

STREAM_CLOSE: Final = b"</stream:stream>"
"""The end tag of a stream."""

_LANG: Final = "{http://www.w3.org/XML/1998/namespace}lang"
_TAG_NAME: Final = re.compile(rb"<[^\s/>]+")
_DECLARATION: Final = re.compile(
    rb"<\?xml[ \t\r\n]+version[ \t\r\n]*=[ \t\r\n]*(?:'1\.0'|\"1\.0\")"
    rb"(?:[ \t\r\n]+encoding[ \t\r\n]*=[ \t\r\n]*(?:'([-.\w]+)'|\"([-.\w]+)\"))?"
    rb"(?:[ \t\r\n]+standalone[ \t\r\n]*=[ \t\r\n]*(?:'(?:yes|no)'|\"(?:yes|no)\"))?"
    rb"[ \t\r\n]*\?>"
)


def encode_header(
    namespace: str,
    *,
    to: str | None = None,
    from_: str | None = None,
    id_: str | None = None,
    version: str | None = None,
    lang: str | None = None,
) -> bytes:
    """Return the bytes that open a stream, XML declaration included.

    `namespace` is the content namespace, such as `jabber:component:accept`. An attribute that is
    None is omitted. XEP-0114 sends no version; RFC 6120 §4.7.5 requires `1.0` elsewhere.
    """
    attributes = {"to": to, "from": from_, "id": id_, "version": version, "xml:lang": lang}
    given = "".join(
        f" {name}='{escape(value)}'" for name, value in attributes.items() if value is not None
    )
    header = f"<stream:stream xmlns='{escape(namespace)}' xmlns:stream='{STREAMS}'{given}>"
    return b"<?xml version='1.0'?>" + header.encode()


def check_declaration(declaration: bytes) -> None:
    """Refuse an XML declaration that is ill-formed or names an encoding other than UTF-8.

    Raises `StreamError` (`not-well-formed`, `unsupported-encoding`; RFC 6120 §11.5, §11.6).
    """
    found = _DECLARATION.fullmatch(declaration)
    if found is None:
        raise StreamError("not-well-formed", "The XML declaration is not that of XML 1.0.")
    encoding = found[1] or found[2]
    if encoding is not None and encoding.lower() != b"utf-8":
        raise StreamError("unsupported-encoding", "The only encoding of XMPP is UTF-8.")


def decode_header(tag: bytes, content_namespaces: Collection[str]) -> StreamOpened:
    """Read a stream header, the start tag alone.

    Raises `StreamError`: `not-well-formed`, `unsupported-encoding`; `invalid-namespace` if the
    root is not in the stream namespace or the default namespace is neither one of
    `content_namespaces` nor absent (RFC 6120 §4.8.1, §4.8.2); `bad-format` if it is in the
    stream namespace and no `<stream/>`.
    """
    if b"\0" in tag:  # expat would interpret it as UTF-16
        raise StreamError("not-well-formed", "There is a NUL in the stream header.")
    root = _Root()
    parser = XMLParser(target=root, encoding="utf-8")  # noqa: S314 - no DTD gets here
    try:
        parser.feed(tag)
    except ParseError as error:
        raise refusal(error.code, tag) from None
    namespace, _, name = root.tag.rpartition("}")
    if namespace != "{" + STREAMS:
        raise StreamError("invalid-namespace", f"A stream is in the namespace {STREAMS}.")
    if name != "stream":
        raise StreamError("bad-format", "The root of a stream is called 'stream'.")
    default = root.default
    if default == STREAMS:  # then each stanza declares its own namespace, as RFC 6120 §4.8.2 allows
        default = ""
    if default and default not in content_namespaces:
        expected = " or ".join(content_namespaces)
        raise StreamError("invalid-namespace", f"The content namespace here is {expected}.")
    get = root.attributes.get
    return StreamOpened(
        from_=get("from"),
        to=get("to"),
        id=get("id"),
        version=get("version"),
        lang=get(_LANG),
        namespace=default,
    )


def canonical_header(tag: bytes, content_namespaces: Collection[str]) -> bytes:
    """Return a start tag of the same name that declares the same prefixes, with `jabber:client` for
    each of `content_namespaces`; `decode_header` has accepted `tag`.

    Elements that are parsed under it have canonical names from the beginning.
    """
    root = _Root()
    XMLParser(target=root, encoding="utf-8").feed(tag)  # noqa: S314 - no DTD gets here
    name = _TAG_NAME.match(tag)
    assert name is not None
    declared = ""
    for prefix, uri in root.namespaces.items():
        canonical = "jabber:client" if uri in content_namespaces else uri
        declared += f" xmlns{':' if prefix else ''}{prefix}='{escape(canonical)}'"
    return name[0] + declared.encode() + b">"


class _Root:
    """Collects expat's events of the header."""

    def __init__(self) -> None:
        self.tag = ""
        self.namespaces: dict[str, str] = {}
        self.attributes: dict[str, str] = {}

    @property
    def default(self) -> str:
        return self.namespaces.get("", "")

    def start_ns(self, prefix: str, uri: str) -> None:
        self.namespaces[prefix] = uri

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag = tag
        self.attributes = attributes
