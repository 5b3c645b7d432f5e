"""What `@skill` makes of a function, and what it refuses to."""

from __future__ import annotations

import dataclasses
import decimal
import enum
import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal, NewType

import msgspec
import pytest

from component.skills import (
    Annotations,
    Context,
    DeclarationError,
    InvalidParam,
    Output,
    SkillResult,
    prepare,
    skill,
)
from component.skills.declare import own_skill


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)


def declared(function: Callable[..., Any], **options: Any) -> Any:
    return skill(**options)(function)


def test_a_skill_of_the_service_is_read_when_it_is_first_used() -> None:
    def greet(name: str, wave) -> str:  # type: ignore[no-untyped-def]
        """Greet somebody."""
        return f"Hello {name}"

    with pytest.raises(DeclarationError, match="'wave'"):
        skill(greet)
    found = own_skill(read_only=True)(greet)
    assert found.name == "greet"
    with pytest.raises(DeclarationError, match="'wave'"):
        _ = found.input_schema


def test_a_skill_of_the_service_is_described_like_any_other() -> None:
    def add(left: int, right: int = 1) -> int:
        """Add two numbers.

        Args:
            left: The first one.
        """
        return left + right

    own, other = own_skill(idempotent=True)(add), skill(idempotent=True)(add)
    assert own.digest == other.digest
    assert own.searched == other.searched
    assert own.invoke(prepare(own, [("left", "3")]), None) == 4


def test_a_bare_declaration_takes_everything_from_the_function() -> None:
    @skill
    def water_plants(litres: float) -> str:
        """Water the plants.

        All of them.

        Args:
            litres (float): How much
                water there is.

        Returns:
            What was watered.
        """
        return f"{litres} l"

    assert water_plants.name == "water_plants"
    assert water_plants.title == "Water plants"
    assert water_plants.description == "Water the plants.\n\nAll of them."
    assert water_plants.version == "1.0.0"
    assert water_plants.kind == "thread"
    assert water_plants.annotations == Annotations(
        read_only=False, destructive=True, idempotent=False, open_world=True
    )
    assert water_plants.input_schema == {
        "type": "object",
        "properties": {"litres": {"type": "number", "description": "How much water there is."}},
        "required": ["litres"],
        "additionalProperties": False,
    }
    assert water_plants.output_schema == {"type": "string"}
    assert water_plants.output_media_types == ("text/plain",)


def test_a_declared_function_is_still_called_as_itself() -> None:
    @skill(inline=True)
    def double(x: int) -> int:
        return 2 * x

    assert double(4) == double(x=4) == 8


async def later() -> None: ...


@pytest.mark.parametrize(
    ("function", "inline", "kind"),
    [(lambda: None, False, "thread"), (lambda: None, True, "inline"), (later, False, "async")],
)
def test_a_skill_runs_async_inline_or_in_a_thread_as_declared(
    function: Callable[..., Any], inline: bool, kind: str
) -> None:
    assert declared(function, name="x", inline=inline).kind == kind


def test_read_only_is_not_destructive() -> None:
    assert declared(later, read_only=True).annotations.destructive is False
    with pytest.raises(DeclarationError, match="cannot be both"):
        declared(later, read_only=True, destructive=True)


class Order(msgspec.Struct, frozen=True):
    """Not the description of the skill.

    Args:
        count: How many.
    """

    dish: Annotated[str, msgspec.Meta(description="What to eat.")]
    count: int = 1


def test_a_struct_before_a_slash_has_the_parameters() -> None:
    @skill(inline=True)
    def order(what: Order, /, context: Context) -> str:
        """Order a meal."""
        return f"{what.count} {what.dish} for {context.principal}"

    assert order.description == "Order a meal."
    assert order.input_schema == {
        "type": "object",
        "properties": {
            "dish": {"type": "string", "description": "What to eat."},
            "count": {"description": "How many.", "type": "integer", "default": 1},
        },
        "required": ["dish"],
        "additionalProperties": False,
    }
    context = Context(principal="juliet@example.com", sender="juliet@example.com/x", skill="order")
    arguments = prepare(order, (), b'{"dish": "soup"}')
    assert order.invoke(arguments, context) == "1 soup for juliet@example.com"
    with pytest.raises(InvalidParam):
        prepare(order, (), b'{"dish": "soup", "size": 2}')


