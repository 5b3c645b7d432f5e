"""Parses complete first-level elements to ElementTree, with one expat parser for the
whole stream.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from xep.stream import careful
from xep.stream.errors import StreamError

CANONICAL: Final = "{jabber:client}"

# Expat stores every new name of an element, attribute or prefix as long as the parser lives, so a
# peer could fill the memory with names. A new parser costs as much as a few stanzas.
_RENEW_AFTER: Final = 128 * 1024  # bytes


class Forest:
    """Parses the content between a stream header and the end of its stream.

    Its input ends with an element, or at least with whole tags. So the namespaces of the header
    always apply, and reparse deferral (expat 2.6 and later) has nothing to defer.
    """

    __slots__ = ("_builder", "_content", "_fed", "_foreign", "_header", "_parser", "_root")

    _builder: TreeBuilder
    _parser: XMLParser
    _root: Element
    _fed: int

    def __init__(self, header: bytes, content_namespaces: Iterable[str]) -> None:
        """Start under `header`, a canonical one (see `header.canonical_header`).

        If elements declare one of `content_namespaces` themselves, first-level elements and their
        direct children are made canonical, that is moved to `jabber:client`.
        """
        names = [name for name in content_namespaces if name != "jabber:client"]
        self._header = header
        self._foreign = frozenset("{" + name for name in names)
        self._content = tuple(name.encode() for name in names)
        self._renew()

    def _renew(self) -> None:
        self._builder = TreeBuilder()
        self._parser = XMLParser(target=self._builder, encoding="utf-8")  # noqa: S314 - no DTD gets here
        self._parser.feed(self._header)
        # The open root element: children will be appended to it.
        self._root = self._builder.close()
        self._fed = 0

    def feed(self, data: bytes, sizes: Sequence[int]) -> list[Element] | None:
        """Parse elements of these sizes, with only white space between them.

        Returns None if expat sees anything else in `data`; the parser is then unchanged.
        """
        self._make_room(len(data))
        elements = self._parsed(data, len(sizes))
        if elements is None:
            return None
        if len(data) != sum(sizes):
            for element in elements:
                element.tail = None  # white space between stanzas depends on the chunks
        self._make_canonical(data, elements)
        return elements

    def _make_room(self, size: int) -> None:
        if self._fed > _RENEW_AFTER:
            self._renew()
        self._fed += size

    def _parsed(self, data: bytes, count: int) -> list[Element] | None:
        """Return the elements, if `data` has exactly `count`; otherwise None, with a new parser."""
        root = self._root
        try:
            self._parser.feed(data)
        except ParseError:
            self._renew()
            return None
        elements = root[:]
        del root[:]
        if len(elements) != count:
            self._renew()
            return None
        return elements

    def feed_ahead(self, data: bytes, *, first: bool) -> bool:
        """Parse the first or the next part of an element that `feed_one` will complete.

        The part may end anywhere except inside a tag, a reference or CDATA. Return False if expat
        refuses it; the parser is then in its state before the element.
        """
        if first:
            self._make_room(0)
        self._fed += len(data)
        try:
            self._parser.feed(data)
        except ParseError:
            self._renew()
            return False
        return True

    def forget(self) -> None:
        """Discard the element of which parts were parsed."""
        self._renew()

    def _make_canonical(self, data: bytes, elements: list[Element]) -> None:
        # A namespace can also be written with character references.
        if not (b"&" in data and b"&#" in data) and not any(map(data.__contains__, self._content)):
            return
        for first in elements:
            for element in (first, *first):
                # A namespace can contain a brace; a local name cannot.
                namespace, _, local = element.tag.rpartition("}")
                if namespace in self._foreign:
                    element.tag = CANONICAL + local

    def feed_one(self, data: bytes, ahead: int = 0) -> Element:
        """Parse one element, of which `ahead` bytes were parsed by `feed_ahead`.

        Raises `StreamError` with the reason if it is not one element.
        """
        if not ahead:
            self._make_room(len(data))
        elements = self._parsed(data[ahead:], 1)
        if elements is None:
            elements = [careful.parse(self._header, data)]
        self._make_canonical(data, elements)
        return elements[0]

    def read_start_tag(self, tag: bytes) -> tuple[str | None, Mapping[str, str]]:
        """Return the name and the attributes of a start tag without the rest of its element.

        If only its namespaces are invalid, the attributes without a prefix are still returned. The
        name is None, and the attributes are empty, if it cannot be parsed.
        """
        empty = tag if tag.endswith(b"/>") else tag[:-1] + b"/>"
        try:
            element = self.feed_one(empty)
        except StreamError:
            head = careful.parse_head(empty)
        else:
            return element.tag, element.attrib
        if head is None or ":" in head[0]:
            return None, {}
        name, attributes = head
        default = attributes.get("xmlns")
        if default is None:  # that of the header; only an x is removed from the whole name
            return self.feed_one(b"<x/>").tag[:-1] + name, attributes
        return (
            CANONICAL if "{" + default in self._foreign else f"{{{default}}}"
        ) + name, attributes

    def feed_end(self, tag: bytes) -> None:
        """Parse the end tag of the stream. Raises `StreamError` if it is another end tag."""
        try:
            self._parser.feed(tag)
        except ParseError as error:
            self._renew()
            raise careful.refusal(error.code, tag) from None
