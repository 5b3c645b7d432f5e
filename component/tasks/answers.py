"""Reads answers to the questions of tasks, validates them against the schema that was shown, and
encodes them for storage.

The class of the answer may no longer exist when the answer arrives, so the schema is stored with
the question. This module does not access rows.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from component.skills.errors import DeclarationError
from component.skills.form_fields import Property
from component.skills.forms import InvalidForm, form_of, values_of
from component.skills.schema_properties import properties_of
from component.skills.validation import SchemaValidator
from xep.data_forms import FORM_TYPE, Form
from xep.fluux_agent import errors
from xep.fluux_agent.task import NAMESPACE, Input, InputAnswer, InputSchema, Question

Schema: TypeAlias = Mapping[str, Any]

_LARGEST: Final = 2**53


class Reply(msgspec.Struct, frozen=True):
    """An answer: its values; or None if the person declined, with the `reason`."""

    values: dict[str, Any] | None
    reason: str = ""

    def encoded(self) -> str:
        """Return the JSON to store as the result of the step that asked; equal for equal
        content.
        """
        kept = {"declined": self.reason} if self.values is None else {"value": self.values}
        return msgspec.json.encode(kept, order="deterministic").decode()


def input_for(
    text: str,
    schema: msgspec.Raw,
    *,
    id: str,  # noqa: A002 - the attribute's own name
    revision: int,
    expires: datetime,
    lang: str | None = "en",
) -> Input:
    """Return the question `text`, whose answer must match `schema`, a JSON Schema of type
    object.
    """
    return Input(
        id=id,
        revision=revision,
        expires=expires,
        questions=(Question(text=text, lang=lang),),
        schema=InputSchema(json=schema),
        form=form_of(schema, NAMESPACE, title=text),
    )


def schema_of(question: Input) -> dict[str, Any]:
    """Return the JSON Schema that an answer must match."""
    return msgspec.json.decode(question.schema.json, type=dict[str, Any])


def read_answer(schema: Schema, answer: InputAnswer) -> Reply:
    """Decode an answer. `check` validates it.

    Raises StanzaError: `malformed`, or `invalid-param` for a field whose value has the wrong type.
    """
    if answer.form is not None and answer.params is None:
        return _read_form(schema, answer.form)
    if answer.params is None or answer.form is not None:
        raise errors.malformed("An answer contains either <params/> or a form.")
    try:
        values = msgspec.json.decode(answer.params.json)  # its size was checked when it was read
    except (ValueError, RecursionError) as error:
        raise errors.malformed(f"The JSON of the answer cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise errors.malformed("The answer is not a JSON object.")
    return Reply(_plain(values))


def only_value(question: Input) -> Property | None:
    """Return the property that a text answers: the only required one, else the only one that there
    is; None if there are several.
    """
    properties = properties_of(schema_of(question))
    needed = [each for each in properties if each.required]
    able = needed or [each for each in properties if is_sayable(each)]
    return able[0] if len(able) == 1 and is_sayable(able[0]) else None


def is_yes_or_no(question: Input) -> bool:
    """Return whether yes and no answer the question: it has exactly one property, a boolean."""
    declared = only_value(question)
    return declared is not None and declared.kind == "boolean"


def is_sayable(declared: Property) -> bool:
    """Return whether the value of a property can be given in words."""
    return declared.kind not in ("json", "lines")


def check(schema: Schema, values: Mapping[str, Any]) -> None:
    """Validate the values against the schema (JSON Schema 2020-12).

    Raises StanzaError: `invalid-param`, which names the property.
    """
    try:
        wrong = SchemaValidator(schema).mismatch(dict(values))
    except DeclarationError as error:
        raise errors.invalid_param("answer", f"cannot be validated: {error}") from None
    if wrong is not None:
        raise errors.invalid_param(wrong.member or "answer", wrong.reason)


def _read_form(schema: Schema, form: Form) -> Reply:
    if form.type == "cancel":
        return Reply(None)
    if form.type != "submit":
        raise errors.malformed('The form of an answer has type "submit" or "cancel".')
    try:
        values = msgspec.json.decode(values_of(form, schema, NAMESPACE))
    except InvalidForm as error:
        name, reason = next(iter(error.reasons.items()))
        if name == FORM_TYPE:
            raise errors.malformed(str(error)) from None
        raise errors.invalid_param(name, reason) from None
    return Reply(_plain(values))


def _plain(value: Any) -> Any:
    """Normalise JSON: 1.0 and 1 become the same number."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST:
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value