def test_constraints_descriptions_and_defaults_are_in_the_schema() -> None:
    @skill
    def order(
        count: Annotated[int, msgspec.Meta(ge=1, le=9, description="How many.")],
        name: Annotated[str, msgspec.Meta(max_length=5)] = "Ann",
        size: Size = Size.SMALL,
        way: Literal["car", "bike"] | None = None,
    ) -> dict[str, int]:
        """Args:
        count: What the docstring says stands back behind the hint.
        """
        return {name: count}

    props = order.input_schema["properties"]
    assert props["count"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "description": "How many.",
    }
    assert props["name"] == {"type": "string", "maxLength": 5, "default": "Ann"}
    assert props["size"]["default"] == "small"
    assert [(p.name, p.type, p.required) for p in order.inputs.params] == [
        ("count", "integer", True),
        ("name", "string", False),
        ("size", "string", False),
        ("way", "string", False),
    ]
    assert order.output_schema == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert order.output_media_types == ("application/json",)


def test_a_type_that_holds_itself_has_a_schema_that_resolves() -> None:
    def grow(tree: Node) -> Node:
        return tree

    made = declared(grow)
    assert made.output_schema["$ref"] == "#/$defs/Node"
    assert set(made.output_schema["$defs"]) == {"Node"}
    assert made.inputs.params[0].type == "object"


def test_context_is_passed_in_and_not_described() -> None:
    def who(context: Context, loud: bool = False) -> str:
        return context.principal

    made = declared(who)
    assert made.wants_context
    assert list(made.input_schema["properties"]) == ["loud"]


@pytest.mark.parametrize(
    "hint",
    [
        Output,
        tuple[Output, Output],
        tuple[Output, ...],
        list[Output],
        SkillResult,
        Output | SkillResult,
        Any,
    ],
)
def test_returning_outputs_describes_no_value(hint: Any) -> None:
    def give():  # type: ignore[no-untyped-def]
        return None

    give.__annotations__["return"] = hint
    assert declared(give).output_schema is None


def test_returning_nothing_has_no_media_type() -> None:
    def nothing() -> None: ...

    assert declared(nothing).output_media_types == ()


@pytest.mark.parametrize(
    "hint",
    [
        complex,
        object,
        Callable[[], int],
        decimal.Decimal,
        bytearray,
        list[complex],
        list[decimal.Decimal] | None,
        dict[str, complex],
        Literal[1.5],
        list[str] | set[int],
        type[int],
        msgspec.Raw,
    ],
)
def test_a_hint_json_cannot_carry_is_refused_by_name(hint: Any) -> None:
    def f(good: int, bad) -> None:  # type: ignore[no-untyped-def]
        ...

    f.__annotations__["bad"] = hint
    with pytest.raises(DeclarationError, match=r"'bad' of the skill function .*\bf has the type"):
        declared(f)


Code = Annotated[str, msgspec.Meta(pattern="^a+$")]
Aged = NewType("Aged", Annotated[int, msgspec.Meta(ge=3)])


class Holder(msgspec.Struct):
    code: Code | list[int]


@dataclasses.dataclass
class Deep:
    holders: list[Holder]
    again: Deep | None = None


@pytest.mark.parametrize(
    "hint",
    [
        Code | list[int],
        list[Code | dict[str, int]],
        Aged | tuple[int, str] | None,
        Annotated[int | list[int], msgspec.Meta(max_length=3)],
        Deep,
        dict[str, Deep],
    ],
)
def test_a_union_that_would_corrupt_memory_is_refused_before_msgspec_sees_it(hint: Any) -> None:
    def f(a) -> None:  # type: ignore[no-untyped-def]
        ...

    f.__annotations__["a"] = hint
    with pytest.raises(DeclarationError, match=r"'a' .* joins several types of which one has a"):
        declared(f)


