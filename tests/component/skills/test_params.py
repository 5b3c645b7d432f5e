"""From what a caller sent to arguments: whatever it is, arguments or InvalidParam."""

from __future__ import annotations

import contextlib
import datetime
import enum
import json
import math
import uuid
from typing import Annotated, Any, Literal, Union

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.skills import DeclarationError, InvalidParam, Skill, prepare, skill


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: int
    y: int = 0


class Picky(msgspec.Struct):
    x: int

    def __post_init__(self) -> None:
        raise LookupError("a check that raises what it should not")


def taking(hint: Any, **default: Any) -> Skill:
    """Return a skill with one parameter `a` of a type."""

    def f(a=None) -> None:  # type: ignore[no-untyped-def]
        ...

    f.__defaults__ = tuple(default.values()) or None
    f.__annotations__["a"] = hint
    return skill(name="taking", inline=True)(f)


def value(hint: Any, *texts: str, json: bytes | str | None = None) -> Any:
    arguments: Any = prepare(taking(hint), [("a", text) for text in texts], json)
    return arguments.a


@pytest.mark.parametrize(
    ("hint", "texts", "expected"),
    [
        (str, [" as it\tstands\n"], " as it\tstands\n"),
        (str, [""], ""),
        (int, ["-12"], -12),
        (int, ["+007"], 7),
        (int, [" 5\n"], 5),
        (int, ["9" * 30], int("9" * 30)),
        (float, ["5"], 5.0),
        (float, ["-1.5e3"], -1500.0),
        (float, [".5"], 0.5),
        (bool, ["true"], True),
        (bool, ["1"], True),
        (bool, ["false"], False),
        (bool, [" 0 "], False),
        (Colour, ["red"], Colour.RED),
        (Level, ["2"], Level.HIGH),
        (Literal["a", 1], ["1"], 1),
        (Literal["a", 1], ["a"], "a"),
        (int | None, ["3"], 3),
        (int | str, ["3"], 3),
        (int | str, ["three"], "three"),
        (float | bool, ["true"], True),
        (list[int], ["1"], [1]),
        (list[int], ["1", "2"], [1, 2]),
        (list[str] | None, ["a", "b"], ["a", "b"]),
        (str | list[str], ["a"], "a"),
        (str | list[str], ["a", "b"], ["a", "b"]),
        (tuple[int, ...], ["1", "2"], (1, 2)),
        (tuple[int, str], ["1", "2"], (1, "2")),
        (set[Colour], ["red", "red"], {Colour.RED}),
        (Any, ["1"], "1"),
        (datetime.date, ["2026-12-01"], datetime.date(2026, 12, 1)),
        (
            uuid.UUID,
            ["00000000-0000-0000-0000-000000000001"],
            uuid.UUID("00000000-0000-0000-0000-000000000001"),
        ),
        (Annotated[int, msgspec.Meta(ge=0)] | None, ["0"], 0),
    ],
)
def test_text_becomes_what_the_type_says(hint: Any, texts: list[str], expected: Any) -> None:
    found = value(hint, *texts)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("hint", "texts", "reason"),
    [
        (int, ["x"], "expected an integer"),
        (int, [""], "expected an integer"),
        (int, ["1_0"], "expected an integer"),
        (int, ["1.0"], "expected an integer"),
        (int, ["\u0661"], "expected an integer"),  # an Arabic digit, which int() would take
        (int, ["9" * 1_000_000], "expected an integer"),
        (int, ["1", "2"], "was given more than once"),
        (str, ["1", "2"], "was given more than once"),
        (float, ["NaN"], "expected a number"),
        (float, ["Infinity"], "expected a number"),
        (float, ["1e999"], "expected a number"),
        (float, ["9" * 1_000_000], "expected a number"),
        (float, ["0." + "1" * 5_000], "expected a number"),
        (bool, ["yes"], "expected true or false"),
        (bool, ["True"], "expected true or false"),
        (Colour, ["pink"], "expected one of red, blue"),
        (Colour | None, ["RED"], "expected one of red, blue"),
        (int | bool, ["x"], "expected an integer or true or false"),
        (list[int], ["1", "x"], "expected an array, each item an integer"),
        (tuple[int, str], ["1"], "expected an array of length 2, got 1"),
        (Point, ["{}"], "expected an object, which goes into the JSON parameters"),
        (list[Point], ["{}"], "expected an array, which goes into the JSON parameters"),
        (dict[str, int], ["{}"], "expected an object, which goes into the JSON parameters"),
        (datetime.date, ["soon"], "expected a date such as 2026-12-24"),
        (datetime.time, ["soon"], "expected a time such as 19:30:00"),
        (datetime.timedelta, ["soon"], "expected a duration such as PT90M"),
        (datetime.datetime, ["soon"], "expected a date and time such as 2026-12-24T19:30:00"),
        (
            Annotated[datetime.datetime, msgspec.Meta(tz=True)],
            ["2026-12-24T19:30:00"],
            "expected a date and time with its zone, such as 2026-12-24T19:30:00+01:00",
        ),
        (Annotated[int, msgspec.Meta(ge=0)], ["-1"], "expected an integer >= 0"),
        (Annotated[str, msgspec.Meta(max_length=2)], ["abc"], "expected text of length <= 2"),
    ],
    ids=str,
)
def test_text_that_does_not_fit_names_parameter_and_reason(
    hint: Any, texts: list[str], reason: str
) -> None:
    with pytest.raises(InvalidParam) as caught:
        value(hint, *texts)
    assert (caught.value.name, caught.value.reason) == ("a", reason)
    assert str(caught.value) == f"a: {reason}"


