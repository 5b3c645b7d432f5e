"""The XML Schemas and the payload classes describe one protocol."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

import protocol_schemas
from tests.profiles import examples
from tests.schemas import FOLDER, check, schema
from tests.xep.fluux_agent.fitting import FITTING
from tests.xep.strategies import PAYLOADS, payloads
from xep.binding import Payload, encode
from xep.binding.declaration import Flag, TextChild, read_plan
from xep.fluux_agent import NAMESPACE

XS = "{http://www.w3.org/2001/XMLSchema}"
OURS = [cls for cls in PAYLOADS if cls.xml.namespace.startswith(f"{NAMESPACE}#")]
# Types that have no element of their own in the schemas: they stand in one place only.
TOP = {
    element.get("name")
    for name in protocol_schemas.NAMESPACES.values()
    for element in ET.parse(FOLDER / name).getroot().findall(f"{XS}element")
}
budget = examples(3, 500)


def test_every_namespace_has_one_and_every_file_is_one() -> None:
    for namespace in protocol_schemas.NAMESPACES:
        root = ET.fromstring(protocol_schemas.xsd(namespace))
        assert root.get("targetNamespace") == namespace
    named = {*protocol_schemas.NAMESPACES.values(), "xml.xsd"}
    assert {path.name for path in FOLDER.glob("*.xsd")} == named
    assert {cls.xml.namespace for cls in OURS} == set(protocol_schemas.NAMESPACES)
    with pytest.raises(KeyError):
        protocol_schemas.xsd(NAMESPACE)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.xsd")), ids=lambda path: path.name)
def test_each_file_stands_alone(path: Path) -> None:
    etree.XMLSchema(file=str(path))


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: f"{cls.xml.namespace[18:]}-{cls.__name__}")
@budget
@given(data=st.data())
def test_what_is_written_is_valid(cls: type[Payload], data: st.DataObject) -> None:
    xml = encode(data.draw(payloads(cls, 3, FITTING)))
    if cls.xml.local in TOP:
        assert check(xml) == 1


def _declared(namespace: str) -> dict[str, tuple[set[str], set[str]]]:
    """The attributes and children that a schema gives to each of its elements."""
    root = ET.fromstring(protocol_schemas.xsd(namespace))
    types = {one.get("name"): one for one in root.findall(f"{XS}complexType")}
    found: dict[str, tuple[set[str], set[str]]] = {}
    for element in root.iter(f"{XS}element"):
        name = element.get("name")
        if name is None:
            continue
        body = types.get(element.get("type"), element)
        attributes = {str(one.get("name") or one.get("ref")) for one in body.iter(f"{XS}attribute")}
        inside = body.findall(f".//{XS}sequence/*") + body.findall(f".//{XS}choice/*")
        children = {
            str(one.get("name") or one.get("ref")).rpartition(":")[2]
            for one in inside
            if one.tag == f"{XS}element"
        }
        if attributes or children or name not in found:
            found[name] = attributes, children
    return found


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: f"{cls.xml.namespace[18:]}-{cls.__name__}")
def test_both_know_the_same_names(cls: type[Payload]) -> None:
    attributes, children = _declared(cls.xml.namespace)[cls.xml.local]
    plan = read_plan(cls)
    assert {field.local for field in plan.attributes} == attributes
    known: set[str] = set()
    for marker, field in plan.children:
        if isinstance(marker, TextChild | Flag):
            known.add(field.local)
        known |= {one.xml.local for one in field.payloads if _is_ours(one)}
    if cls.__name__ == "Failure":  # its conditions are a group of the schema of errors
        known &= {"text", "receipt"}
    assert known == children


def _is_ours(payload: Any) -> bool:
    return bool(payload.xml.namespace.startswith(f"{NAMESPACE}#"))


@pytest.mark.parametrize(
    "xml",
    [
        "<execute xmlns='urn:fluux:agent:0#execute'/>",
        "<execute xmlns='urn:fluux:agent:0#execute' skill='s' mode='later'/>",
        "<execute xmlns='urn:fluux:agent:0#execute' skill='s' request='a b'/>",
        "<execute xmlns='urn:fluux:agent:0#execute' skill='s'><unheard-of/></execute>",
        "<task xmlns='urn:fluux:agent:0#task' id='a' revision='-1'/>",
        "<task xmlns='urn:fluux:agent:0#task' id='a'><progress fraction='1.5'/></task>",
        "<task xmlns='urn:fluux:agent:0#task' id='a'><failure/></task>",
        "<answer xmlns='urn:fluux:agent:0#task' task='a' input='b' revision='1'/>",
        "<memory xmlns='urn:fluux:agent:0#memory' key=''><content/></memory>",
        "<delegation xmlns='urn:fluux:agent:0#delegation' origin='a@b' max-hops='1'/>",
        "<iq><error><invalid-param xmlns='urn:fluux:agent:0#errors'/></error></iq>",
    ],
)
def test_what_does_not_fit_is_told(xml: str) -> None:
    with pytest.raises(AssertionError):
        check(xml)


def test_what_is_not_ours_is_not_judged() -> None:
    assert check("<iq><query xmlns='jabber:iq:version'/></iq>") == 0
    assert schema() is schema()