def test_a_constraint_beside_none_is_welcome() -> None:
    def f(a: Code | None, b: Annotated[int | str, msgspec.Meta(description="b")]) -> None: ...

    assert [param.type for param in declared(f).inputs.params] == ["string", "any"]


def _star(*items: int) -> None: ...
def _stars(**items: int) -> None: ...
def _nameless(a: int, /) -> None: ...
def _bare(a) -> None: ...  # type: ignore[no-untyped-def]
def _under(_a: int) -> None: ...
def _twice(a: Context, b: Context) -> None: ...
def _misfit(a: int = "x") -> None: ...  # type: ignore[assignment]
def _shared(a: list[int] = [1]) -> None: ...  # noqa: B006
def _binary() -> bytes: ...  # type: ignore[empty-body]
def _odd() -> complex: ...  # type: ignore[empty-body]
def _unknown(a: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821
def _beside(what: Order, /, a: int) -> None: ...
def _generator() -> Any:
    yield 1


async def _agenerator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (_star, "'items' .* has no name for callers"),
        (_stars, "'items' .* has no name for callers"),
        (_nameless, "'a' .* has no name for callers"),
        (_beside, "'a' .* is beside a Struct of all parameters"),
        (_bare, "'a' .* has no type hint"),
        (_under, "'_a' .* underscore"),
        (_twice, "'b' .* second Context"),
        (_misfit, "'a' .* default 'x', which does not fit"),
        (_shared, "_shared cannot be described"),
        (_binary, "_binary returns is bytes"),
        (_odd, "_odd returns has the type complex"),
        (_unknown, "_unknown cannot be resolved"),
        (_generator, "_generator is a generator"),
        (_agenerator, "_agenerator is a generator"),
        (functools.partial(_star), "is not a function"),
        (int, "is not a function"),
    ],
)
def test_what_cannot_be_a_skill_is_told_why(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        declared(function, name="x")


def test_async_is_never_inline() -> None:
    with pytest.raises(DeclarationError, match="later is async and cannot be inline"):
        declared(later, name="x", inline=True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": ""}, "no usable name"),
        ({"name": "a..b"}, "no usable name"),
        ({"name": "ü"}, "no usable name"),
        ({"name": "a\n"}, "no usable name"),
        ({"name": "a" * 129}, "no usable name"),
        ({"version": "1 0"}, "no usable version"),
        ({"title": "a\x00b"}, "cannot be sent: XML cannot carry U\\+0000"),
        ({"description": "a\ud800b"}, "cannot be sent: XML cannot carry U\\+D800"),
        ({"tags": ["\x1b"]}, "cannot be sent"),
        ({"timeout": 0}, "time-out"),
        ({"timeout": float("nan")}, "time-out"),
        ({"timeout": float("inf")}, "time-out"),
        ({"typical_duration": -1}, "duration"),
        ({"cost_usd": float("nan")}, "cost"),
        ({"output_media_types": ["text"]}, "not a media type"),
        ({"taint": "Web"}, "has taint='Web': write 'person', 'peer', 'web', 'file' or 'room'"),
    ],
)
def test_what_would_mislead_callers_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        declared(later, **({"name": "x"} | options))


@pytest.mark.parametrize("taints", ["web", ("Web",), ("file", "sea")])
def test_a_result_with_a_label_that_is_none_is_a_fault(taints: Any) -> None:
    """A text that came with a mistaken label would be trusted as one that needs none."""

    def read() -> SkillResult: ...  # type: ignore[empty-body]

    with pytest.raises(ValueError, match=r"a result says taints=.*: write 'person', "):
        declared(read, taint="web").result(SkillResult((Output("x"),), taints=taints), 0.0)


def test_a_dotted_name_makes_a_title() -> None:
    assert declared(later, name="conformance.echo").title == "Conformance echo"
    assert declared(later, name="x", title="T").title == "T"
