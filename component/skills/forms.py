"""Forms from JSON Schemas, and JSON from forms that were filled in.

The specification's "Forms from Schemas" (FAC-008, FAC-009): a field per property, with the
validation of XEP-0122 where a client can do some. What comes back is judged here, whatever a client
has checked: `values_of` finds every field that does not fit, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from component.skills.errors import printable
from component.skills.form_fields import ABSENT, NEWLINE, Property, Schema
from component.skills.schema_properties import properties_of
from component.skills.validation import validator_class
from xep.binding.escaping import without_forbidden
from xep.data_forms import FORM_TYPE, Field, FieldType, Form, Option, form_type_field
from xep.form_validation import Range, Validate

MOST_EXPLAINED = 500
"""Values that are held against a JSON Schema in pure Python: up to about ten milliseconds."""
_LONGEST_REASON = 300
_NOTHING: Mapping[str, Any] = {}


class InvalidForm(ValueError):  # noqa: N818 - says what is wrong, as those of the room do
    """A form that was filled in does not fit its schema.

    `reasons` has an unfinished sentence for each field that is to blame, in their order.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        """Take the reasons, by the name of the field."""
        self.reasons = reasons
        said = [f"{printable(name, 100)}: {reason}" for name, reason in reasons.items()]
        super().__init__("; ".join(said))


def form_of(
    schema: Schema | msgspec.Raw,
    form_type: str | None,
    *,
    title: str | None = None,
    instructions: str = "",
    values: Mapping[str, Any] = _NOTHING,
    given: Form | None = None,
    errors: Mapping[str, str] = _NOTHING,
) -> Form:
    """The form that asks for what a schema describes.

    Args:
        schema: a JSON Schema of type object.
        form_type: what the form is about (XEP-0068); None for a form without it.
        title: of the form.
        instructions: for the one who fills it in, an element per line.
        values: JSON values that the fields show instead of the schema's defaults.
        given: a form that was filled in, whose texts the fields show instead, as they came.
        errors: reasons for which it is asked for again, by field: each stands in the field's desc.

    Raises:
        ValueError: a property is called FORM_TYPE.
        TypeError: `schema` is no JSON object.
    """
    properties = properties_of(_read(schema))
    fields = [] if form_type is None else [form_type_field(form_type)]
    fields += [_field(each, values, given, errors.get(each.name)) for each in properties]
    lines = [line for line in NEWLINE.split(instructions) if line]
    as_json = [each.title or each.name for each in properties if each.kind == "json"]
    if as_json:
        lines.append(f"To be written as JSON: {', '.join(as_json)}.")
    return Form(
        type="form",
        title=None if title is None else without_forbidden(title),
        instructions=tuple(map(without_forbidden, lines)),
        fields=tuple(fields),
    )


def values_of(
    form: Form, schema: Schema | msgspec.Raw, form_type: str | None = None
) -> msgspec.Raw:
    """The JSON object that a filled-in form says, held against the schema it was made of.

    A field that is optional and empty is left out, so that the default counts, unless the form
    showed a default in it: then it was emptied on purpose, which is null, no items or no text.
    Fields that the schema does not know are ignored. Of more than `MOST_EXPLAINED` values only the
    types of fields are judged here: what takes the values finds what is wrong with them. FORM_TYPE
    may be missing, but not be another one than `form_type`.

    Raises:
        InvalidForm: some fields do not fit; all of them are named.
        ValueError: a property is called FORM_TYPE.
        TypeError: `schema` is no JSON object.
    """
    declared = _read(schema)
    given: dict[str, Field] = {}
    reasons: dict[str, str] = {}
    said = form.form_type
    if form_type is not None and said is not None and said != form_type:
        reasons[FORM_TYPE] = f"expected {form_type}"
    for field in form.fields:
        if field.var is not None and given.setdefault(field.var, field) is not field:
            reasons[field.var] = "was given more than once"
    values: dict[str, Any] = {}
    for each in properties_of(declared):
        if each.name in reasons:
            continue
        try:
            value = _value(each, given.get(each.name))
        except ValueError as error:
            reasons[each.name] = printable(str(error), _LONGEST_REASON)
            continue
        if value is not ABSENT:
            values[each.name] = value
    known = {each.name for each in properties_of(declared)} | {FORM_TYPE}
    reasons = {name: reason for name, reason in reasons.items() if name in known}
    if number_of_values(values) <= MOST_EXPLAINED:
        reasons |= _misfits(declared, values)
    if reasons:
        raise InvalidForm(reasons)
    return msgspec.Raw(msgspec.json.encode(values))


