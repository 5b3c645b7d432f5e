"""An element as a tree of values, for payloads without a declaration."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final
from xml.etree.ElementTree import Element, ParseError, fromstring

import msgspec

from xep.binding import ContentError, RawXML

_DIGEST: Final = 32
"""Characters of a digest."""


class Tree(msgspec.Struct, frozen=True):
    """An element.

    Attributes:
        namespace: its namespace; empty if it has none.
        local: its local name.
        attributes: the attributes, by local name.
        text: its own character data and that of all elements in it, in the order of the document.
        children: the elements in it.
    """

    namespace: str
    local: str
    attributes: Mapping[str, str]
    text: str
    children: tuple["Tree", ...] = ()

    def find(self, namespace: str, local: str) -> "Tree | None":
        """Return the first child with this name, or None."""
        for child in self.children:
            if child.local == local and child.namespace == namespace:
                return child
        return None

    def walk(self) -> Iterator["Tree"]:
        """Yield the element and all elements in it, in the order of the document."""
        yield self
        for child in self.children:
            yield from child.walk()


def tree_of(raw: RawXML) -> Tree:
    """An element that was kept, as a tree. Raises ContentError if its text is not XML."""
    return _tree(_parsed(raw))


def tree_and_digest(raw: RawXML) -> tuple[Tree, str]:
    """As `tree_of`, with a digest that does not depend on prefixes and the order of attributes."""
    element = _parsed(raw)
    content = msgspec.json.encode(_content(element))
    return _tree(element), sha256(content).hexdigest()[:_DIGEST]


def _parsed(raw: RawXML) -> Element:
    try:
        # The stream's parser has refused DTDs and bounded the depth before the text was kept.
        return fromstring(raw.text)  # noqa: S314
    except ParseError as error:
        raise ContentError("payload", f"it is not XML: {error}") from error


def _content(element: Element) -> tuple[Any, ...]:
    return (
        element.tag,
        sorted(element.attrib.items()),
        element.text or "",
        [(_content(child), child.tail or "") for child in element],
    )


def _tree(element: Element) -> Tree:
    namespace, _, local = element.tag.rpartition("}")
    return Tree(
        namespace[1:],
        local,
        {name.rpartition("}")[2]: value for name, value in element.attrib.items()},
        "".join(element.itertext()),
        tuple(map(_tree, element)),
    )
