"""From a ModelRequest to the body of a chat completions request."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from component.models.protocol import ChatMessage, ModelRequest, Tool
from component.models.tool_names import ToolNames

_HELD = "\n\nAnswer with JSON only, no other text, that fits this JSON Schema:\n"
_NOTE = "[A note from the system, which nobody else sees: {}]"


def message_of(message: ChatMessage, names: ToolNames) -> dict[str, Any]:
    """Give a message as it is sent. Without a text it has none: some refuse an empty one."""
    out: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        out["content"] = message.content or None
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": names.theirs(call.name),
                    "arguments": _arguments(call.arguments),
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    return out


def led(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Give the messages with one system message at most, the first.

    Templates of many open models refuse any other, and Anthropic moves all to the beginning, away
    from what they are about. So those at the beginning become one, and what the system says later
    is a note in the words of the user, which joins what the user has said just before.
    """
    out: list[ChatMessage] = []
    for message in messages:
        if message.role != "system":
            out.append(message)
        elif not out or (len(out) == 1 and out[0].role == "system"):
            before = f"{out.pop().content}\n\n" if out else ""
            out.append(ChatMessage("system", before + message.content))
        else:
            note = _NOTE.format(message.content)
            before = f"{out.pop().content}\n\n" if out[-1].role == "user" else ""
            out.append(ChatMessage("user", before + note))
    return tuple(out)


def tool_of(tool: Tool, names: ToolNames) -> dict[str, Any]:
    """Give a tool as it is sent."""
    return {
        "type": "function",
        "function": {
            "name": names.theirs(tool.name),
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def wishes(request: ModelRequest, names: ToolNames, temperature: float | None) -> dict[str, Any]:
    """What a body holds only where somebody wants it; `temperature` where the request has none."""
    found: dict[str, Any] = {}
    if request.temperature is not None:
        temperature = request.temperature
    if temperature is not None:
        found["temperature"] = temperature
    if request.tools:
        found["tools"] = [tool_of(tool, names) for tool in request.tools]
    if request.schema is not None:
        found["response_format"] = held_to(request.schema)
    return found


def held_to(schema: msgspec.Raw) -> dict[str, Any]:
    """Give the response_format for a schema; strict, which OpenAI enforces, where it may be."""
    decoded = msgspec.json.decode(schema)
    strict = isinstance(decoded, dict) and "anyOf" not in decoded and _strict(decoded)
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": strict},
    }


def asked_to(request: ModelRequest) -> tuple[ChatMessage, ...]:
    """Give the messages with the schema in words, for a provider that holds to none."""
    if request.schema is None:
        return request.messages
    told = _HELD + bytes(request.schema).decode()
    first, *rest = request.messages
    if first.role == "system":
        return (ChatMessage("system", first.content + told), *rest)
    return (ChatMessage("system", told.strip()), *request.messages)


def _strict(schema: Any) -> bool:
    """Whether every object of a schema lists all it has as required and nothing more is allowed."""
    if isinstance(schema, list):
        return all(map(_strict, schema))
    if not isinstance(schema, dict):
        return True
    if "properties" in schema or schema.get("type") == "object":
        properties = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False
        if not closed or set(properties) != set(schema.get("required", ())):
            return False
        return all(_strict(value) for key, value in schema.items() if key != "properties") and all(
            map(_strict, properties.values())
        )
    return all(map(_strict, schema.values()))


def _arguments(written: str) -> str:
    """Give arguments that are a JSON object: several servers fail on a call that has others."""
    try:
        msgspec.json.decode(written, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return json.dumps({"malformed": written})
    return written
