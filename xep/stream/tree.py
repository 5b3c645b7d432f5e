"""Complete first-level elements to ElementTree, through one expat parser that lasts."""

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from xep.stream.errors import StreamError

CANONICAL: Final = "{jabber:client}"

# Every new name of an element, attribute or prefix stays in expat's tables as long as the parser
# lives, so a peer could fill the memory with names. A new parser costs as much as a few stanzas.
_RENEW_AFTER: Final = 128 * 1024  # bytes


class Forest:
    """Parses what stands between a stream header and the end of its stream.

    It is fed whole elements only, so the namespaces of the header always hold and reparse
    deferral (expat 2.6 and later) has nothing to hold back.
    """

    __slots__ = ("_builder", "_content", "_fed", "_header", "_parser", "_prefixes", "_root")

    _builder: TreeBuilder
    _parser: XMLParser
    _root: Element
    _fed: int

    def __init__(self, header: bytes, content_namespaces: Iterable[str]) -> None:
        """Start under `header`, a canonical one (see `header.canonical_header`).

        Of what declares one of `content_namespaces` itself, first-level elements and their direct
        children are made canonical, that is put into `jabber:client`.
        """
        names = [name for name in content_namespaces if name != "jabber:client"]
        self._header = header
        self._prefixes = tuple(f"{{{name}}}" for name in names)
        self._content = tuple(name.encode() for name in names)
        self._renew()

    def _renew(self) -> None:
        self._builder = TreeBuilder()
        self._parser = XMLParser(target=self._builder, encoding="utf-8")  # noqa: S314 - no DTD gets here
        self._parser.feed(self._header)
        # "The toplevel document element", open as it is: children will be appended to it.
        self._root = self._builder.close()
        self._fed = 0

    def feed(self, data: bytes, sizes: Sequence[int]) -> list[Element] | None:
        """Parse elements of these sizes, with nothing but white space between them.

        Gives None if expat sees anything else in `data`; the parser is then as before.
        """
        if self._fed > _RENEW_AFTER:
            self._renew()
        self._fed += len(data)
        root = self._root
        try:
            self._parser.feed(data)
        except ParseError:
            self._renew()
            return None
        elements = root[:]
        del root[:]
        if len(elements) != len(sizes):
            self._renew()
            return None
        if len(data) != sum(sizes):
            for element in elements:
                element.tail = None  # white space between stanzas depends on the chunks
        # A namespace can be written with references to its characters, too.
        if (b"&" in data and b"&#" in data) or any(map(data.__contains__, self._content)):
            self._make_canonical(elements)
        return elements

    def _make_canonical(self, elements: list[Element]) -> None:
        prefixes = self._prefixes
        for first in elements:
            for element in (first, *first):
                if element.tag.startswith(prefixes):
                    element.tag = CANONICAL + element.tag.partition("}")[2]

    def feed_one(self, data: bytes) -> Element:
        """Parse one element. Raises `StreamError` if it is not one, saying in which way."""
        elements = self.feed(data, (len(data),))
        if elements is None:
            raise self._reason(data)
        return elements[0]

    def feed_start_tag(self, tag: bytes) -> Element:
        """Parse a start tag without the rest of its element. Raises `StreamError`."""
        return self.feed_one(tag if tag.endswith(b"/>") else tag[:-1] + b"/>")

    def feed_end(self, tag: bytes) -> None:
        """Parse the end tag of the stream. Raises `StreamError` if it is another end tag."""
        try:
            self._parser.feed(tag)
        except ParseError:
            self._renew()
            raise self._reason(tag) from None

    def _reason(self, data: bytes) -> StreamError:
        parser = XMLParser(encoding="utf-8")  # noqa: S314 - no DTD gets here
        try:
            parser.feed(self._header)
            parser.feed(data)
        except ParseError as error:
            return stream_error(error, data)
        return StreamError("not-well-formed", "The XML is not well-formed.")


def stream_error(error: ParseError, data: bytes) -> StreamError:
    """Say with which condition of RFC 6120 §4.9.3 expat's refusal of `data` is answered."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return StreamError("unsupported-encoding", "The stream is not UTF-8.")
    reason = str(error).partition(":")[0]
    return StreamError("not-well-formed", f"The XML is not well-formed: {reason}.")
