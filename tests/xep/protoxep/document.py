"""The specification, read for the tests."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import protocol_schemas
import xep

PATH = Path(xep.__file__).parent / "protoxep" / "urn-fluux-agent-0.xml"
REQUIREMENTS = Path(protocol_schemas.__file__).parent / "requirements.toml"
ID = re.compile(r"[A-Z][A-Z0-9]{2}-[0-9]{3}")
KEYWORD = re.compile(
    r"\b(?:MUST NOT|SHALL NOT|SHOULD NOT|NOT RECOMMENDED"
    r"|MUST|SHALL|SHOULD|MAY|REQUIRED|RECOMMENDED|OPTIONAL)\b"
)


def document() -> ET.Element:
    """The document; the XSF's legal notice, which is an entity of its own, is left empty."""
    parser = ET.XMLParser()
    parser.entity["LEGALNOTICE"] = ""
    return ET.parse(PATH, parser).getroot()


def words(element: ET.Element) -> str:
    """The text of an element on one line."""
    return " ".join("".join(element.itertext()).split())


def sentences(root: ET.Element, section: str = "") -> Iterator[tuple[str, str, str]]:
    """The identifier, section and text of each normative sentence, in order."""
    if root.tag.startswith("section"):
        section = root.get("anchor", "")
    if root.tag == "span":
        yield root.get("class", ""), section, words(root)
    for child in root:
        yield from sentences(child, section)


def elsewhere(root: ET.Element) -> Iterator[str]:
    """The texts outside normative sentences, examples and code."""
    if root.tag not in ("span", "example", "code"):
        yield root.text or ""
        for child in root:
            yield from elsewhere(child)
            yield child.tail or ""


def requirements() -> list[dict[str, Any]]:
    """The rows of the table of requirements."""
    found: list[dict[str, Any]] = tomllib.loads(REQUIREMENTS.read_text("utf-8"))["requirement"]
    return found


def examples() -> list[tuple[str, str]]:
    """The caption and text of each example."""
    return [(one.get("caption", ""), one.text or "") for one in document().iter("example")]
