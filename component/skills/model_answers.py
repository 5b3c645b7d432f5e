"""What a skill asks a model for, and the answer as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from component.skills.errors import DeclarationError, SkillError, UsageError
from component.skills.validation import SchemaValidator

CAPABILITY = "llm"
"""What a skill declares that asks a model."""

Problem: TypeAlias = Literal["unavailable", "refused", "budget", "invalid"]


class ModelFailed(SkillError):  # noqa: N818 - the name says what happened to the skill
    """A model did not give the answer that a skill asked for. Raised by `Context.llm`.

    `problem` is `unavailable` if no model can be reached now, `refused` if none is set up or its
    provider rejects the request, `budget` if a budget does not suffice, and `invalid` if the answer
    does not fit the schema.
    """

    def __init__(self, problem: Problem, message: str) -> None:
        self.problem: Problem = problem
        super().__init__(message)


class ModelOutcome(msgspec.Struct, frozen=True):
    """The record of a question to a model: the answer, or a problem with a sentence."""

    text: str
    problem: Problem | None = None

    def answer(self) -> str:
        """Return the answer. Raises ModelFailed."""
        if self.problem is not None:
            raise ModelFailed(self.problem, self.text)
        return self.text


class ModelQuestion(msgspec.Struct, frozen=True):
    """A question to a model.

    Attributes:
        check: reads an answer. Raises ValueError, which says what is wrong with it.
        model: the only model that may answer; empty for that of the agent, whichever it is.
    """

    prompt: str
    schema: msgspec.Raw
    max_tokens: int
    check: Callable[[str], object]
    model: str = ""


def question(
    prompt: str, schema: type[Any] | Mapping[str, Any], max_tokens: int, model: str = ""
) -> ModelQuestion:
    """Make a question; `schema` is a type of fields or a JSON Schema. Raises UsageError."""
    if max_tokens < 1:
        raise UsageError(f"An answer of {max_tokens} tokens cannot be asked for.")
    if isinstance(schema, Mapping):
        check = _schema_check(schema)
        encoded = msgspec.json.encode(schema)
    else:
        from component.skills.schema import object_schema  # noqa: PLC0415 - it imports Context

        encoded = msgspec.json.encode(object_schema(schema))
        check = msgspec.json.Decoder(schema).decode
    return ModelQuestion(prompt, msgspec.Raw(encoded), max_tokens, check, model)


def _schema_check(schema: Mapping[str, Any]) -> Callable[[str], object]:
    if schema.get("type") != "object":
        raise UsageError("A model is asked for an object: write 'type': 'object' in the schema.")
    try:
        validator = SchemaValidator(schema)
    except DeclarationError as error:
        raise UsageError(f"What a model is asked for: {error}") from None

    def check(text: str) -> object:
        value = msgspec.json.decode(text)
        wrong = validator.mismatch(value)
        if wrong is not None:
            raise ValueError(wrong.reason)
        return value

    return check
