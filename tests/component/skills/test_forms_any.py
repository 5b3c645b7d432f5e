"""Any schema of the supported class, any instance of it, any form."""

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from component.skills.forms import InvalidForm, form_values, schema_form
from tests.component.skills.test_forms import showing
from tests.profiles import examples
from xep.binding import decode, encode
from xep.data_forms import Field, Form

TYPE = "urn:fluux:agent:0#task"

# What a form cannot say: no text at all (that is an empty field), carriage returns (XML has one
# kind of line end), and characters that XML has not.
_line = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\ufffe\uffff", exclude_categories=["Cc"]),
    min_size=1,
    max_size=12,
)
_text = st.lists(_line, min_size=1, max_size=3).map("\n".join)
_integer = st.integers(-(10**25), 10**25)
_number = _integer | st.floats(allow_nan=False, allow_infinity=False)
_json = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | _line,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_line, inner, max_size=3),
    max_leaves=6,
)
_scalar = st.booleans() | st.integers(-99, 99) | st.text(_line, max_size=4)


def _enumeration(values: list[Any]) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    return {"enum": values}, st.sampled_from(values)


_enumerations = st.lists(st.integers(-99, 99) | _line, min_size=1, max_size=4, unique_by=str).map(
    _enumeration
)
_items = st.one_of(
    st.just(({"type": "string"}, _line)),
    st.just(({"type": "integer"}, _integer)),
    st.just(({"type": "number"}, _number)),
    _enumerations,
)


def _array(
    item: tuple[dict[str, Any], st.SearchStrategy[Any]],
) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    return {"type": "array", "items": item[0]}, st.lists(item[1], max_size=4)


_plain = st.one_of(
    _items,
    _items.map(_array),
    st.just(({"type": "boolean"}, st.booleans())),
    st.just(({"type": "string", "contentMediaType": "text/plain"}, _text)),
    st.just(({"type": "string"}, _text)),
    st.just(({}, _json)),
    st.just(({"type": "object"}, st.dictionaries(_line, _json, max_size=3))),
    st.just(({"type": "array"}, st.lists(_json, max_size=3))),
)


@st.composite
def _properties(draw: st.DrawFn) -> tuple[dict[str, Any], bool, st.SearchStrategy[Any]]:
    """A property's schema, whether it is required, and what its values are."""
    schema, values = draw(_plain)
    required = draw(st.booleans())
    if draw(st.booleans()):
        schema, values = {"anyOf": [schema, {"type": "null"}]}, values | st.none()
    if not required and draw(st.booleans()):
        schema = {**schema, "default": draw(values)}
    return schema, required, values


@st.composite
def schemas_and_instances(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    names = draw(st.lists(_line.filter(lambda n: n != "FORM_TYPE"), max_size=5, unique=True))
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    instance: dict[str, Any] = {}
    for name in names:
        declared, required, values = draw(_properties())
        if draw(st.booleans()):
            schema.setdefault("$defs", {})[str(len(instance))] = declared
            declared = {"$ref": f"#/$defs/{len(instance)}"}
        schema["properties"][name] = declared
        instance[name] = draw(values)
        if required:
            schema["required"].append(name)
    return schema, instance


def _meant(schema: dict[str, Any], name: str) -> Any:
    """What a property means that is not given: its default, or null, or nothing at all."""
    declared = schema["properties"][name]
    if "$ref" in declared:
        declared = schema["$defs"][declared["$ref"].removeprefix("#/$defs/")]
    return declared.get("default")


@examples(30)
@given(schemas_and_instances())
def test_an_instance_comes_back_through_its_form(
    given_: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    schema, instance = given_
    form = schema_form(showing(schema, instance), TYPE)
    element = ET.fromstring(encode(form))
    assert decode(Form, element, strict=True) == form
    submitted = Form(type="submit", fields=form.fields)
    values = msgspec.json.decode(form_values(submitted, schema, TYPE))
    jsonschema.Draft202012Validator(schema).validate(values)
    for name, value in instance.items():
        found = values[name] if name in values else _meant(schema, name)
        # No items and null are both an empty field.
        assert found == value or (found in ([], None) and value in ([], None)), name
        assert isinstance(found, bool) is isinstance(value, bool), name


def refusal(form: Form, schema: dict[str, Any]) -> Mapping[str, str]:
    """The reasons for which a form is refused; nothing else is ever raised."""
    try:
        form_values(form, schema, TYPE)
    except InvalidForm as error:
        return error.reasons
    return {}


_any_field = st.builds(
    Field,
    var=st.none() | st.sampled_from(["a", "b", "FORM_TYPE"]) | st.text(max_size=3),
    type=st.none() | st.sampled_from(["boolean", "list-multi", "text-multi", "hidden"]),
    values=st.lists(
        st.text(max_size=8)
        | st.sampled_from(["", "1", "true", "null", "{}", "[", "1e999", TYPE, "[" * 5000]),
        max_size=3,
    ).map(tuple),
)
_forms = st.builds(
    Form,
    type=st.sampled_from(["submit", "form"]),
    fields=st.lists(_any_field, max_size=5).map(tuple),
)
_schemas = st.fixed_dictionaries(
    {
        "properties": st.dictionaries(
            st.sampled_from(["a", "b", "c"]), _properties().map(lambda p: p[0])
        )
    },
    optional={"required": st.lists(st.sampled_from(["a", "b"]))},
).map(
    lambda schema: {
        **schema,
        "required": [n for n in schema.get("required", ()) if n in schema["properties"]],
    }
)


@examples(50)
@given(_forms, _schemas)
def test_any_form_is_read_or_refused_with_a_reason_for_each_field(
    form: Form, schema: dict[str, Any]
) -> None:
    reasons = refusal(form, schema)
    if not reasons:
        values = msgspec.json.decode(form_values(form, schema, TYPE))
        jsonschema.Draft202012Validator({**schema, "type": "object"}).validate(values)
        return
    assert set(reasons) <= {*schema["properties"], "FORM_TYPE"}
    again = schema_form(schema, TYPE, given=form, errors=reasons)
    decode(Form, ET.fromstring(encode(again)), strict=True)
    for name in reasons:
        shown = again.field(name)
        assert name == "FORM_TYPE" or (shown is not None and shown.desc)


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "enum",
                    "const",
                    "anyOf",
                    "items",
                    "$ref",
                    "default",
                    "minimum",
                    "properties",
                ]
            ),
            inner | st.sampled_from(["string", "array", "#/properties/a", "#"]),
            max_size=3,
        )
    ),
    max_leaves=8,
)


@examples(40)
@given(_anything, _forms)
def test_what_is_no_schema_at_all_does_no_harm(declared: Any, form: Form) -> None:
    schema = {"properties": {"a": declared}}
    schema_form(schema, TYPE)
    refusal(form, schema)
