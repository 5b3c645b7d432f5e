"""The stanzas exchanged in a check, as a script that a person can read and a driver can replay."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree.ElementTree import Element, ParseError, fromstring

from conformance.drivers import Cast

LONGEST = 4096
"""Characters of one stanza that are recorded; attacks are large, and nobody reads all of them."""


@dataclass(frozen=True)
class RecordedStanza:
    """One stanza: ``out`` was sent to the target, ``in`` was received from it; ``at`` is in
    seconds.
    """

    way: Literal["out", "in"]
    at: float
    xml: str

    @property
    def short(self) -> str:
        """Return the stanza, truncated if it is long."""
        if len(self.xml) <= LONGEST:
            return self.xml
        left = len(self.xml) - LONGEST
        return f"{self.xml[:LONGEST]}… ({left} characters more)"

    @property
    def pretty(self) -> str:
        """Return the stanza over several lines if it can be parsed; otherwise unchanged."""
        if len(self.xml) > LONGEST:
            return self.short
        try:
            # Written by the kit, or received through a stream that refuses DTDs.
            return "\n".join(_lines(fromstring(self.xml), "", ""))  # noqa: S314
        except ParseError:
            return self.xml


class Record:
    """The entries of one check, in order.

    Args:
        cast: the addresses that it used.
    """

    def __init__(self, cast: Cast | None = None) -> None:
        self.cast = cast
        self._entries: list[RecordedStanza] = []

    def add(self, way: Literal["out", "in"], at: float, xml: str) -> None:
        """Note one stanza."""
        self._entries.append(RecordedStanza(way, at, xml))

    @property
    def entries(self) -> Sequence[RecordedStanza]:
        """The exchanged stanzas, in order."""
        return self._entries

    def script(self) -> str:
        """Return everything as text: ``>>>`` before sent stanzas, ``<<<`` before received ones."""
        parts = [
            f"{'>>>' if entry.way == 'out' else '<<<'} {entry.at:.3f} s\n{entry.pretty}\n"
            for entry in self._entries
        ]
        return "\n".join(parts)


def _lines(element: Element, indent: str, namespace: str) -> list[str]:
    """Return an element with a line for each that has children."""
    own, _, local = element.tag[1:].rpartition("}") if element.tag[:1] == "{" else ("", "", "")
    local = local or element.tag
    head = f"{indent}<{local}"
    if own != namespace:
        head += f" xmlns='{own}'"
    counter = itertools.count()
    for name, value in element.items():
        spelled = name
        if name.rpartition("}")[0] == "{http://www.w3.org/XML/1998/namespace":
            spelled = "xml:" + name.rpartition("}")[2]
        elif name[:1] == "{":
            prefix = f"n{next(counter)}"
            head += f" xmlns:{prefix}='{_quoted(name[1:].rpartition('}')[0])}'"
            spelled = f"{prefix}:{name.rpartition('}')[2]}"
        head += f" {spelled}='{_quoted(value)}'"
    text = _text(element.text or "")
    if not len(element):
        return [f"{head}>{text}</{local}>" if text else f"{head}/>"]
    lines = [head + ">" + text.strip()]
    for child in element:
        lines += _lines(child, indent + "  ", own)
        if (child.tail or "").strip():
            lines.append(indent + "  " + _text(child.tail or "").strip())
    return [*lines, f"{indent}</{local}>"]


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _quoted(text: str) -> str:
    return _text(text).replace("'", "&apos;").replace("\n", "&#10;").replace("\t", "&#9;")
