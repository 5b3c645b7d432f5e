"""The binding, marker by marker: what is written, what is read back, what is refused."""

from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xep.strategies import elements, payloads
from xep.binding import (
    Attr,
    Child,
    ContentError,
    EncodingError,
    Flag,
    Lang,
    Name,
    Payload,
    Text,
    TextChild,
    decode,
    encode,
)
from xep.jid import JID


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Leaf(Payload, frozen=True, kw_only=True):
    xml = Name("urn:test", "leaf")

    id: Annotated[int, Attr()]


class Stranger(Payload, frozen=True, kw_only=True):
    xml = Name("urn:test:elsewhere", "leaf")

    text: Annotated[str, Text()]
    lang: Lang = None


class Everything(Payload, frozen=True, kw_only=True):
    """Each marker and each conversion at least once."""

    xml = Name("urn:test", "everything")

    text_field: Annotated[str, Attr()]
    integer: Annotated[int, Attr("int")] = 7
    number: Annotated[float | None, Attr()] = None
    decimal: Annotated[Decimal, Attr(always=True)] = Decimal(0)
    truth: Annotated[bool, Attr()] = True
    stamp: Annotated[datetime | None, Attr()] = None
    address: Annotated[JID | None, Attr("from")] = None
    choice: Annotated[Literal["a", "b"], Attr()] = "a"
    colour: Annotated[Colour, Attr()] = Colour.RED
    lang: Lang = None
    own: Annotated[str, Text()] = ""
    title: Annotated[str | None, TextChild()] = None
    tags: Annotated[tuple[str, ...], TextChild("tag")] = ()
    data: Annotated[bytes | None, TextChild(namespace="urn:test:elsewhere")] = None
    json: Annotated[msgspec.Raw | None, TextChild()] = None
    flag: Annotated[bool, Flag()] = False
    far_flag: Annotated[bool, Flag("flag", "urn:test:elsewhere")] = False
    leaf: Annotated[Leaf | None, Child()] = None
    strangers: Annotated[tuple[Stranger, ...], Child(at_most=3)] = ()


class Held(Payload, frozen=True, kw_only=True):
    xml = Name("urn:test", "held")

    either: Annotated[Leaf | Stranger, Child()]
    names: Annotated[tuple[str, ...], TextChild("name", at_least=1)]


class Holder(Payload, frozen=True, kw_only=True):
    """Holds what may be malformed, a union, and a list that must have something in it."""

    xml = Name("urn:test", "holder")

    held: Annotated[tuple[Held, ...], Child(malformed="drop")] = ()
    either: Annotated[Leaf | Stranger, Child()]
    names: Annotated[tuple[str, ...], TextChild("name", at_least=1)]


class Wrapped(Payload, frozen=True, kw_only=True):
    """Text of a type that is not str."""

    xml = Name("urn:test", "wrapped")

    count: Annotated[int | None, Text()] = None


class Row(Payload, frozen=True, kw_only=True):
    """Has an attribute that must be there and children that repeat, and little else."""

    xml = Name("urn:test", "row")

    name: Annotated[str, Attr()]
    spare: Annotated[int, Attr()] = 3
    leaves: Annotated[tuple[Leaf, ...], Child()] = ()
    stranger: Annotated[Stranger | None, Child()] = None


both = pytest.mark.parametrize("cls", [Everything, Holder, Row, Wrapped])


def read(cls: type[Any], xml: str, *, strict: bool = True) -> Any:
    return decode(cls, ET.fromstring(xml), strict=strict)


@both
@given(data=st.data())
def test_an_encoded_object_decodes_to_the_same_object(
    cls: type[Payload], data: st.DataObject
) -> None:
    sent = data.draw(payloads(cls, 1))
    assert decode(cls, ET.fromstring(encode(sent)), strict=True) == sent


