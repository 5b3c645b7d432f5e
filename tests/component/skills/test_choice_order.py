"""Choices keep the order in which they were declared."""

import enum
from typing import Annotated, Literal

import msgspec

from component.skills import skill
from component.skills.schema import ordered_schema


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"
    HUGE = "huge"


class Order(msgspec.Struct):
    speed: Literal["slow", "fast", "auto"]
    size: Size
    again: "list[Order] | None" = None
    level: Annotated[Literal[3, 1, 2], msgspec.Meta(description="How high.")] = 3
    maybe: Literal["z", "a"] | None = None


def test_choices_of_a_type_have_the_order_of_their_declaration() -> None:
    schema = ordered_schema(Order)["$defs"]
    properties = schema["Order"]["properties"]
    assert properties["speed"]["enum"] == ["slow", "fast", "auto"]
    assert properties["level"]["enum"] == [3, 1, 2]
    assert schema["Size"]["enum"] == ["small", "large", "huge"]
    assert b'["z","a"' in msgspec.json.encode(properties["maybe"])


def test_choices_of_a_skill_have_the_order_of_their_declaration() -> None:
    @skill
    def brew(strength: Literal["weak", "strong", "medium"]) -> str:
        """Brew tea."""
        return strength

    assert brew.input_schema["properties"]["strength"]["enum"] == ["weak", "strong", "medium"]
