"""Forms from JSON Schemas, field by field, and what a filled-in one says."""

import contextlib
import enum
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import pytest

from component.skills import DeclarationError, prepare, skill
from component.skills.conformance_fixtures import conformance_skills
from component.skills.forms import InvalidForm, form_values, schema_form
from xep.data_forms import Field, Form
from xep.data_forms import field as filled
from xep.form_validation import Range, Validate

TYPE = "urn:fluux:agent:0#execute"
Meta = msgspec.Meta


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: int
    next: "Point | None" = None


@skill
def every(
    flag: bool,
    colour: Colour,
    level: Level,
    count: Annotated[int, Meta(ge=1, lt=10)],
    ratio: Annotated[float, Meta(ge=0.5, le=1.5)],
    topic: Annotated[str, Meta(title="Topic", max_length=5)],
    colours: set[Colour],
    words: list[str],
    years: list[int],
    point: Point,
    letter: Annotated[
        str, Meta(extra_json_schema={"contentMediaType": "text/plain"})
    ] = "Dear all,\n",
    day: Annotated[str, Meta(extra_json_schema={"format": "date"})] = "2026-11-22",
    sure: bool | None = None,
    other: Colour | None = Colour.RED,
    limit: int | None = 5,
    choice: Literal[1, "one"] = 1,
    pairs: tuple[int, str] = (1, "a"),
    tags: list[str] | None = None,
) -> None:
    """Take everything.

    Args:
        count: How many.
    """


SCHEMA = every.input_schema


