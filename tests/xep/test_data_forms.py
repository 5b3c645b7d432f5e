"""XEP-0004: typed values in and out, and an example of the document."""

import contextlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xep.strategies import SCALARS, payloads
from xep.binding import ContentError, decode, encode
from xep.data_forms import Field, Form, Item, Option, Reported, field, form_type_field
from xep.jid import JID

KINDS = [str, bool, int, float, Decimal, datetime, JID]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_typed_values_read_back(kind: Any, data: st.DataObject) -> None:
    value = data.draw(SCALARS[kind])
    form = Form(type="submit", fields=(field("x", value),))
    received = decode(Form, ET.fromstring(encode(form)), strict=True)
    assert received.read("x", kind) == value


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_lists_of_typed_values_read_back(kind: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(SCALARS[kind], max_size=3))
    assert field("x", values).read_all(kind) == tuple(values)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_any_field_reads_or_is_refused(kind: Any, data: st.DataObject) -> None:
    found = data.draw(payloads(Field))
    with contextlib.suppress(ContentError):
        found.read_all(kind)
        found.read(kind)


def test_a_field_without_a_value_reads_as_none() -> None:
    assert field("x").read(int) is None
    assert Field(var="x", values=("",)).read(int) is None
    assert Field(var="x", values=("",)).read(str) == ""
    assert Form(type="submit").read("x", str) is None


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (Field(var="x", values=("seven",)), int),
        (Field(var="x", values=("yes",)), bool),
        (Field(var="x", values=("@",)), JID),
        (Field(var="x", values=("1", "2")), int),
    ],
)
def test_a_value_that_does_not_fit_names_its_field(found: Field, kind: Any) -> None:
    with pytest.raises(ContentError, match="x: "):
        found.read(kind)


def test_lines_become_values() -> None:
    assert field("x", "a\r\nb\n\nc\u2028d", type="text-multi").values == ("a", "b", "", "c\u2028d")
    assert field("x", "a\nb").values == ("a\nb",)


@pytest.mark.parametrize("value", [float("nan"), datetime(2026, 1, 1)])  # noqa: DTZ001 - refused
def test_a_form_field_refuses_nan_and_a_time_without_a_zone(value: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        field("x", value)


def test_a_value_of_no_known_type_is_refused() -> None:
    with pytest.raises(ValueError, match="no text for a complex"):
        field("x", 1j)  # type: ignore[arg-type]


def test_the_form_type_is_the_value_of_its_field() -> None:
    assert Form(type="form", fields=(form_type_field("jabber:bot"),)).form_type == "jabber:bot"
    assert Form(type="form").form_type is None
    assert Form(type="form", fields=(Field(var="FORM_TYPE"),)).form_type is None


def test_a_form_as_xep_0004_writes_it() -> None:
    xml = """
    <x xmlns='jabber:x:data' type='form'>
      <title>Bot Configuration</title>
      <instructions>Fill out this form to configure your new bot!</instructions>
      <field type='hidden' var='FORM_TYPE'><value>jabber:bot</value></field>
      <field type='fixed'><value>Section 1: Bot Info</value></field>
      <field type='text-single' label='The name of your bot' var='botname'/>
      <field type='boolean' label='Public bot?' var='public'><required/></field>
      <field type='list-single' label='Maximum number of subscribers' var='maxsubs'>
        <value>20</value>
        <option label='10'><value>10</value></option>
        <option label='None'><value>none</value></option>
      </field>
    </x>"""
    form = decode(Form, ET.fromstring(xml), strict=True)
    assert form.form_type == "jabber:bot"
    assert form.title == "Bot Configuration"
    assert form.fields[1] == Field(type="fixed", values=("Section 1: Bot Info",))
    public = form.field("public")
    assert public is not None
    assert public.required
    assert form.read("maxsubs", int) == 20
    assert form.fields[4].options == (
        Option(label="10", value="10"),
        Option(label="None", value="none"),
    )


def test_a_table_reads_in_any_order() -> None:
    xml = """
    <x xmlns='jabber:x:data' type='result'>
      <item><field var='name'><value>Comune di Verona</value></field></item>
      <reported><field var='name' label='Name' type='text-single'/></reported>
      <item><field var='name'><value/></field></item>
    </x>"""
    form = decode(Form, ET.fromstring(xml), strict=True)
    assert form.reported == Reported(fields=(Field(var="name", label="Name", type="text-single"),))
    assert form.items == (
        Item(fields=(Field(var="name", values=("Comune di Verona",)),)),
        Item(fields=(Field(var="name", values=("",)),)),
    )


def test_a_field_of_an_unknown_type_is_kept() -> None:
    xml = "<x xmlns='jabber:x:data' type='form'><field var='x' type='new-type'/></x>"
    assert decode(Form, ET.fromstring(xml)).fields[0].type == "new-type"
    with pytest.raises(ContentError, match="expected one of form, submit, cancel, result"):
        decode(Form, ET.fromstring("<x xmlns='jabber:x:data' type='error'/>"))


def test_a_time_and_a_boolean_become_values_of_a_field() -> None:
    assert field("at", datetime(2026, 2, 8, 19, tzinfo=UTC)).values == ("2026-02-08T19:00:00Z",)
    assert field("yes", value=True).values == ("true",)


def test_a_form_without_a_type_was_submitted_and_each_is_written_with_one() -> None:
    form = decode(Form, ET.fromstring("<x xmlns='jabber:x:data'/>"), strict=True)
    assert form.type == "submit"
    assert ET.fromstring(encode(form)).get("type") == "submit"