@both
@given(data=st.data())
def test_any_tree_decodes_to_a_declared_class_or_is_refused(
    cls: type[Payload], data: st.DataObject
) -> None:
    try:
        decoded = decode(cls, data.draw(elements(cls)))
    except ContentError:
        return
    assert decode(cls, ET.fromstring(encode(decoded))) == decoded


def test_what_is_written() -> None:
    sent = Everything(
        text_field="it's <\r\n\t\"&>",
        stamp=datetime(2026, 2, 8, 19, tzinfo=UTC),
        address=JID.parse("a@b.test/c"),
        colour=Colour.GREEN,
        lang="de",
        own="a\r\nb",
        tags=("x", ""),
        data=b"\x00\xff",
        far_flag=True,
        leaf=Leaf(id=1),
        strangers=(Stranger(text="s"),),
    )
    assert encode(sent) == (
        "<everything xmlns='urn:test' text-field='it&apos;s &lt;&#13;&#10;&#9;&quot;&amp;&gt;'"
        " decimal='0' stamp='2026-02-08T19:00:00Z' from='a@b.test/c' colour='green' xml:lang='de'>"
        "a&#13;\nb<tag>x</tag><tag></tag><data xmlns='urn:test:elsewhere'>AP8=</data>"
        "<flag xmlns='urn:test:elsewhere'/><leaf id='1'/>"
        "<leaf xmlns='urn:test:elsewhere'>s</leaf></everything>"
    )
    assert read(Everything, encode(sent)) == sent


def test_what_is_absent_is_the_default() -> None:
    assert read(Everything, "<everything xmlns='urn:test' text-field=''/>") == Everything(
        text_field=""
    )


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ("", "attribute 'text-field' is missing"),
        ("text-field='' int='7.0'", "attribute 'int': expected an integer"),
        ("text-field='' choice='c'", "attribute 'choice': expected one of a, b"),
        ("text-field='' colour='RED'", "attribute 'colour': expected one of red, green"),
    ],
)
def test_a_bad_attribute_is_named(attributes: str, reason: str) -> None:
    with pytest.raises(ContentError, match="<everything/>") as refused:
        read(Everything, f"<everything xmlns='urn:test' {attributes}/>")
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("children", "reason"),
    [
        ("", "<leaf/> or <leaf/> is missing"),
        ("<leaf id='1'/>", "needs at least 1 <name/>"),
        ("<leaf id='1'/><leaf id='2'/><name/>", "<leaf/> may stand only once"),
        ("<leaf id='1'/><leaf xmlns='urn:test:elsewhere'/><name/>", "<leaf/> may stand only once"),
        ("<leaf/><name/>", "attribute 'id' is missing"),
    ],
)
def test_missing_and_repeated_children_are_refused(children: str, reason: str) -> None:
    with pytest.raises(ContentError) as refused:
        read(Holder, f"<holder xmlns='urn:test'>{children}</holder>")
    assert refused.value.reason == reason


def test_children_above_their_maximum_number_are_refused() -> None:
    four = "<leaf xmlns='urn:test:elsewhere'/>" * 4
    with pytest.raises(ContentError, match="at most 3 <leaf/>"):
        read(Everything, f"<everything xmlns='urn:test' text-field=''>{four}</everything>")


def test_a_malformed_child_is_dropped_where_that_is_declared_and_refused_by_strictness() -> None:
    xml = (
        "<holder xmlns='urn:test'><held><leaf id='1'/></held>"
        "<held><leaf id='2'/><name>kept</name></held><leaf id='3'/><name>outer</name></holder>"
    )
    found = read(Holder, xml, strict=False)
    assert found.held == (Held(either=Leaf(id=2), names=("kept",)),)
    assert found.either == Leaf(id=3)
    assert found.names == ("outer",)
    with pytest.raises(ContentError, match="at least 1 <name/>"):
        read(Holder, xml)


