"""Holds what is on the wire against the XML Schemas of ``protocol_schemas``."""

import functools
from pathlib import Path

from lxml import etree

import protocol_schemas

FOLDER = Path(protocol_schemas.__file__).parent
_OURS = "{urn:fluux:agent:0#"


@functools.cache
def schema() -> etree.XMLSchema:
    """All the schemas as one."""
    imports = "".join(
        f"<xs:import namespace='{namespace}' schemaLocation='{name}'/>"
        for namespace, name in protocol_schemas.NAMESPACES.items()
    )
    xml = f"<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{imports}</xs:schema>"
    # The base address is where the files that it names are found.
    return etree.XMLSchema(etree.fromstring(xml, base_url=str(FOLDER / "all.xsd")))


def outermost(element: etree._Element) -> list[etree._Element]:
    """The elements of urn:fluux:agent:0 in a tree; not those that stand inside one of them."""
    if not isinstance(element.tag, str):
        return []
    if element.tag.startswith(_OURS):
        return [element]
    return [found for child in element for found in outermost(child)]


def check(xml: str | bytes) -> int:
    """Validate each element of this protocol in ``xml``, and say how many there were.

    Raises:
        AssertionError: one does not fit; the text says where.
    """
    if isinstance(xml, str):
        xml = xml.encode()
    if b"urn:fluux:agent:0#" not in xml:
        return 0
    parser = etree.XMLParser(huge_tree=True, resolve_entities=False)
    found = outermost(etree.fromstring(xml, parser))
    validator = schema()
    for element in found:
        # A tree of its own: libxml2 validates from the root.
        alone = etree.fromstring(etree.tostring(element, with_tail=False), parser)
        if not validator.validate(alone):
            reasons = "; ".join(entry.message for entry in validator.error_log)
            raise AssertionError(f"{reasons}\n{etree.tostring(alone).decode()}")
    return len(found)
