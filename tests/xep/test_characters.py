"""Texts are made fit for XML, and what XML can carry stays as it is."""

from xml.etree import ElementTree as ET

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from xep.binding.escaping import escape_attribute, escape_text
from xep.characters import json_without_forbidden, without_forbidden

TEXTS = st.text(
    st.one_of(st.characters(), st.sampled_from("\x00\x01\x1b\ud800\udfff\ufffe\uffff\r<"))
)


@given(TEXTS)
@example("a\x00\x08\x0b\x0c\x1f\ud800\udfff\ufffe\uffffb")
def test_every_text_can_be_sent_and_is_read_back_fit(text: str) -> None:
    fit = without_forbidden(text)
    read = ET.fromstring(f"<x a='{escape_attribute(text)}'>{escape_text(text)}</x>")
    assert read.get("a") == fit
    assert (read.text or "") == fit
    assert len(fit) == len(text)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")))
def test_what_xml_can_carry_stays(text: str) -> None:
    assert without_forbidden(text) == text


@given(st.recursive(st.text(), st.lists) | st.dictionaries(st.text(), st.text()))
@example("\x00\ufffe\uffff")
def test_json_that_is_made_fit_has_the_same_value(value: object) -> None:
    text = msgspec.json.encode(value).decode()
    fit = json_without_forbidden(text)
    assert without_forbidden(fit) == fit
    assert msgspec.json.decode(fit) == value


def test_a_raw_control_character_in_json_is_escaped_and_half_a_pair_replaced() -> None:
    assert json_without_forbidden('"\x01\ud800"') == '"\\u0001\ufffd"'