def showing(schema: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A schema whose defaults are these values, which a form shows."""
    shown = {
        name: {**each, "default": values[name]} if name in values else each
        for name, each in schema["properties"].items()
    }
    return {**schema, "properties": shown}


def fields(form: Form) -> dict[str, Field]:
    return {field.var or "": field for field in form.fields}


def field(name: str, **options: Any) -> Field:
    return fields(schema_form(SCHEMA, TYPE, **options))[name]


def one(declared: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    """The schema of an object with the one property ``a``."""
    return {
        "type": "object",
        "properties": {"a": declared},
        "required": ["a"] if required else [],
    }


def read(schema: dict[str, Any], *texts: str) -> Any:
    form = Form(type="submit", fields=(Field(var="a", values=texts),))
    return msgspec.json.decode(form_values(form, schema)).get("a", "absent")


def reason(schema: dict[str, Any], *texts: str) -> str:
    with pytest.raises(InvalidForm) as caught:
        read(schema, *texts)
    return caught.value.reasons["a"]


# -- the form ------------------------------------------------------------------------------------


def test_a_form_says_what_it_is_about() -> None:
    form = schema_form(SCHEMA, TYPE, title="Every", instructions="First.\n\nSecond.")
    assert (form.type, form.form_type, form.title) == ("form", TYPE, "Every")
    assert form.fields[0].type == "hidden"
    assert form.instructions == ("First.", "Second.", "To be written as JSON: Point, Pairs.")


def test_a_field_for_each_property_in_their_order() -> None:
    names = [field.var for field in schema_form(SCHEMA, TYPE).fields]
    assert names == ["FORM_TYPE", *SCHEMA["properties"]]
    assert [field.var for field in schema_form(SCHEMA, None).fields] == names[1:]


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("flag", "boolean"),
        ("colour", "list-single"),
        ("level", "list-single"),
        ("count", "text-single"),
        ("ratio", "text-single"),
        ("topic", "text-single"),
        ("colours", "list-multi"),
        ("words", "text-multi"),
        ("years", "text-multi"),
        ("point", "text-multi"),
        ("letter", "text-multi"),
        ("sure", "list-single"),
        ("other", "list-single"),
        ("limit", "text-single"),
        ("choice", "list-single"),
        ("pairs", "text-multi"),
        ("tags", "text-multi"),
    ],
)
def test_the_type_of_each_field(name: str, type_: str) -> None:
    assert field(name).type == type_


@pytest.mark.parametrize(
    ("name", "validation"),
    [
        ("flag", None),
        ("colour", None),
        ("colours", None),
        ("topic", None),
        ("words", None),
        ("point", None),
        ("count", Validate(datatype="xs:integer", range=Range(min="1", max="9"))),
        ("ratio", Validate(datatype="xs:double", range=Range(min="0.5", max="1.5"))),
        ("limit", Validate(datatype="xs:integer", basic=True)),
        ("years", Validate(datatype="xs:integer", open=True)),
        ("day", Validate(datatype="xs:date", basic=True)),
    ],
)
def test_the_validation_of_each_field(name: str, validation: Validate | None) -> None:
    assert field(name).validate == validation


@pytest.mark.parametrize(
    ("format_", "datatype"),
    [("date-time", "xs:dateTime"), ("date", "xs:date"), ("uri", "xs:anyURI")],
)
def test_the_formats_that_a_client_can_check(format_: str, datatype: str) -> None:
    (found,) = schema_form(one({"type": "string", "format": format_}), None).fields
    assert found.validate == Validate(datatype=datatype, basic=True)


@pytest.mark.parametrize(
    ("bounds", "least", "greatest"),
    [
        ({"minimum": 1.5, "maximum": 3.5}, "2", "3"),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, "2", "2"),
        ({"exclusiveMinimum": 1.5, "minimum": 1}, "2", None),
        ({"minimum": True, "maximum": "x"}, None, None),
    ],
)
def test_the_range_of_an_integer(
    bounds: dict[str, Any], least: str | None, greatest: str | None
) -> None:
    (found,) = schema_form(one({"type": "integer", **bounds}), None).fields
    assert found.validate is not None
    said = found.validate.range or Range()
    assert (said.min, said.max) == (least, greatest)


def test_titles_descriptions_and_what_is_required() -> None:
    assert field("topic").label == "Topic"
    assert field("count").label == "Count"
    named = schema_form(one({"type": "string"}) | {"properties": {"postal_code": {}}}, None)
    assert named.fields[0].label == "Postal code"
    assert field("count").desc == "How many."
    assert field("topic").desc is None
    assert [name for name, each in fields(schema_form(SCHEMA, TYPE)).items() if each.required] == (
        SCHEMA["required"]
    )


def test_an_option_for_each_value() -> None:
    assert [option.value for option in field("colour").options] == ["red", "blue"]
    assert [option.value for option in field("level").options] == ["1", "2"]
    assert [option.value for option in field("sure").options] == ["(none)", "true", "false"]


def test_every_option_has_a_label_and_a_value() -> None:
    """Converse shows an empty line for an option without one; profanity crashes if a value is
    empty.
    """
    assert [option.label for option in field("colour").options] == ["red", "blue"]
    assert [option.label for option in field("sure").options] == ["(none)", "true", "false"]
    (found,) = schema_form(one({"enum": ["", "a"]}), None).fields
    assert [option.label for option in found.options] == ["(empty)", "a"]
    assert [option.value for option in found.options] == ["(empty)", "a"]
    (found,) = schema_form(one({"enum": ["", "a"], "default": ""}), None).fields
    assert found.values == ("(empty)",)


@pytest.mark.parametrize(
    ("declared", "required", "offered"),
    [
        ({"enum": ["a"]}, False, True),
        ({"enum": ["a"]}, True, False),
        ({"enum": ["a"], "default": "a"}, False, False),
        ({"enum": ["a", None], "default": "a"}, False, True),
        ({"enum": ["a", None]}, True, True),
        ({"enum": ["", "a"]}, False, False),
    ],
)
def test_a_choice_that_can_be_left_out_has_an_option_for_it(
    declared: dict[str, Any], required: bool, offered: bool
) -> None:
    """A browser chooses the first option by itself."""
    schema = one(declared, required=required)
    (found,) = schema_form(schema, None).fields
    assert (found.options[0].label == "(none)") is offered
    if offered:
        assert found.options[0].value == "(none)"
        assert read(schema, "(none)") == read(schema, "") != "a"
    else:
        assert reason(schema, "(none)").startswith("expected one of")


def test_titled_constants_are_labelled_options() -> None:
    parts = [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]
    (found,) = schema_form(one({"oneOf": parts}, required=True), None).fields
    assert [(each.value, each.label) for each in found.options] == [("a", "First"), ("b", "Second")]


def test_defaults_stand_as_values() -> None:
    assert field("letter").values == ("Dear all,", "")
    assert field("other").values == ("red",)
    assert field("limit").values == ("5",)
    assert field("pairs").values == ('[1,"a"]',)
    assert field("tags").values == ()
    assert field("count").values == ()


def test_a_form_shows_defaults_of_every_type() -> None:
    given = {"limit": 7, "words": ["a", "b"], "colours": ["red"], "flag": True}
    form = fields(schema_form(showing(SCHEMA, given), TYPE))
    assert form["limit"].values == ("7",)
    assert form["words"].values == ("a", "b")
    assert form["colours"].values == ("red",)
    assert form["flag"].values == ("true",)
    assert form["other"].values == ("red",)


def test_what_was_given_comes_back_as_it_was_with_the_reason() -> None:
    given = Form(type="submit", fields=(filled("count", "many"), filled("limit", "")))
    form = fields(schema_form(SCHEMA, TYPE, given=given, errors={"count": "expected an integer"}))
    assert form["count"].values == ("many",)
    assert form["count"].desc == "Expected an integer. How many."
    assert form["limit"].values == ("",)
    assert form["other"].values == ("(none)",)


def test_a_text_of_several_lines_gets_the_room_for_it() -> None:
    assert (
        fields(schema_form(showing(SCHEMA, {"topic": "a\nb"}), TYPE))["topic"].type == "text-multi"
    )


def test_what_no_form_can_show_is_left_to_the_default() -> None:
    for default in ("\x00", 7):
        schema = one({"type": "string", "default": default})
        assert schema_form(schema, None).fields[0].values == ()
        assert read(schema, "") == "absent"


def test_a_property_called_form_type_is_refused() -> None:
    schema = {"type": "object", "properties": {"FORM_TYPE": {}}}
    with pytest.raises(ValueError, match="FORM_TYPE"):
        schema_form(schema, None)
    with pytest.raises(ValueError, match="FORM_TYPE"):
        form_values(Form(type="submit"), schema)


def test_a_parameter_cannot_be_called_form_type() -> None:
    with pytest.raises(DeclarationError, match="FORM_TYPE"):

        @skill
        def named(FORM_TYPE: str) -> None:  # noqa: N803
            """Do nothing."""


def test_a_schema_can_come_as_json() -> None:
    raw = msgspec.Raw(msgspec.json.encode(SCHEMA))
    assert schema_form(raw, TYPE) == schema_form(SCHEMA, TYPE)
    with pytest.raises(TypeError):
        schema_form(msgspec.Raw(b"[]"), TYPE)


@pytest.mark.parametrize("each", conformance_skills(), ids=lambda each: each.name)
def test_the_form_of_each_fixture_leads_to_a_call(each: Any) -> None:
    given = {
        "text": "hi",
        "question": "?",
        "a": 1,
        "b": 2,
        "colour": "red",
        "flag": True,
        "ratio": 1.5,
        "point": {"x": 1, "y": 2},
        "seconds": 0.5,
        "key": "k",
        "steps": 1,
        "message": "no",
        "target": "t",
        "bytes": 3,
    }
    schema = each.input_schema
    form = schema_form(showing(schema, given), TYPE)
    submitted = Form(type="submit", fields=form.fields)
    arguments = msgspec.to_builtins(prepare(each, json=bytes(form_values(submitted, schema, TYPE))))
    for name in schema["properties"]:
        if name in given:
            assert arguments[name] == given[name]


# -- what a filled-in form says ------------------------------------------------------------------


def test_texts_become_values() -> None:
    form = Form(
        type="submit",
        fields=(
            filled("flag", "1"),
            filled("colour", "red"),
            filled("level", "2"),
            filled("count", " 3 "),
            filled("ratio", "1"),
            filled("topic", " x "),
            filled("colours", ["red", "blue"]),
            filled("words", ["one two", "", "three\nfour"]),
            filled("years", ["2025", " ", "2026"]),
            filled("point", ['{"x": 1,', '"next": null}']),
            filled("letter", ["Dear all,", "", "bye"]),
            filled("sure", "false"),
            filled("stranger", "ignored"),
        ),
    )
    assert msgspec.json.decode(form_values(form, SCHEMA, TYPE)) == {
        "flag": True,
        "colour": "red",
        "level": 2,
        "count": 3,
        "ratio": 1,
        "topic": " x ",
        "colours": ["red", "blue"],
        "words": ["one two", "three", "four"],
        "years": [2025, 2026],
        "point": {"x": 1, "next": None},
        "letter": "Dear all,\n\nbye",
        "sure": False,
    }


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)]
)
def test_every_spelling_of_a_boolean(text: str, value: bool) -> None:
    assert read(one({"type": "boolean"}), text) is value


@pytest.mark.parametrize(
    ("schema", "texts", "why"),
    [
        ({"type": "boolean"}, ["yes"], "expected true or false"),
        ({"type": "integer"}, ["1.0"], "expected an integer"),
        ({"type": "integer"}, ["1", "2"], "expected one value"),
        ({"type": "integer"}, ["1" * 5000], "expected an integer"),
        ({"type": "integer", "maximum": 3}, ["5"], "5 is greater than the maximum of 3"),
        ({"type": "number"}, ["NaN"], "expected a number"),
        ({"type": "number"}, ["1e999"], "expected a number"),
        ({"enum": ["a", "b"]}, ["c"], "expected one of a, b"),
        ({"type": "array", "items": {"enum": ["a"]}}, ["a", "c"], "expected one of a"),
        ({"type": "array", "items": {"type": "integer"}}, ["1\nx"], "expected an integer"),
        ({"type": "string", "maxLength": 1}, ["ab"], '"ab" is longer than 1 character'),
        ({"type": "string"}, ["\x00"], "contains a character that texts cannot contain"),
        ({"type": "string"}, ["\ud800"], "contains a character that texts cannot contain"),
        ({"type": "object"}, ["[1]"], '[1] is not of type "object"'),
        (
            {"type": "object", "properties": {"x": {"items": {"type": "integer"}}}},
            ['{"x": [1, "a"]}'],
            'x[1]: "a" is not of type "integer"',
        ),
    ],
)
def test_why_a_field_does_not_fit(schema: dict[str, Any], texts: list[str], why: str) -> None:
    assert reason(one(schema), *texts) == why


def test_json_that_cannot_be_read() -> None:
    assert reason(one({}), "{").startswith("expected JSON: ")
    assert reason(one({}), "[" * 100_000) == "expected JSON nested at most 64 deep"
    assert reason(one({}), f"[{'0,' * 10_000}0]") == "expected JSON of at most 10000 values"


def test_a_large_form_is_validated_whole() -> None:
    numbers = one({"type": "array", "items": {"type": "integer", "maximum": 5}})
    assert reason(numbers, "9") == "[0]: 9 is greater than the maximum of 5"
    assert reason(numbers, "5\n" * 9_000 + "9") == "[9000]: 9 is greater than the maximum of 5"
    assert reason(numbers, "5\n" * 600 + "x") == "expected an integer"
    assert reason(numbers, "\r9" * 10_001) == "expected at most 10000 lines"


def test_every_field_that_does_not_fit_is_named() -> None:
    form = Form(type="submit", fields=(filled("count", "many"), filled("topic", "too long")))
    with pytest.raises(InvalidForm) as caught:
        form_values(form, SCHEMA, TYPE)
    assert set(caught.value.reasons) == set(SCHEMA["required"])
    assert caught.value.reasons["count"] == "expected an integer"
    assert caught.value.reasons["topic"] == '"too long" is longer than 5 characters'
    assert caught.value.reasons["flag"] == "is required"
    assert "count: expected an integer" in str(caught.value)


def test_a_field_that_comes_twice() -> None:
    form = Form(
        type="submit",
        fields=(
            filled("FORM_TYPE", TYPE),
            filled("FORM_TYPE", TYPE),
            filled("a", "1"),
            filled("a", "1"),
        ),
    )
    assert bytes(form_values(form, one({"type": "integer"}), TYPE)) == b'{"a":1}'
    form = Form(
        type="submit", fields=(filled("a", "1"), filled("a", "2"), filled("b"), filled("b"))
    )
    with pytest.raises(InvalidForm) as caught:
        form_values(form, one({"type": "integer"}))
    assert caught.value.reasons == {"a": "was given more than once, with different values"}


def test_a_field_that_comes_again_without_a_value_says_nothing() -> None:
    for first, second in (("", TYPE), (TYPE, ""), (None, f" {TYPE}\n")):
        fields = (filled("FORM_TYPE", first), filled("FORM_TYPE", second))
        form = Form(type="submit", fields=(*fields, filled("a"), filled("a", "1"), filled("a", "")))
        assert bytes(form_values(form, one({"type": "integer"}), TYPE)) == b'{"a":1}'


def test_a_form_about_something_else() -> None:
    form = Form(type="submit", fields=(filled("FORM_TYPE", "urn:other"),))
    with pytest.raises(InvalidForm, match="FORM_TYPE: expected urn:fluux"):
        form_values(form, one({}), TYPE)
    assert bytes(form_values(Form(type="submit"), one({}), TYPE)) == b"{}"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"},
        {"type": "integer", "default": 3},
        {"type": "string"},
        {"type": "boolean", "default": True},
        {"enum": ["a"]},
        {"enum": ["a"], "default": "a"},
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        {},
    ],
)
def test_an_optional_field_left_empty_is_not_given(schema: dict[str, Any]) -> None:
    assert read(one(schema)) == "absent"
    assert read(one(schema), "") == "absent"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 3}, None),
        ({"enum": ["a", None], "default": "a"}, None),
        ({"type": "array", "items": {"type": "string"}, "default": ["a"]}, []),
        ({"type": "array", "items": {"enum": ["a"]}, "default": ["a"]}, []),
        ({"type": "string", "default": "a"}, ""),
    ],
)
def test_a_default_that_was_taken_away(schema: dict[str, Any], value: Any) -> None:
    assert read(one(schema)) == value
    assert read(one(schema), "") == value
    # A field that is not even there was not emptied by anybody.
    assert bytes(form_values(Form(type="submit"), one(schema))) == b"{}"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ({"type": "array", "items": {"type": "string"}}, []),
        ({"type": "boolean"}, False),
    ],
)
def test_a_required_field_whose_emptiness_says_something(
    schema: dict[str, Any], value: Any
) -> None:
    assert read(one(schema, required=True), "") == value


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "integer"}, {"enum": ["a"]}, {}])
def test_a_required_field_left_empty(schema: dict[str, Any]) -> None:
    assert reason(one(schema, required=True), "") == "is required"


@pytest.mark.parametrize(
    ("format_", "text", "value"),
    [
        ("date", "2026-12-24", "2026-12-24"),
        ("date", "2026-12-24T19:30", "2026-12-24"),
        ("date-time", "2026-12-24T19:30", "2026-12-24T19:30:00"),
        ("date-time", "2026-12-24T19:30:05+01:00", "2026-12-24T19:30:05+01:00"),
    ],
)
def test_a_date_or_time_is_read_as_browsers_write_it(format_: str, text: str, value: str) -> None:
    schema = one({"type": "string", "format": format_})
    form = Form(type="submit", fields=(filled("a", text),))
    assert msgspec.json.decode(form_values(form, schema)) == {"a": value}
    assert read(one({"type": "string"}), text) == text


def test_a_date_that_cannot_be_read_is_refused_with_an_example() -> None:
    date = one({"type": "string", "format": "date"})
    assert reason(date, "tomorrow") == "expected a date such as 2026-12-24"


def test_an_empty_text_can_be_a_choice() -> None:
    assert read(one({"enum": ["", "a"]}), "") == ""
    assert read(one({"enum": ["", "a"]}), "(empty)") == ""
    assert read(one({"type": "array", "items": {"enum": ["", "a"]}}), "", "a") == ["", "a"]


def test_values_that_no_text_tells_apart_go_as_json() -> None:
    for values in (["1", 1], [True, "true"], [[1], 2]):
        (found,) = schema_form(one({"enum": values}), None).fields
        assert found.type == "text-multi"
        assert read(one({"enum": values}), msgspec.json.encode(values[0]).decode()) == values[0]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/self"},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.org/schema"},
        {"anyOf": [{"$ref": "#/$defs/self"}]},
        {"type": 7},
        {"type": "alien"},
        {"type": ["string", 7]},
        {"type": "string", "pattern": "("},
        {"anyOf": "x"},
        {"enum": "x"},
        True,
    ],
)
def test_a_schema_that_makes_no_sense_is_read_as_far_as_it_does(schema: Any) -> None:
    declared = {**one(schema), "$defs": {"self": {"$ref": "#/$defs/self"}}}
    form = schema_form(declared, None)
    assert len(form.fields) == 1
    text = "a" if form.fields[0].type == "text-single" else '"a"'
    with contextlib.suppress(InvalidForm):
        read(declared, text)
