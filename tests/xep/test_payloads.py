"""What holds for every Payload class there is: the laws of the binding, over all declarations."""

import copy
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.xep.strategies import PAYLOADS, elements, holds_anything, names, payloads, xml_text
from xep.binding import ContentError, Payload, decode, encode
from xep.binding.declaration import read_plan

# Over two hundred classes share the budget of a few tests.
budget = examples(2, 500)
FORBIDDEN = "\x00\x08\x0b\x1f\ud800\udfff\ufffe\uffff"
"""Some characters that XML cannot carry."""
every_payload = pytest.mark.parametrize("cls", PAYLOADS, ids=lambda cls: cls.__qualname__)


def test_every_module_is_seen() -> None:
    assert len(PAYLOADS) > 40
    assert {"xep.disco", "xep.fluux_agent.execute"} <= {cls.__module__ for cls in PAYLOADS}


@every_payload
@budget
@given(data=st.data(), noise=xml_text, bad=st.sampled_from(FORBIDDEN))
def test_what_is_sent_is_read_again_whatever_is_added_to_it(
    cls: type[Payload], data: st.DataObject, noise: str, bad: str
) -> None:
    # One drawn payload shows all three: drawing it takes longer than the laws.
    sent = data.draw(payloads(cls))
    _reads_again(cls, sent)
    if not holds_anything(cls):
        _ignores_what_is_unknown_or_malformed(cls, sent, data, noise)
    _replaces_what_xml_cannot_carry(sent, bad)


@every_payload
@budget
@given(data=st.data())
def test_any_tree_decodes_to_each_payload_or_is_refused(
    cls: type[Payload], data: st.DataObject
) -> None:
    element = data.draw(elements(cls))
    try:
        decoded = decode(cls, element)
    except ContentError:
        return
    # What was decoded can be sent on, and means the same to the next one.
    assert decode(cls, ET.fromstring(encode(decoded)), strict=True) == decoded


def _reads_again(cls: type[Payload], sent: Payload) -> None:
    assert decode(cls, ET.fromstring(encode(sent)), strict=True) == sent
    # The same inside a parent of its namespace, where xmlns is left out.
    parent = ET.fromstring(f"<p xmlns='{cls.xml.namespace}'>{encode(sent, cls.xml.namespace)}</p>")
    assert decode(cls, parent[0], strict=True) == sent
    assert parent[0].tag == cls.xml.tag


def _ignores_what_is_unknown_or_malformed(
    cls: type[Payload], sent: Payload, data: st.DataObject, noise: str
) -> None:
    element = ET.fromstring(encode(sent))
    places = list(element.iter())
    place = data.draw(st.sampled_from(places))
    attribute = data.draw(st.booleans())
    if attribute:
        place.set(data.draw(st.sampled_from(["unheard-of", "{urn:test:foreign}type"])), noise)
    else:
        place.insert(data.draw(st.integers(0, len(place))), data.draw(_intruders(cls, noise)))
    try:
        assert decode(cls, element) == sent
    except ContentError:
        assert not attribute
    with pytest.raises(ContentError):
        decode(cls, element, strict=True)


def _intruders(cls: type[Payload], noise: str) -> st.SearchStrategy[ET.Element]:
    """Elements nobody declares, and declared ones that cannot be decoded."""
    unknown = ["{urn:test:foreign}x", "unheard-of", f"{{{cls.xml.namespace}}}unheard-of"]
    made: list[ET.Element] = []
    for tag in unknown:
        element = ET.Element(tag, {"id": noise})
        element.text = noise
        made.append(element)
        # One that hides a declared element a level too deep.
        hiding = ET.Element(tag)
        hiding.append(ET.fromstring(f"<x xmlns='{cls.xml.namespace}'/>"))
        hiding.extend([ET.Element(name) for name in names(read_plan(cls))[1]])
        made.append(hiding)
    made += [element for element in _malformed(cls) if element is not None]
    return st.sampled_from(made).map(copy.deepcopy)


def _malformed(cls: type[Payload]) -> list[ET.Element]:
    found = []
    for _, field in read_plan(cls).children:
        for member in field.payloads:
            element = ET.Element(member.xml.tag)
            try:
                decode(member, element)
            except ContentError:
                found.append(element)
    return found


def _replaces_what_xml_cannot_carry(sent: Payload, bad: str) -> None:
    spoilt = _spoil(sent, bad)
    if spoilt is not None:
        assert encode(spoilt) == encode(_spoil(sent, "\ufffd"))


def _spoil(payload: Payload, bad: str) -> Any:
    """``payload`` with ``bad`` in its first text; None when it has none."""
    import msgspec

    for info in msgspec.structs.fields(payload):
        value = getattr(payload, info.name)
        if type(value) is str and "Literal" not in str(info.type):
            return msgspec.structs.replace(payload, **{info.name: value + bad})
    return None