@pytest.mark.parametrize(
    ("hint", "sent", "name", "path", "reason"),
    [
        (int, {"a": "1"}, "a", "a", "expected an integer"),
        (int, {"a": None}, "a", "a", "expected an integer"),
        (int, {}, "a", "a", "is required"),
        (int, {"a": 1, "b": 2}, "b", "b", "no such parameter"),
        (int | None, {"a": "1"}, "a", "a", "expected an integer or null"),
        (Point, {"a": {"x": "1"}}, "a", "a.x", "expected an integer"),
        (Point, {"a": {}}, "a", "a.x", "is required"),
        (Point, {"a": {"x": 1, "z": 1}}, "a", "a.z", "no such member"),
        (list[Point], {"a": [{"x": 1}, {"x": True}]}, "a", "a[1].x", "expected an integer"),
        (dict[str, int], {"a": {"k": "v"}}, "a", "a[...]", "expected an integer"),
        (dict[int, int], {"a": {"k": 1}}, "a", "a", "expected an integer"),
        (Colour, {"a": "x - at `$.b`"}, "a", "a", "expected one of red, blue"),
        (set[list[int]], {"a": [[1]]}, None, None, "the parameters do not fit the skill's types"),
        (float, {"a": 10**400}, "a", "a", "number out of range"),
        (Picky, {"a": {"x": 1}}, None, None, "the parameters do not fit the skill's types"),
        (int, [], None, None, "the JSON parameters are not a JSON object"),
    ],
)
def test_json_that_does_not_fit_names_the_place(
    hint: Any, sent: Any, name: str | None, path: str | None, reason: str
) -> None:
    with pytest.raises(InvalidParam) as caught:
        value(hint, json=json.dumps(sent))
    assert (caught.value.name, caught.value.path) == (name, path)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"{",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        '{"a": "\ud800"}',
        b'{"a": ' + b"[" * 100_000,
        b'{"a": ' + b"9" * 100_000 + b"}",
    ],
    ids=range(10),
)
def test_json_that_cannot_be_read_blames_no_parameter(sent: bytes | str) -> None:
    with pytest.raises(InvalidParam, match="cannot be read") as caught:
        value(Any, json=sent)
    assert caught.value.name is None


