"""Converts a ModelRequest to the body of a chat completions request."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from component.models import call_ids
from component.models.call_fields import with_fields
from component.models.contents import data_url
from component.models.messages import (
    FilePart,
    ImagePart,
    ModelMessage,
    Part,
    TextPart,
    ToolCall,
    text_message,
    text_of,
)
from component.models.protocol import ModelRequest, Tool
from component.models.reasoning import returned
from component.models.tool_names import ToolNames

_HELD = "\n\nAnswer with JSON only, no other text, that fits this JSON Schema:\n"
_ATTACHED = "[Images and files of the results above]"
_NOTE = "[A note from the system, which nobody else sees: {}]"


def chat_messages(messages: Sequence[ModelMessage], names: ToolNames) -> list[dict[str, Any]]:
    """Translate messages.

    Results of tools can only be text, so their images and files follow the results of a round, in a
    message of the user.
    """
    out: list[dict[str, Any]] = []
    attached: list[dict[str, Any]] = []
    ids = sent_ids(messages)

    def attach() -> None:
        if attached:
            content = [{"type": "text", "text": _ATTACHED}, *attached]
            out.append({"role": "user", "content": content})
            attached.clear()

    for message in messages:
        if message.role != "tool":
            attach()
        out += messages_of(message, names, ids)
        for result in message.results:
            attached += [_content(part) for part in result.parts if not isinstance(part, TextPart)]
    attach()
    return out


def _content(part: Part) -> dict[str, Any]:
    """Translate a part of a message of the user."""
    match part:
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": data_url(part)}}
        case FilePart(name):
            return {"type": "file", "file": {"filename": name, "file_data": data_url(part)}}
    return {"type": "text", "text": text_of([part])}


def sent_ids(messages: Sequence[ModelMessage]) -> dict[str, str]:
    """The ids of calls as they are sent: those of the model itself, where they are known as its
    own, and otherwise ids that every API takes.
    """
    return {
        part.id: str(fields.get("id") or call_ids.portable(part.id))
        for message in messages
        if message.role == "assistant"
        for part, fields in with_fields(message.parts)
        if isinstance(part, ToolCall)
    }


def messages_of(
    message: ModelMessage, names: ToolNames, ids: Mapping[str, str] = {}
) -> list[dict[str, Any]]:
    """Translate a message. Each result of a tool becomes a message of its own.

    An assistant's message without text has the content `null`: some servers reject an empty one.
    """
    if message.role == "tool":
        return [
            {
                "role": "tool",
                "content": result.text,
                "tool_call_id": ids.get(result.id) or call_ids.portable(result.id),
            }
            for result in message.results
        ]
    out: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "assistant":
        out |= returned(message.parts)
    if message.role == "user" and not all(isinstance(part, TextPart) for part in message.parts):
        out["content"] = [_content(part) for part in message.parts]
    calls = [
        _call(part, fields, names, ids)
        for part, fields in with_fields(message.parts)
        if isinstance(part, ToolCall)
    ]
    if calls:
        out["content"] = out["content"] or None
        out["tool_calls"] = calls
    return [out]


def _call(
    call: ToolCall, fields: Mapping[str, Any], names: ToolNames, ids: Mapping[str, str]
) -> dict[str, Any]:
    inner = fields.get("function")
    function = {
        "name": names.theirs(call.name),
        "arguments": json_arguments(names.arguments_for(call.name, call.arguments)),
    }
    return {
        **fields,
        "id": ids.get(call.id) or call_ids.portable(call.id),
        "type": "function",
        "function": {**inner, **function} if isinstance(inner, dict) else function,
    }


def normalize_roles(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the messages with at most one system message, at the beginning.

    The templates of many open models reject others, and Anthropic moves all to the beginning, away
    from their context. So system messages at the beginning are joined, and later ones become notes
    in messages of the user, joined with the previous message of the user if there is one.
    """
    out: list[ModelMessage] = []
    for message in messages:
        if message.role != "system":
            out.append(message)
        elif not out or (len(out) == 1 and out[0].role == "system"):
            before = f"{out.pop().text}\n\n" if out else ""
            out.append(text_message("system", before + message.text))
        else:
            note = _NOTE.format(message.text)
            if out[-1].role == "user":
                parts = (*out.pop().parts, TextPart(f"\n\n{note}"))
                out.append(ModelMessage("user", parts))
            else:
                out.append(text_message("user", note))
    return tuple(out)


def join_adjacent(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Join adjacent messages of one role, except results of tools.

    The templates of many open models reject them otherwise. A message is added at the end of the
    previous one, so the beginning of the prompt does not change.
    """
    out: list[ModelMessage] = []
    for message in messages:
        if out and message.role == out[-1].role != "tool" and not out[-1].tool_calls:
            out.append(_joined(out.pop(), message))
        else:
            out.append(message)
    return tuple(out)


def _joined(one: ModelMessage, other: ModelMessage) -> ModelMessage:
    """Join two messages, with a blank line between their texts."""
    parts, more = list(one.parts), list(other.parts)
    if parts and more and isinstance(last := parts[-1], TextPart):
        if isinstance(first := more[0], TextPart):
            more[0] = TextPart(f"{last.text}\n\n{first.text}")
            parts.pop()
        elif one.role == "assistant":
            parts[-1] = TextPart(f"{last.text}\n\n")
    return ModelMessage(one.role, (*parts, *more))


def tool_of(tool: Tool, names: ToolNames) -> dict[str, Any]:
    """Return a tool in the format of the API."""
    return {
        "type": "function",
        "function": {
            "name": names.theirs(tool.name),
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def optional_params(
    request: ModelRequest, names: ToolNames, temperature: float | None
) -> dict[str, Any]:
    """Return the optional parameters of a body; `temperature` is used if the request has none."""
    found: dict[str, Any] = {}
    if request.temperature is not None:
        temperature = request.temperature
    if temperature is not None:
        found["temperature"] = temperature
    if request.tools:
        found["tools"] = [tool_of(tool, names) for tool in request.tools]
        if request.tool_choice != "auto":
            found["tool_choice"] = request.tool_choice
    if request.schema is not None:
        found["response_format"] = held_to(request.schema)
    return found


def held_to(schema: msgspec.Raw) -> dict[str, Any]:
    """Return the response_format for a schema; it is strict, so that OpenAI enforces it, if
    possible.
    """
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": strict_schema(schema)},
    }


def strict_schema(schema: msgspec.Raw) -> bool:
    """Whether OpenAI can enforce a schema strictly."""
    decoded = msgspec.json.decode(schema)
    return isinstance(decoded, dict) and "anyOf" not in decoded and _strict(decoded)


def asked_to(request: ModelRequest) -> tuple[ModelMessage, ...]:
    """Return the messages with the schema in the prompt, for providers without constrained
    output.
    """
    if request.schema is None:
        return request.messages
    told = _HELD + bytes(request.schema).decode()
    first, *rest = request.messages
    if first.role == "system":
        return (text_message("system", first.text + told), *rest)
    return (text_message("system", told.strip()), *request.messages)


def _strict(schema: Any) -> bool:
    """Whether every object of a schema requires all its properties and allows no others."""
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


def json_arguments(written: str) -> str:
    """Return arguments as a JSON object, because servers reject calls with other arguments.

    Anything else that a model wrote becomes the value of `malformed`.
    """
    try:
        msgspec.json.decode(written, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return json.dumps({"malformed": written.encode(errors="replace").decode()})
    return written
