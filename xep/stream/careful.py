"""Parses again, one element at a time, what the fast parser of `tree` refuses.

ElementTree has expat join namespace and name with `}`, which a namespace may contain: expat then
refuses well-formed XML. Here they are joined with a form feed, which XML does not allow in any form
(XML 1.0 §2.2). It takes twice the time, so it is used only for refused input.
"""

import re
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from xep.stream.errors import StreamError

_SEPARATOR: Final = "\f"

# CDATA, or a tag: whether it ends an element, its name, and whether it is empty.
_MARKUP: Final = re.compile(
    rb"[^<]*+(?:<!\[CDATA\[(?s:.*?)\]\]>|"
    rb"<(?P<end>/?)(?P<name>[^ \t\r\n/<>\"']*+)"
    rb"(?:[^<>\"']*+(?:\"[^\"<]*+\"|'[^'<]*+'))*[^<>\"']*?(?P<empty>/?)>)"
)


def parse(header: bytes, data: bytes) -> Element:
    """Parse one element within `header`, a start tag that was accepted before.

    Raises `StreamError` with the condition of RFC 6120 §4.9.3 and the parser's reason, which quotes
    nothing of the data.
    """
    builder = TreeBuilder()
    parser = expat.ParserCreate("utf-8", _SEPARATOR)
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        builder.start(_clark(name), {_clark(key): value for key, value in attributes.items()})

    def end(name: str) -> None:
        builder.end(_clark(name))

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(header, False)
        root = builder.close()
        parser.Parse(data, False)
    except expat.ExpatError as error:
        raise refusal(error.code, data) from None
    if len(root) != 1:
        raise StreamError("not-well-formed", "The XML is not well-formed: it is not an element.")
    return root[0]


def parse_head(tag: bytes) -> tuple[str, dict[str, str]] | None:
    """Return the name and the attributes of an empty element, as written, including prefixes."""
    found: list[tuple[str, dict[str, str]]] = []
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = lambda name, attributes: found.append((name, attributes))
    try:
        parser.Parse(tag, True)
    except expat.ExpatError:
        return None
    return found[0]


def is_one_element(data: bytes) -> bool:
    """Return whether every start tag in `data` has an end tag of the same name, the first one the
    last.

    If so, all parsers agree about where the element ends, whatever else is wrong with it.
    """
    names: list[bytes] = []
    pos, length = 0, len(data)
    while pos < length:
        found = _MARKUP.match(data, pos)
        if found is None:
            return False
        pos = found.end()
        name = found["name"]
        if name is not None and found["end"]:
            if not names or names.pop() != name:
                return False
        elif name is not None and not found["empty"]:
            names.append(name)
        if not names:
            return pos == length
    return False


def refusal(code: int, data: bytes) -> StreamError:
    """Return the condition of RFC 6120 §4.9.3 for expat's refusal of `data`."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return StreamError("unsupported-encoding", "The XML is not UTF-8.")
    reason = expat.ErrorString(code) or "unknown error"
    return StreamError("not-well-formed", f"The XML is not well-formed: {reason}.")


def _clark(name: str) -> str:
    """Return `{namespace}local` for a name that expat has joined."""
    return "{" + name.replace(_SEPARATOR, "}") if _SEPARATOR in name else name
