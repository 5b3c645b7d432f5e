"""What a caller receives, as text that is the same in each run."""

import re
from collections.abc import Iterable
from typing import Final
from xml.etree import ElementTree as ET

from tests.servers.clients import Element

_ADDED: Final = (
    "{urn:xmpp:sid:0}stanza-id",
    "{urn:xmpp:mam:tmp}archived",
    "{http://www.w3.org/XML/1998/namespace}lang",
)
"""What some servers add to a stanza."""
_HASH: Final = "{urn:xmpp:hashes:2}hash"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_RESOURCE: Final = re.compile(r"(?<=juliet@localhost)/[^\"'<]+")
_ID: Final = re.compile(r"\b[0-9a-f]{32}\b")
"""Ids and keys."""


class History:
    """What has happened, without what differs in each run: times, ids and resources."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[str, str] = {}

    def stanza(self, label: str, stanza: Element) -> None:
        """Note a stanza that the caller has received."""
        self.line(label, _plain(stanza))

    def besides(self, stanzas: Iterable[Element]) -> None:
        """Note messages whose order does not matter."""
        texts = [self._named(_plain(stanza)) for stanza in stanzas]
        self.lines += [f"besides: {text}" for text in sorted(texts)]

    def line(self, label: str, text: str) -> None:
        """Note a text."""
        self.lines.append(f"{label}: {self._named(text)}")

    def _named(self, text: str) -> str:
        text = _RESOURCE.sub("/RESOURCE", _TIME.sub("TIME", text))
        return _ID.sub(lambda m: self._names.setdefault(m[0], f"#{len(self._names) + 1}"), text)


def _plain(stanza: Element) -> str:
    copy = ET.fromstring(ET.tostring(stanza))
    copy.attrib.pop("id", None)
    if copy.get("type") == "normal":
        del copy.attrib["type"]
    for element in copy.iter():
        element.attrib.pop("duration-ms", None)
        if element.tag == _HASH:
            element.text = "DIGEST"
        for name in _ADDED:
            element.attrib.pop(name, None)
            for added in element.findall(name):
                element.remove(added)
    # ejabberd changes the order of what it knows.
    copy[:] = sorted(copy, key=lambda child: child.tag)
    return ET.canonicalize(ET.tostring(copy, "unicode"))