@given(
    st.lists(st.sampled_from(("<leaf id='1'/>", "<leaf id='2'/>", "<other xmlns='u'/>"))),
    st.sampled_from(("", " spare='4'", " more='5'")),
    st.booleans(),
)
def test_what_repeats_is_read_whatever_stands_beside_it(
    children: list[str], more: str, strange: bool
) -> None:
    ids = [int(child[10]) for child in children if child.startswith("<leaf")]
    stranger = "<leaf xmlns='urn:test:elsewhere'>x</leaf>" if strange else ""
    xml = f"<row xmlns='urn:test' name='n'{more}>{''.join(children)}{stranger}</row>"
    assert read(Row, xml, strict=False) == Row(
        name="n",
        spare=4 if "spare" in more else 3,
        leaves=tuple([Leaf(id=each) for each in ids]),
        stranger=Stranger(text="x") if strange else None,
    )


def test_own_text_is_joined_around_children() -> None:
    xml = "<everything xmlns='urn:test' text-field=''>a<flag/>b<unknown>c</unknown>d</everything>"
    assert read(Everything, xml, strict=False).own == "abd"


@pytest.mark.parametrize(
    "xml",
    [
        "<everything xmlns='urn:test' text-field='' unknown=''/>",
        "<everything xmlns='urn:test' text-field='' xmlns:x='urn:x' x:text-field=''/>",
        "<everything xmlns='urn:test' text-field=''><unknown/></everything>",
        "<everything xmlns='urn:test' text-field=''><title xmlns='urn:x'/></everything>",
        "<everything xmlns='urn:test' text-field=''><title><b/></title></everything>",
        "<everything xmlns='urn:test' text-field=''><title x=''/></everything>",
        "<everything xmlns='urn:test' text-field=''><flag x=''/></everything>",
        "<everything xmlns='urn:test' text-field=''><leaf id='1'>text</leaf></everything>",
    ],
)
def test_the_undeclared_is_ignored_on_the_wire_and_refused_by_strictness(xml: str) -> None:
    assert read(Everything, xml, strict=False).text_field == ""
    with pytest.raises(ContentError):
        read(Everything, xml)


def test_white_space_between_children_is_nobodys_text() -> None:
    xml = "<holder xmlns='urn:test'>\n  <leaf id='1'/>\n  <name>n</name>\n</holder>"
    assert read(Holder, xml).names == ("n",)


def test_empty_text_of_another_type_is_the_default() -> None:
    assert read(Wrapped, "<wrapped xmlns='urn:test'> \n </wrapped>") == Wrapped()
    assert read(Wrapped, "<wrapped xmlns='urn:test'> 5 </wrapped>") == Wrapped(count=5)


@pytest.mark.parametrize(
    "spoilt",
    [
        Everything(text_field="", number=float("nan")),
        Everything(text_field="", decimal=Decimal("Infinity")),
        Everything(text_field="", decimal=Decimal("1e60")),
        Everything(text_field="", integer=10**19),
        Everything(text_field="", stamp=datetime(2026, 1, 1)),  # noqa: DTZ001 - what is refused
        Everything(text_field="", json=msgspec.Raw(b'"\xff"')),
    ],
)
def test_what_the_wire_cannot_carry_is_refused_when_encoding(spoilt: Payload) -> None:
    with pytest.raises(EncodingError):
        encode(spoilt)


@pytest.mark.parametrize(
    ("spoilt", "written"),
    [
        (Everything(text_field="", own="\x00"), "\ufffd"),
        (Everything(text_field="", lang="\ufffe"), "\ufffd"),
        (Everything(text_field="", tags=("fine", "\ud800")), "\ufffd"),
        (Everything(text_field="", json=msgspec.Raw('"\uffff"'.encode())), "\\uffff"),
    ],
)
def test_encoding_replaces_or_escapes_characters_that_xml_forbids(
    spoilt: Payload, written: str
) -> None:
    assert written in encode(spoilt)
    ET.fromstring(encode(spoilt))
