"""Requests of a server: questions to the person who calls, and to a language model (MCP 2025-11-25,
Elicitation and Sampling).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from component.skills.errors import DeclarationError
from component.skills.foreign_texts import clean, line
from component.skills.validation import SchemaValidator
from xep.binding.escaping import without_forbidden
from xep.data_forms import FORM_TYPE

_LONGEST_MESSAGE: Final = 2000
_LONGEST_PROMPT: Final = 20_000
_MOST_TOKENS: Final = 2048
_LONGEST_WORDS: Final = 300
_MOST_FIELDS: Final = 20
_NO_FIELD: Final = "a field of a question is a text, a number, a boolean or a choice"
_MOST_CHOICES: Final = 500
_KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("format", "minLength", "maxLength", "pattern"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "boolean": (),
    "array": ("minItems", "maxItems"),
}
"""What restricts a value, by its type."""

AGREEMENT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"agree": {"type": "boolean"}},
    "required": ["agree"],
}
"""The schema of the answer to a question without fields."""


def question_of(server: str, request: Mapping[str, Any]) -> str:
    """Return the text of a question. It names the server, whose words it contains."""
    message = clean(str(request.get("message", "")), _LONGEST_MESSAGE)
    return f"The MCP server {server} asks: {message}"


def schema_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the JSON Schema of the answer to a question, with what a form can show of it.

    Raises ValueError if it has other fields than texts, numbers, booleans and choices.
    """
    asked = request.get("requestedSchema")
    properties = asked.get("properties") if isinstance(asked, Mapping) else None
    if not isinstance(properties, Mapping) or len(properties) > _MOST_FIELDS:
        raise ValueError(f"a question needs fields, and at most {_MOST_FIELDS}")
    assert isinstance(asked, Mapping)
    if not properties:
        return AGREEMENT
    required = asked.get("required")
    needed = required if isinstance(required, list) else []
    fields = {_sendable(name): _field(described) for name, described in properties.items()}
    if FORM_TYPE in fields:
        raise ValueError(f"a field of a question cannot be called {FORM_TYPE}")
    schema = {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name in needed],
    }
    try:
        validator = SchemaValidator(schema)
    except DeclarationError as error:
        raise ValueError(str(error)) from error
    for name, field in fields.items():
        if "default" in field:
            wrong = validator.mismatches({name: field["default"]})
            if any(one.member == name for one in wrong):
                del field["default"]
    return schema


def _field(described: object) -> dict[str, Any]:
    if not isinstance(described, Mapping):
        raise ValueError(_NO_FIELD)  # noqa: TRY004 - it is what the server sent
    described = _without_null(described)
    choices = _choices(described)
    kind = described.get("type", "string" if choices else None)
    if not isinstance(kind, str) or kind not in _KEYWORDS:
        raise ValueError(_NO_FIELD)
    field: dict[str, Any] = {"type": kind}
    for name, longest in (("title", _LONGEST_WORDS), ("description", _LONGEST_MESSAGE)):
        if isinstance(described.get(name), str):
            field[name] = clean(described[name], longest)
    field |= {name: described[name] for name in _KEYWORDS[kind] if name in described}
    if "default" in described:
        field["default"] = described["default"]
    if kind == "array":
        items = described.get("items")
        choices = _choices(items) if isinstance(items, Mapping) else None
        if choices is None:
            return {**field, "items": {"type": "string"}}
        return {**field, "items": choices, "uniqueItems": True}
    return field if kind == "boolean" else field | (choices or {})


def _without_null(described: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a field without the alternative of null that Pydantic writes."""
    kinds = described.get("type")
    if isinstance(kinds, list) and "null" in kinds:
        others = [kind for kind in kinds if kind != "null"]
        return {**described, "type": others[0] if len(others) == 1 else others}
    for key in ("anyOf", "oneOf"):
        parts = described.get(key)
        if isinstance(parts, list) and {"type": "null"} in parts:
            rest = [part for part in parts if part != {"type": "null"}]
            own = {name: value for name, value in described.items() if name != key}
            if len(rest) == 1 and isinstance(rest[0], Mapping):
                return {**rest[0], **own}
            return {**own, key: rest}
    return described


def _choices(described: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the choices of a schema, in the ways of newer and older servers; None for none."""
    for key in ("oneOf", "anyOf"):
        parts = described.get(key)
        if isinstance(parts, list) and parts:
            return _titled([_constant(part) for part in parts])
    values = described.get("enum")
    if not isinstance(values, list):
        return None
    names = described.get("enumNames")
    if isinstance(names, list) and len(names) == len(values):
        return _titled(list(zip(values, names, strict=True)))
    return {"enum": [_value(each) for each in _bounded(values)]}


def _constant(part: object) -> tuple[Any, Any]:
    if not isinstance(part, Mapping) or "const" not in part:
        raise ValueError("the alternatives of a field must be constants")
    return part["const"], part.get("title")


def _titled(choices: list[tuple[Any, Any]]) -> dict[str, Any]:
    made: list[dict[str, Any]] = []
    for value, title in _bounded(choices):
        shown = line(title, _LONGEST_WORDS) if isinstance(title, str) else ""
        made.append({"const": _value(value), **({"title": shown} if shown else {})})
    return {"oneOf": made}


def _bounded(choices: list[Any]) -> list[Any]:
    if not 0 < len(choices) <= _MOST_CHOICES:
        raise ValueError(f"a field has at least 1 and at most {_MOST_CHOICES} choices")
    return choices


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return _sendable(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("the choices of a field are texts or numbers")  # noqa: TRY004
    return value


def _sendable(text: object) -> str:
    """Return a text that goes back to the server as it is. Raises ValueError if XML cannot."""
    if not isinstance(text, str) or text != without_forbidden(text):
        raise ValueError("the name or a choice of a field has a character that cannot be sent")
    return text


def answer_of(schema: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer in the form of the protocol; what the person left out is not in it."""
    if schema is AGREEMENT:
        return {"action": "accept", "content": {}} if answer["agree"] else {"action": "decline"}
    content = {name: value for name, value in answer.items() if value is not None}
    return {"action": "accept", "content": content}


# Sampling.

ANSWER: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "The answer."}},
    "required": ["text"],
}
"""The JSON Schema of the model's answer."""


def prompt_of(request: Mapping[str, Any]) -> str:
    """Return the texts of a request as one prompt. Raises ValueError for anything but texts."""
    parts = []
    if isinstance(system := request.get("systemPrompt"), str):
        parts.append(system)
    for message in request.get("messages", ()):
        content = message.get("content")
        blocks = content if isinstance(content, Sequence) else (content,)
        for block in blocks:
            if not isinstance(block, Mapping) or block.get("type") != "text":
                raise ValueError("only texts can be given to the model")
            role = "Assistant" if message.get("role") == "assistant" else "User"
            parts.append(f"{role}: {block.get('text', '')}")
    return clean("\n\n".join(parts), _LONGEST_PROMPT)


def tokens_of(request: Mapping[str, Any]) -> int:
    """Return the maximum number of tokens of the answer."""
    wanted = request.get("maxTokens")
    return min(max(wanted, 1), _MOST_TOKENS) if isinstance(wanted, int) else _MOST_TOKENS


def reply_of(text: str) -> dict[str, Any]:
    """Return the answer in the form of the protocol."""
    return {
        "role": "assistant",
        "content": {"type": "text", "text": text},
        "model": "agent",
        "stopReason": "endTurn",
    }
