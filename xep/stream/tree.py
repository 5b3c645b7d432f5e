"""Complete first-level elements to ElementTree, through one expat parser that lasts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from xep.stream import careful
from xep.stream.errors import StreamError

CANONICAL: Final = "{jabber:client}"

# Every new name of an element, attribute or prefix stays in expat's tables as long as the parser
# lives, so a peer could fill the memory with names. A new parser costs as much as a few stanzas.
_RENEW_AFTER: Final = 128 * 1024  # bytes


class Forest:
    """Parses what stands between a stream header and the end of its stream.

    What it is fed ends with an element, or at least with whole tags. So the namespaces of the
    header always hold, and reparse deferral (expat 2.6 and later) has nothing to hold back.
    """

    __slots__ = ("_builder", "_content", "_fed", "_foreign", "_header", "_parser", "_root")

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
        self._foreign = frozenset("{" + name for name in names)
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
        """So many elements that end with `data`; None, and a new parser, if it is anything else."""
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

        It ends anywhere but inside a tag, a reference or CDATA. False if expat refuses it; the
        parser is then as it was before the element.
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
        """Do without the element of which parts were parsed."""
        self._renew()

    def _make_canonical(self, data: bytes, elements: list[Element]) -> None:
        # A namespace can be written with references to its characters, too.
        if not (b"&" in data and b"&#" in data) and not any(map(data.__contains__, self._content)):
            return
        for first in elements:
            for element in (first, *first):
                # A namespace can hold a brace; a local name cannot.
                namespace, _, local = element.tag.rpartition("}")
                if namespace in self._foreign:
                    element.tag = CANONICAL + local

    def feed_one(self, data: bytes, ahead: int = 0) -> Element:
        """Parse one element, of which so many bytes were parsed by `feed_ahead`.

        Raises `StreamError` if it is not one, saying in which way.
        """
        if not ahead:
            self._make_room(len(data))
        elements = self._parsed(data[ahead:], 1)
        if elements is None:
            elements = [careful.parse(self._header, data)]
        self._make_canonical(data, elements)
        return elements[0]

    def read_start_tag(self, tag: bytes) -> tuple[str | None, Mapping[str, str]]:
        """The name and the attributes of a start tag without the rest of its element.

        Where only its namespaces are at fault, those of the attributes that have no prefix are told
        all the same. The name is None, and the attributes are empty, if it cannot be read.
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
        if default is None:  # that of the header; only an x is left out of the whole name
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