def number_of_values(value: Any) -> int:
    """How many JSON values there are in one, itself included."""
    if not isinstance(value, list | dict):
        return 1
    items = value.values() if isinstance(value, dict) else value
    nested = [number_of_values(item) - 1 for item in items if isinstance(item, list | dict)]
    return 1 + len(items) + sum(nested)


def _read(schema: Schema | msgspec.Raw) -> Schema:
    read = msgspec.json.decode(schema) if isinstance(schema, msgspec.Raw) else schema
    if not isinstance(read, Mapping):
        raise TypeError("a form is made of a JSON Schema that is an object")
    declared = read.get("properties")
    if isinstance(declared, Mapping) and FORM_TYPE in declared:
        raise ValueError("a property cannot be called FORM_TYPE, which a form has already")
    return read


def _value(declared: Property, field: Field | None) -> Any:
    if field is None:
        if declared.required:
            raise ValueError("is required")
        return ABSENT
    whole = "".join(field.values)
    if whole != without_forbidden(whole):
        raise ValueError("holds a character that no text can have")
    return declared.read(field.values)


def _misfits(schema: Schema, values: Mapping[str, Any]) -> dict[str, str]:
    """Why values do not fit their properties, those that do not; required ones are seen before."""
    # Nobody pays for it who is never sent a form.
    from jsonschema.exceptions import best_match  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    found: dict[str, str] = {}
    if not _is_readable(msgspec.json.encode(schema)):
        return found  # nothing can be held against it
    validator = validator_class()({**schema, "required": []})
    for name, value in values.items():
        try:
            errors = [error for error in validator.iter_errors({name: value}) if error.path]
            worst = best_match(errors)
        except RecursionError:
            found[name] = "is nested too deeply"
            continue
        except Unresolvable:
            continue  # it refers to what is not there
        if worst is not None:
            where = worst.json_path.removeprefix(f"$.{name}").removeprefix(".")
            reason = f"{where}: {worst.message}" if where else worst.message
            found[name] = printable(reason, _LONGEST_REASON)
    return found


@lru_cache(128)
def _is_readable(schema: bytes) -> bool:
    """Whether a JSON Schema is one. Remembered: to look takes 40 times as long as to validate."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415

    try:
        Draft202012Validator.check_schema(msgspec.json.decode(schema))
    except SchemaError:
        return False
    return True


def _field(
    declared: Property, values: Mapping[str, Any], given: Form | None, reason: str | None
) -> Field:
    texts = _shown(declared, values, given)
    desc = declared.description
    if reason is not None:
        sentence = f"{reason[:1].upper()}{reason[1:].rstrip('.')}."
        desc = sentence if desc is None else f"{sentence} {desc}"
    return Field(
        var=without_forbidden(declared.name),
        type=_type(declared, texts),
        label=without_forbidden(declared.title or declared.name),
        desc=None if desc is None else without_forbidden(desc),
        required=declared.required,
        values=texts,
        options=tuple([Option(label=each.label, value=each.text) for each in declared.choices]),
        validate=_validation(declared),
    )


def _shown(declared: Property, values: Mapping[str, Any], given: Form | None) -> tuple[str, ...]:
    field = None if given is None else given.field(declared.name)
    if field is not None:
        return tuple(map(without_forbidden, field.values))
    if given is not None:
        return ()
    if declared.name not in values:
        return declared.shown_default()
    texts = declared.texts(values[declared.name]) or ()
    return texts if all(text == without_forbidden(text) for text in texts) else ()


def _type(declared: Property, texts: tuple[str, ...]) -> FieldType:
    if declared.kind == "boolean":
        return "boolean"
    if declared.kind == "choice":
        return "list-single"
    if declared.kind == "choices":
        return "list-multi"
    several = declared.several_lines or (declared.kind == "text" and len(texts) > 1)
    return "text-multi" if several or declared.kind in ("lines", "json") else "text-single"


def _validation(declared: Property) -> Validate | None:
    if declared.datatype is None:
        return None
    if declared.kind == "lines":
        return Validate(datatype=declared.datatype, open=True)
    if declared.least is None and declared.greatest is None:
        return Validate(datatype=declared.datatype, basic=True)
    return Validate(
        datatype=declared.datatype, range=Range(min=declared.least, max=declared.greatest)
    )
