"""A declaration that makes no sense is refused when first used, and says which field is wrong."""

from enum import Enum
from typing import Annotated, Any, Literal

import pytest

from xep.binding import (
    Attr,
    Child,
    DeclarationError,
    Flag,
    Name,
    Payload,
    Text,
    TextChild,
    decode,
    encode,
)
from xep.binding.declaration import read_plan


class Inner(Payload, frozen=True, kw_only=True):
    xml = Name("urn:test", "inner")


class Number(Enum):
    ONE = 1


def declare(declared: Any, *default: Any) -> type[Payload]:
    namespace: dict[str, Any] = {"__annotations__": {"wrong": declared}, "__module__": __name__}
    if default:
        namespace["wrong"] = default[0]
    namespace["xml"] = Name("urn:test", "outer")
    return type(Payload)("Outer", (Payload,), namespace, frozen=True, kw_only=True)


@pytest.mark.parametrize(
    ("declared", "default", "reason"),
    [
        (str, (), "has no marker"),
        (Annotated[str, "a comment"], (), "has no marker"),
        (Annotated[complex, Attr()], (), "no text can be converted"),
        (Annotated[dict[str, str], Text()], (), "no text can be converted"),
        (Annotated[Literal[1, 2], Attr()], (), "no text can be converted"),
        (Annotated[Number, Attr()], (), "no text can be converted"),
        (Annotated[tuple[str, ...], Attr()], (), "cannot repeat"),
        (Annotated[tuple[str, ...], Text()], (), "cannot repeat"),
        (Annotated[tuple[str, int], TextChild()], (), "no text can be converted"),
        (Annotated[str, Child()], (), "not a Payload"),
        (Annotated[Inner | str, Child()], (), "not a Payload"),
        (Annotated[str, Flag()], (), "must be bool"),
        (Annotated[bool | None, Flag()], (None,), "must be bool"),
        (Annotated[bool, Flag()], (), "needs the default False"),
        (Annotated[bool, Flag()], (True,), "needs the default False"),
        (Annotated[str | None, Text()], (None,), "look the same"),
        (Annotated[bytes | None, Text()], (None,), "look the same"),
        (Annotated[str, Text()], ("something",), "look the same"),
        (Annotated[str | None, Attr()], (), "needs the default None"),
        (Annotated[str | None, Attr()], ("x",), "needs the default None"),
        (Annotated[int | None, TextChild()], (1,), "needs the default None"),
        (Annotated[tuple[str, ...], TextChild()], (("x",),), "only default is ()"),
        (Annotated[tuple[Inner, ...], Child()], ((Inner(),),), "only default is ()"),
        (Annotated[str, TextChild(at_least=1)], (), "occurs once"),
        (Annotated[Inner | None, Child(at_most=2)], (None,), "occurs once"),
        (Annotated[tuple[Inner, ...], Child(at_least=2, at_most=1)], (), "at least 2"),
        (Annotated[str, Attr("two words")], (), "not an XML name"),
        (Annotated[str, TextChild("<x>")], (), "not an XML name"),
    ],
)
def test_refused_with_the_name_of_the_field(declared: Any, default: Any, reason: str) -> None:
    cls = declare(declared, *default)
    with pytest.raises(DeclarationError, match=r"Outer\.wrong") as refused:
        read_plan(cls)
    assert reason in str(refused.value)


def test_two_fields_with_one_name_are_both_named() -> None:
    class Twice(Payload, frozen=True, kw_only=True):
        xml = Name("urn:test", "twice")

        first: Annotated[str, Attr("name")]
        second: Annotated[str, Attr("name")]

    class Overlap(Payload, frozen=True, kw_only=True):
        xml = Name("urn:test", "overlap")

        payload: Annotated[Inner | None, Child()] = None
        inner: Annotated[str | None, TextChild()] = None

    with pytest.raises(DeclarationError, match=r"Twice\.second claims name.*first"):
        read_plan(Twice)
    with pytest.raises(DeclarationError, match=r"Overlap\.inner claims .*payload"):
        read_plan(Overlap)


def test_an_attribute_and_a_child_may_share_a_name() -> None:
    class Shared(Payload, frozen=True, kw_only=True):
        xml = Name("urn:test", "shared")

        attribute: Annotated[str, Attr("name")]
        child: Annotated[str, TextChild("name")]

    assert encode(Shared(attribute="a", child="c")) == (
        "<shared xmlns='urn:test' name='a'><name>c</name></shared>"
    )


def test_there_is_one_text() -> None:
    class Double(Payload, frozen=True, kw_only=True):
        xml = Name("urn:test", "double")

        one: Annotated[str, Text()]
        two: Annotated[str, Text()]

    with pytest.raises(DeclarationError, match=r"Double\.two is a second"):
        read_plan(Double)


@pytest.mark.parametrize("name", [None, Name("", "x"), Name("urn:test", "a b")])
def test_an_element_needs_a_qualified_name(name: Name | None) -> None:
    class Nameless(Payload, frozen=True, kw_only=True):
        if name is not None:
            xml = name

    with pytest.raises(DeclarationError, match="Nameless"):
        read_plan(Nameless)


class Egg(Payload, frozen=True, kw_only=True):
    xml = Name("urn:test", "egg")

    hens: Annotated[tuple["Hen", ...], Child()] = ()


class Hen(Payload, frozen=True, kw_only=True):
    xml = Name("urn:test", "hen")

    egg: Annotated[Egg | Inner | None, Child()] = None


@pytest.mark.parametrize("cls", [Egg, Hen])
def test_no_payload_can_hold_itself(cls: type[Payload]) -> None:
    # Its decoder would recurse as deep as a peer nests the element.
    with pytest.raises(DeclarationError, match=f"{cls.__name__} can hold itself"):
        read_plan(cls)


def test_the_error_comes_when_the_class_is_first_used() -> None:
    cls = declare(str)
    with pytest.raises(DeclarationError):
        encode(cls(wrong="x"))
    from xml.etree.ElementTree import Element

    with pytest.raises(DeclarationError):
        decode(cls, Element("{urn:test}outer"))
