"""Answers to the questions of tasks: read by the schema that was shown, compared, written down.

The class that the skill wants its answer as may not be there any more when the answer comes; the
schema is kept with the question. No rows here.
"""

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import msgspec

from component.skills.errors import printable
from component.skills.forms import (
    MOST_EXPLAINED,
    InvalidForm,
    form_of,
    number_of_values,
    values_of,
)
from component.skills.validation import validator_class
from xep.data_forms import FORM_TYPE, Form
from xep.fluux_agent import errors
from xep.fluux_agent.task import NAMESPACE, Input, InputAnswer, InputSchema, Question

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

Schema: TypeAlias = Mapping[str, Any]

_LONGEST_REASON: Final = 300
_LARGEST: Final = 2**53
_FORMATS: Final[Mapping[str, type[Any]]] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
}


class Reply(msgspec.Struct, frozen=True):
    """What was answered: the values; None where the answer is declined, `reason` then says why."""

    values: dict[str, Any] | None
    reason: str = ""

    def encoded(self) -> str:
        """The JSON to keep, as the result of the step that asked; the same for the same content."""
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
    """The question `text`, whose answer has to fit `schema`, a JSON Schema of type object."""
    return Input(
        id=id,
        revision=revision,
        expires=expires,
        questions=(Question(text=text, lang=lang),),
        schema=InputSchema(json=schema),
        form=form_of(schema, NAMESPACE, title=text),
    )


def schema_of(question: Input) -> dict[str, Any]:
    """The JSON Schema that an answer has to fit."""
    return msgspec.json.decode(question.schema.json, type=dict[str, Any])


def read_answer(schema: Schema, answer: InputAnswer) -> Reply:
    """What an answer says. Whether that fits the schema is `check`'s to say.

    Raises StanzaError: `malformed`, or `invalid-param` for a field that is no value of its type.
    """
    if answer.form is not None and answer.params is None:
        return _read_form(schema, answer.form)
    if answer.params is None or answer.form is not None:
        raise errors.malformed("An answer holds either <params/> or a form.")
    try:
        values = msgspec.json.decode(answer.params.json)  # bounded where it was read
    except (ValueError, RecursionError) as error:
        raise errors.malformed(f"The JSON of the answer cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise errors.malformed("The JSON of the answer is no JSON object.")
    return Reply(_plain(values))


def check(schema: Schema, values: Mapping[str, Any]) -> None:
    """Hold the values against the schema (JSON Schema 2020-12).

    References out of the schema are not followed.
    Raises StanzaError: `invalid-param`, which names the property, or `malformed` for more values
    than can be checked quickly.
    """
    if number_of_values(values) > MOST_EXPLAINED:
        raise errors.malformed(f"An answer holds at most {MOST_EXPLAINED} values.")
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - slow to load, seldom needed
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    try:
        error = best_match(_validator(schema).iter_errors(values))
    except (RecursionError, Unresolvable):
        raise errors.invalid_param("answer", "cannot be held against the schema") from None
    if error is not None:
        raise errors.invalid_param(_blamed(error), printable(error.message, _LONGEST_REASON))


def _read_form(schema: Schema, form: Form) -> Reply:
    if form.type == "cancel":
        return Reply(None)
    if form.type != "submit":
        raise errors.malformed('A form that answers is of type "submit" or "cancel".')
    try:
        values = msgspec.json.decode(values_of(form, schema, NAMESPACE))
    except InvalidForm as error:
        name, reason = next(iter(error.reasons.items()))
        if name == FORM_TYPE:
            raise errors.malformed(str(error)) from None
        raise errors.invalid_param(name, reason) from None
    return Reply(_plain(values))


def _plain(value: Any) -> Any:
    """JSON in one form: 1.0 and 1 are the same number there."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST:
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _validator(schema: Schema) -> "Validator":
    from jsonschema import FormatChecker  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    formats = FormatChecker(())
    for name, type_ in _FORMATS.items():
        formats.checks(name, raises=msgspec.ValidationError)(_reader(type_))
    registry: Registry[Any] = Registry()  # empty, and fetches nothing
    return validator_class()(schema, registry=registry, format_checker=formats)


def _reader(type_: type[Any]) -> Any:
    def reads(value: object) -> bool:
        if isinstance(value, str):
            msgspec.convert(value, type_)
        return True

    return reads


def _blamed(error: "ValidationError") -> str:
    """The property that an error is about."""
    if error.absolute_path:
        return str(error.absolute_path[0])
    instance, schema = error.instance, error.schema
    if isinstance(instance, dict) and isinstance(schema, Mapping):
        if error.validator == "required":
            missing = [name for name in schema["required"] if name not in instance]
            return str(missing[0]) if missing else "answer"
        extra = [name for name in instance if name not in schema.get("properties", {})]
        if error.validator == "additionalProperties" and extra:
            return str(extra[0])
    return "answer"
