"""The dialect of Anthropic's Messages API (https://platform.claude.com/docs/en/api/messages)."""

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
)
from component.models.contents import IMAGES, PDF, adapted, encoded
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
)
from component.models.messages_reader import MessagesReader
from component.models.options import LeftOut, merged
from component.models.protocol import ModelRequest, OnText
from component.models.tool_names import ToolNames

_OPTIONAL: Final = ("temperature", "output_config", "thinking", "tool_choice", "cache_control")
_TOOL_CHOICE: Final = {"none": {"type": "none"}, "required": {"type": "any"}}
_BEGINNING: Final = "[The beginning of this conversation is left out.]"
_EPHEMERAL: Final = {"type": "ephemeral"}
_MARKED: Final = 2
"""How many messages of the user are marked for the cache: the last one, and the previous one, at
which the previous request ended."""

_Block = dict[str, Any]


class Messages:
    """The Messages API of one model; see Adapter."""

    sdk: SDK = "anthropic"
    headers: Mapping[str, str] = {}

    def __init__(self, target: Target) -> None:
        # Base URLs for Anthropic's SDK have no /v1, those for other dialects have it.
        self.path = "/messages" if target.base_url.endswith("/v1") else "/v1/messages"
        self.origin = f"messages/{target.choice.model}"
        self._target = target
        self._left_out = LeftOut(target, _OPTIONAL)

    def body(self, request: ModelRequest, names: ToolNames) -> bytes:
        """The body of a request; see Adapter.body."""
        choice = self._target.choice
        in_words = request.schema is not None and "output_config" in self._left_out
        messages = normalize_roles(asked_to(request) if in_words else request.messages)
        system = ""
        if messages and messages[0].role == "system":
            system, messages = messages[0].text, messages[1:]
        seen = IMAGES if self._target.vision else ()
        messages = adapted(messages, self.origin, images=seen, files=PDF)
        blocks = self._messages(messages, names, sent_ids(messages))
        body: dict[str, Any] = {
            "model": choice.model,
            "max_tokens": min(request.max_tokens, choice.max_tokens_per_request),
            "stream": True,
        }
        if request.tools:
            body["tools"] = [
                {
                    "name": names.theirs(tool.name),
                    "description": tool.description,
                    "input_schema": tool.parameters,
                }
                for tool in request.tools
            ]
            if request.tool_choice != "auto":
                body["tool_choice"] = _TOOL_CHOICE[request.tool_choice]
        if system:
            body["system"] = [{"type": "text", "text": system}]
        body["messages"] = blocks
        self._optional(body, request)
        self._left_out.remove_from(body)
        if choice.cache and "cache_control" not in self._left_out:
            _mark(body)
        return msgspec.json.encode(merged(body, choice.extra_body))

    def reader(
        self, request: ModelRequest, names: ToolNames, on_text: OnText | None
    ) -> MessagesReader:
        """A reader of one answer."""
        return MessagesReader(on_text, unsigned="claude" not in self._target.choice.model.lower())

    def leave_out(self, fault: Fault) -> bool:
        """Stop sending what the provider rejects; see Adapter.leave_out."""
        return self._left_out.add(fault)

    def _optional(self, body: dict[str, Any], request: ModelRequest) -> None:
        choice = self._target.choice
        temperature = choice.temperature if request.temperature is None else request.temperature
        output: dict[str, Any] = {}
        effort = choice.reasoning_effort
        if effort == "none":
            body["thinking"] = {"type": "disabled"}
        elif effort is not None:
            body["thinking"] = {"type": "adaptive"}
            output["effort"] = effort
        if temperature is not None and effort in (None, "none"):
            # With thinking, only the temperature 1 is accepted; the maximum is always 1.
            body["temperature"] = min(temperature, 1.0)
        if request.schema is not None:
            output["format"] = {"type": "json_schema", "schema": request.schema}
        if output:
            body["output_config"] = output

    def _messages(
        self, messages: Sequence[ModelMessage], names: ToolNames, ids: Mapping[str, str]
    ) -> list[_Block]:
        """Translate messages. Adjacent messages of one role are joined, so that all results of a
        round are in one message.
        """
        out: list[_Block] = []
        for message in messages:
            role = "assistant" if message.role == "assistant" else "user"
            content = [
                block
                for part, fields in with_fields(message.parts)
                if (block := _block(part, names, ids, fields))
            ]
            if not content:
                continue
            if out and out[-1]["role"] == role:
                out[-1]["content"] += content
            else:
                out.append({"role": role, "content": content})
        if not out or out[0]["role"] != "user":
            out.insert(0, {"role": "user", "content": [_text(_BEGINNING)]})
        return out


def _block(
    part: Part, names: ToolNames, ids: Mapping[str, str] = {}, fields: Mapping[str, Any] = {}
) -> _Block | msgspec.Raw | None:
    """Translate a part; None if a request cannot have it. `ids` are those of calls as they are
    sent, `fields` what the provider wants back with a call.
    """
    match part:
        case TextPart(text):
            return _text(text) if text.strip() else None  # empty texts are rejected
        case ImagePart(media_type, data):
            return {"type": "image", "source": _base64(media_type, data)}
        case FilePart(name, media_type, data):
            return {"type": "document", "source": _base64(media_type, data), "title": name}
        case ToolCall(id_, name, arguments):
            arguments = json_arguments(names.arguments_for(name, arguments))
            return {
                **fields,
                "type": "tool_use",
                "id": ids.get(id_) or call_ids.portable(id_),
                "name": names.theirs(name),
                "input": msgspec.Raw(arguments.encode()),
            }
        case ToolResultPart(id_, parts, is_error):
            content = [block for inner in parts if (block := _block(inner, names))]
            result: _Block = {
                "type": "tool_result",
                "tool_use_id": ids.get(id_) or call_ids.portable(id_),
            }
            if content:
                result["content"] = content
            if is_error:
                result["is_error"] = True
            return result
        case OpaquePart():
            return part.data


def _text(text: str) -> _Block:
    return {"type": "text", "text": text}


def _base64(media_type: str, data: bytes) -> _Block:
    return {"type": "base64", "media_type": media_type, "data": encoded(data)}


def _mark(body: dict[str, Any]) -> None:
    """Mark the ends of the prefixes that the provider should cache: the tools and the system
    message, and the last messages of the user.
    """
    if "system" in body:
        body["system"][-1]["cache_control"] = _EPHEMERAL
    elif "tools" in body:
        body["tools"][-1]["cache_control"] = _EPHEMERAL
    ends = [message["content"][-1] for message in body["messages"] if message["role"] == "user"]
    for block in ends[-_MARKED:]:
        block["cache_control"] = _EPHEMERAL
