"""Converts JSON Schemas to forms, and submitted forms to JSON.

The specification's "Forms from Schemas" (FAC-008, FAC-009): a field per property, with XEP-0122
validation where a client can validate. A submitted form is validated here, regardless of the
client: `form_values` finds every invalid field, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from component.skills.errors import DeclarationError, printable
from component.skills.form_fields import (
    ABSENT,
    EMPTY,
    NEWLINE,
    NOTHING_CHOSEN,
    Property,
    Schema,
    properties_of,
)
from component.skills.validation import SchemaValidator, path_text
from xep.binding.escaping import without_forbidden
from xep.data_forms import FORM_TYPE, Field, FieldType, Form, Option, form_type_field
from xep.form_validation import Range, Validate

_LONGEST_REASON = 300
_NOTHING: Mapping[str, Any] = {}


class InvalidForm(ValueError):  # noqa: N818 - says what is wrong, as those of the room do
    """A submitted form does not match its schema.

    `reasons` has an unfinished sentence for each invalid field, in their order.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = reasons
        said = [f"{printable(name, 100)}: {reason}" for name, reason in reasons.items()]
        super().__init__("; ".join(said))


def schema_form(
    schema: Schema | msgspec.Raw,
    form_type: str | None,
    *,
    title: str | None = None,
    instructions: str = "",
    given: Form | None = None,
    errors: Mapping[str, str] = _NOTHING,
) -> Form:
    """Return the form for a schema.

    Args:
        form_type: the FORM_TYPE (XEP-0068); None for a form without it.
        instructions: for the person who fills it in, an element per line.
        given: a submitted form, whose texts the fields show instead of defaults, unchanged.
        errors: reasons why it is shown again, by field: each is in the field's desc.

    Raises:
        ValueError: a property is called FORM_TYPE.
        TypeError: `schema` is not a JSON object.
    """
    properties = properties_of(_read(schema))
    fields = [] if form_type is None else [form_type_field(form_type)]
    fields += [_field(each, given, errors.get(each.name)) for each in properties]
    lines = [line for line in NEWLINE.split(instructions) if line]
    as_json = [each.label for each in properties if each.kind == "json"]
    if as_json:
        lines.append(f"To be written as JSON: {', '.join(as_json)}.")
    return Form(
        type="form",
        title=None if title is None else without_forbidden(title),
        instructions=tuple(map(without_forbidden, lines)),
        fields=tuple(fields),
    )


def form_values(
    form: Form, schema: Schema | msgspec.Raw, form_type: str | None = None
) -> msgspec.Raw:
    """Return the JSON object of a submitted form, validated against the schema that it was made
    from.

    An optional field that is empty is left out, so that the default applies, unless the form showed
    a default in it: then it was emptied on purpose, which is null, no items or no text. Unknown
    fields are ignored. FORM_TYPE may be missing, but must not differ from `form_type`.

    Raises:
        InvalidForm: some fields are invalid; all of them are named.
        ValueError: a property is called FORM_TYPE.
        TypeError: `schema` is not a JSON object.
    """
    declared = _read(schema)
    given: dict[str, Field] = {}
    reasons: dict[str, str] = {}
    said = form.form_type
    if form_type is not None and said is not None and said != form_type:
        reasons[FORM_TYPE] = f"expected {form_type}"
    for field in form.fields:
        if field.var is None:
            continue
        # Psi sends FORM_TYPE twice. A repetition without a value says nothing.
        known = given.get(field.var)
        if known is None or not any(known.values):
            given[field.var] = field
        elif any(field.values) and field.values != known.values:
            reasons[field.var] = "was given more than once, with different values"
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
    reasons |= _misfits(declared, values)
    ordered = (FORM_TYPE, *(each.name for each in properties_of(declared)))
    if found := {name: reasons[name] for name in ordered if name in reasons}:
        raise InvalidForm(found)
    return msgspec.Raw(msgspec.json.encode(values))


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
        raise ValueError("contains a character that texts cannot contain")
    return declared.read(field.values)


def _misfits(schema: Schema, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the errors of values by property; missing required ones are found earlier."""
    found: dict[str, str] = {}
    validator = _validator(msgspec.json.encode(schema))
    for wrong in () if validator is None else validator.mismatches(dict(values)):
        if wrong.path and wrong.member is not None and wrong.member not in found:
            where = path_text(wrong.path[1:])
            found[wrong.member] = f"{where}: {wrong.reason}" if where else wrong.reason
    return found


@lru_cache(128)
def _validator(schema: bytes) -> SchemaValidator | None:
    """Return what validates against a schema; None if the schema cannot be applied."""
    try:
        return SchemaValidator({**msgspec.json.decode(schema), "required": []})
    except DeclarationError:
        return None


def _field(declared: Property, given: Form | None, reason: str | None) -> Field:
    if given is None:
        texts = declared.shown_default()
    else:
        field = given.field(declared.name)
        texts = () if field is None else tuple(map(without_forbidden, field.values))
    texts = _chosen(declared, texts)
    desc = declared.description
    if reason is not None:
        sentence = f"{reason[:1].upper()}{reason[1:].rstrip('.')}."
        desc = sentence if desc is None else f"{sentence} {desc}"
    return Field(
        var=without_forbidden(declared.name),
        type=_type(declared, texts),
        label=without_forbidden(declared.label),
        desc=None if desc is None else without_forbidden(desc),
        required=declared.required,
        values=texts,
        options=_options(declared),
        validate=_validation(declared),
    )


def _chosen(declared: Property, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of a field as its options have them."""
    if declared.offers_nothing and not any(texts):
        return (NOTHING_CHOSEN,)
    has_empty = any(not choice.text for choice in declared.choices)
    return tuple(text or EMPTY for text in texts) if has_empty else texts


def _options(declared: Property) -> tuple[Option, ...]:
    """Return the choices. Each has a label and a value: Converse shows nothing for an option
    without a label, and profanity crashes if the value is empty.
    """
    options = [
        Option(label=without_forbidden(each.label or each.text), value=each.text or EMPTY)
        for each in declared.choices
    ]
    if declared.offers_nothing:
        options.insert(0, Option(label=NOTHING_CHOSEN, value=NOTHING_CHOSEN))
    return tuple(options)


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