def test_text_and_json_are_joined_but_never_for_one_name() -> None:
    @skill
    def f(a: int, b: list[int], c: str = "c") -> None: ...

    arguments: Any = prepare(f, [("a", "1")], b'{"b": [2]}')
    assert (arguments.a, arguments.b, arguments.c) == (1, [2], "c")
    with pytest.raises(InvalidParam, match="a: was given both as text and in JSON"):
        prepare(f, [("a", "1")], b'{"a": 1, "b": []}')


def test_what_a_caller_sent_is_cut_short_and_cleaned_in_a_reason() -> None:
    with pytest.raises(InvalidParam) as caught:
        prepare(taking(int), [("\0\n" + "x" * 1000, "1")])
    assert caught.value.name is not None
    assert caught.value.name.isprintable()
    assert len(str(caught.value)) < 200


def test_a_default_is_new_for_every_call() -> None:
    made = taking(list[int], a=[])
    first: Any = prepare(made)
    second: Any = prepare(made)
    assert first.a == []
    assert first.a is not second.a


@given(st.integers())
def test_integers_come_through_text(number: int) -> None:
    assert value(int, str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_through_text(number: float) -> None:
    assert value(float, repr(number)) == number


@given(st.lists(st.text(), min_size=1))
def test_texts_come_through_verbatim(texts: list[str]) -> None:
    assert value(list[str], *texts) == texts
    assert value(str, texts[0]) == texts[0]


_scalars: list[Any] = [
    str, int, float, bool, None, Any, bytes, datetime.datetime, datetime.timedelta, uuid.UUID,
    Colour, Level, Point, Picky, Literal["a", 1], Annotated[int, msgspec.Meta(ge=3)],
    Annotated[str, msgspec.Meta(pattern="^a+$")], complex, object,
]  # fmt: skip
hints = st.recursive(
    st.sampled_from(_scalars),
    lambda inner: st.one_of(
        inner.map(lambda t: list[t]),  # type: ignore[valid-type]
        inner.map(lambda t: set[t]),  # type: ignore[valid-type]
        inner.map(lambda t: tuple[t, ...]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(lambda ts: tuple[ts]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(lambda ts: dict[ts]),  # type: ignore[valid-type,misc]
        st.tuples(inner, inner).map(lambda ts: Union[ts]),  # noqa: UP007 - None | None is refused
    ),
    max_leaves=4,
)
texts = st.one_of(
    st.text(),
    st.sampled_from(["1", "true", "red", "a", "NaN", "1e999", "-0", "+", "null", "{}", "9" * 5000]),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers().map(lambda i: i * 10**350),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["x", "y", "1", ""]) | st.text(), inner, max_size=3),
    ),
    max_leaves=6,
)
names = st.sampled_from(["a", "a", "a", "b", ""])


@given(
    hints,
    st.lists(st.tuples(names, texts), max_size=3),
    st.one_of(
        st.none(),
        st.binary(max_size=50),
        st.dictionaries(names, values, max_size=2).map(lambda v: json.dumps(v).encode()),
        values.map(json.dumps),
    ),
)
def test_whatever_the_type_and_whatever_is_sent(
    hint: Any, given_texts: list[tuple[str, str]], sent: bytes | str | None
) -> None:
    try:
        made = taking(hint)
    except DeclarationError:
        return
    try:
        arguments = prepare(made, given_texts, sent)
        assert isinstance(arguments, made.inputs.type)
    except InvalidParam as exc:
        said = str(exc)
    else:
        said = ""
    assert not said or said.isprintable()
    assert len(said) <= 500


@given(st.text(alphabet="0123456789+-.eE \t_infINFaA٣", max_size=20))
def test_no_text_is_a_number_without_a_value(text: str) -> None:
    with contextlib.suppress(InvalidParam):
        assert math.isfinite(value(float, text))
