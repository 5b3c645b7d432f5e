"""Writes a parsed element as text again, unchanged."""

import functools
import re
from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from xep.binding.declaration import XML_NAMESPACE
from xep.binding.errors import EncodingError
from xep.binding.escaping import escape_attribute, escape_text

_XMLNS: Final = "http://www.w3.org/2000/xmlns/"
# A name without a colon (XML 1.0 §2.3, Namespaces in XML 1.0 §3).
_START: Final = (
    "A-Z_a-z\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)


@functools.cache
def _name() -> re.Pattern[str]:
    # Compiled when the first element is written again: it takes 10 milliseconds.
    return re.compile(f"[{_START}][{_START}0-9.\xb7\u0300-\u036f\u203f-\u2040-]*")


def write(
    element: Element,
    parent_namespace: str | None = "",
    attributes: Mapping[str, str] | None = None,
) -> str:
    """Return ``element`` with all its content as XML text, for a position where
    ``parent_namespace`` is the default namespace. Its tail belongs to its parent and is omitted.

    It does not recurse, so the depth of elements is not limited.

    Args:
        element: the element.
        parent_namespace: the namespace that need not be declared; None if the text may be used
            anywhere, so that every namespace is declared.
        attributes: replace the element's own, if given.

    Raises:
        EncodingError: a name is not an XML name, which no parsed element has.
    """
    xml: list[str] = []
    # The parts still to be written, the next one last: text, and elements with their context.
    todo: list[str | tuple[Element, str | None]] = [(element, parent_namespace)]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            xml.append(item)
            continue
        current, around = item
        own = attributes if current is element and attributes is not None else current.attrib
        name, head, inside = _head(current.tag, own, around)
        text = current.text or ""
        if not text and not len(current):
            xml.append(f"<{head}/>")
            continue
        xml.append(f"<{head}>{escape_text(text)}")
        todo.append(f"</{name}>")
        for child in reversed(current):
            if child.tail:
                todo.append(escape_text(child.tail))
            todo.append((child, inside))
    return "".join(xml)


def _head(
    tag: str, attributes: Mapping[str, str], around: str | None
) -> tuple[str, str, str | None]:
    """Return the written name, the inside of the start tag, and the default namespace within it."""
    namespace, local = _split(tag)
    name = local
    inside: str | None = namespace
    declared = "" if namespace == around else f" xmlns='{escape_attribute(namespace)}'"
    if namespace == XML_NAMESPACE:  # only its own prefix may stand for it
        name, inside, declared = f"xml:{local}", around, ""
    head = name + declared
    for count, (key, value) in enumerate(attributes.items()):
        of, spelled = _split(key)
        if of == XML_NAMESPACE:
            spelled = f"xml:{spelled}"
        elif of:
            head += f" xmlns:n{count}='{escape_attribute(of)}'"
            spelled = f"n{count}:{spelled}"
        head += f" {spelled}='{escape_attribute(value)}'"
    return name, head, inside


def _split(name: str) -> tuple[str, str]:
    """Return namespace and local name of a name in Clark notation; a namespace may
    contain braces.
    """
    namespace, brace, local = name.rpartition("}")
    if not _name().fullmatch(local) or (brace and namespace[:1] != "{") or namespace[1:] == _XMLNS:
        raise EncodingError(f"{name[:100]!a} is not an XML name")
    return namespace[1:], local
