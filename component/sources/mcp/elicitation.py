"""Questions of a server to the person who calls (MCP 2025-11-25, Elicitation)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from component.sources.mcp.texts import clean, clean_schema, line

_LONGEST_MESSAGE: Final = 2000
_LONGEST_WORDS: Final = 300
_MOST_FIELDS: Final = 20
_TYPES: Final[Mapping[object, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[str],
}


class Agreement(msgspec.Struct, frozen=True):
    """The answer to a question without fields."""

    agree: bool


def question_of(server: str, request: Mapping[str, Any]) -> str:
    """Return the text of a question. It names the server, whose words it contains."""
    message = clean(str(request.get("message", "")), _LONGEST_MESSAGE)
    return f"The MCP server {server} asks: {message}"


def form_of(request: Mapping[str, Any]) -> type[msgspec.Struct]:
    """Return the fields of a question, by its JSON Schema, as a type.

    Raises ValueError if it has other fields than texts, numbers, booleans and choices.
    """
    schema = request.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or len(properties) > _MOST_FIELDS:
        raise ValueError(f"a question needs fields, and at most {_MOST_FIELDS}")
    assert isinstance(schema, Mapping)
    if not properties:
        return Agreement
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    first: list[Any] = []
    others: list[Any] = []
    for number, (name, described) in enumerate(properties.items()):
        hint = _type_of(described)
        own = f"field_{number}"
        if name in needed:
            first.append((own, hint, msgspec.field(name=name)))
        else:
            others.append((own, hint | None, msgspec.field(name=name, default=None)))
    return msgspec.defstruct("Answer", [*first, *others], frozen=True)


def _type_of(described: object) -> Any:
    kind = described.get("type") if isinstance(described, Mapping) else None
    if not isinstance(kind, str) or kind not in _TYPES or not isinstance(described, Mapping):
        raise ValueError("a field of a question is a text, a number, a boolean or a choice")
    shown = clean_schema(dict(described), _LONGEST_WORDS)
    shown.pop("default", None)  # the person says it, not the server
    if "enumNames" in shown and isinstance(shown.get("enum"), list):
        # Titles of choices as older servers write them.
        titles = shown.pop("enumNames")
        shown["oneOf"] = [
            {"const": value, "title": line(str(title), _LONGEST_WORDS)}
            for value, title in zip(shown.pop("enum"), titles, strict=False)
        ]
    return Annotated[_TYPES[kind], msgspec.Meta(extra_json_schema=shown)]


def answer_of(answer: msgspec.Struct) -> dict[str, Any]:
    """Return the answer in the form of the protocol; what the person left out is not in it."""
    if isinstance(answer, Agreement):
        return {"action": "accept", "content": {}} if answer.agree else {"action": "decline"}
    values: dict[str, Any] = msgspec.to_builtins(answer)
    content = {name: value for name, value in values.items() if value is not None}
    return {"action": "accept", "content": content}
