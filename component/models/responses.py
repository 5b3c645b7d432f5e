"""The dialect of OpenAI's Responses API, without state at the provider
(https://platform.openai.com/docs/api-reference/responses).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from component.models import call_ids
from component.models.adapter import SDK
from component.models.call_fields import with_fields
from component.models.catalog import Target
from component.models.chat_request import (
    asked_to,
    json_arguments,
    normalize_roles,
    sent_ids,
    strict_schema,
)
from component.models.contents import IMAGES, PDF, adapted, data_url
from component.models.faults import Fault
from component.models.messages import (
    FilePart,
    ImagePart,
    ModelMessage,
    OpaquePart,
    Part,
    TextPart,
    ToolCall,
    ToolResultPart,
    text_of,
)
from component.models.options import LeftOut, merged
from component.models.protocol import ModelRequest, OnText
from component.models.responses_reader import Phase, ResponsesReader
from component.models.tool_names import ToolNames

_OPTIONAL: Final = ("temperature", "text", "reasoning", "tool_choice", "include", "store")

_phases = msgspec.json.Decoder(Phase)

_Item = dict[str, Any] | msgspec.Raw


class Responses:
    """The Responses API of one model; see Adapter.

    Nothing is stored at the provider (`store: false`): each request has the whole conversation, and
    reasoning comes back encrypted, to be given back in its place.
    """

    sdk: SDK = "openai"
    path = "/responses"
    headers: Mapping[str, str] = {}

    def __init__(self, target: Target) -> None:
        self.origin = f"responses/{target.choice.model}"
        self._target = target
        self._is_openai = target.official and target.choice.provider == "openai"
        self._left_out = LeftOut(target, _OPTIONAL)

    def body(self, request: ModelRequest, names: ToolNames) -> bytes:
        """The body of a request; see Adapter.body."""
        choice = self._target.choice
        in_words = request.schema is not None and "text" in self._left_out
        messages: Sequence[ModelMessage] = asked_to(request) if in_words else request.messages
        if not self._is_openai:
            messages = normalize_roles(messages)
        body: dict[str, Any] = {
            "model": choice.model,
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": min(request.max_tokens, choice.max_tokens_per_request),
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": names.theirs(tool.name),
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in request.tools
            ]
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
        if messages and messages[0].role == "system":
            body["instructions"] = messages[0].text
            messages = messages[1:]
        seen = IMAGES if self._target.vision else ()
        messages = adapted(messages, self.origin, images=seen, files=PDF)
        ids = sent_ids(messages)
        body["input"] = [item for message in messages for item in _items(message, names, ids)]
        if not self._is_openai:
            body["input"] = [_spelled_out(item) for item in body["input"]]
        self._optional(body, request)
        self._left_out.remove_from(body)
        return msgspec.json.encode(merged(body, choice.extra_body))

    def reader(
        self, request: ModelRequest, names: ToolNames, on_text: OnText | None
    ) -> ResponsesReader:
        """A reader of one answer."""
        return ResponsesReader(on_text)

    def leave_out(self, fault: Fault) -> bool:
        """Stop sending what the provider rejects; see Adapter.leave_out."""
        return self._left_out.add(fault)

    def _optional(self, body: dict[str, Any], request: ModelRequest) -> None:
        choice = self._target.choice
        temperature = choice.temperature if request.temperature is None else request.temperature
        if temperature is not None:
            body["temperature"] = temperature
        if choice.reasoning_effort is not None:
            body["reasoning"] = {"effort": choice.reasoning_effort}
        if request.schema is not None:
            body["text"] = {
                "format": {
                    "type": "json_schema",
                    "name": "answer",
                    "schema": request.schema,
                    "strict": strict_schema(request.schema),
                }
            }


def _items(message: ModelMessage, names: ToolNames, ids: Mapping[str, str]) -> list[_Item]:
    """Translate a message into items, in the order of its parts."""
    items: list[_Item] = []
    said: list[Part] = []

    def flush(phase: dict[str, str] | None = None) -> None:
        if content := _content(said):
            if message.role == "assistant":
                items.append({"role": "assistant", "content": text_of(said), **(phase or {})})
            else:
                role = "developer" if message.role == "system" else "user"
                items.append({"role": role, "content": content})
        said.clear()

    for part, fields in with_fields(message.parts):
        match part:
            case ToolCall(id_, name, arguments):
                flush()
                call = {
                    "type": "function_call",
                    "call_id": ids.get(id_) or call_ids.portable(id_),
                    "name": names.theirs(name),
                    "arguments": json_arguments(names.arguments_for(name, arguments)),
                }
                items.append({k: v for k, v in fields.items() if k != "id"} | call)
            case ToolResultPart(id_):
                flush()
                id_ = ids.get(id_) or call_ids.portable(id_)
                items.append(
                    {"type": "function_call_output", "call_id": id_, "output": _output(part)}
                )
            case OpaquePart():
                phase = _phase(part.data)
                flush(phase)
                if phase is None:
                    items.append(part.data)
            case _:
                said.append(part)
    flush()
    return items


def _phase(data: msgspec.Raw) -> dict[str, str] | None:
    """The phase of the text before, if that is what an opaque part has."""
    try:
        return {"phase": _phases.decode(data).phase}
    except msgspec.ValidationError:
        return None


def _spelled_out(item: _Item) -> _Item:
    """An assistant's message in full: llama.cpp's server does not know the short form."""
    if not isinstance(item, dict) or item.get("role") != "assistant":
        return item
    text = {"type": "output_text", "text": item["content"], "annotations": []}
    message = {"type": "message", "id": "msg", "role": "assistant", "status": "completed"}
    phase = {"phase": item["phase"]} if "phase" in item else {}
    return message | {"content": [text]} | phase


def _output(result: ToolResultPart) -> str | list[dict[str, Any]]:
    if all(isinstance(part, TextPart) for part in result.parts):
        return result.text
    return _content(result.parts)


def _content(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Translate texts, images and files."""
    content: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case TextPart(text):
                content.append({"type": "input_text", "text": text})
            case ImagePart():
                content.append(
                    {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
                )
            case FilePart():
                content.append(
                    {"type": "input_file", "filename": part.name, "file_data": data_url(part)}
                )
    return content
