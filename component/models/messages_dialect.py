"""The dialect of Anthropic's Messages API (https://platform.claude.com/docs/en/api/messages)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from component.models.adapter import (
    Adapter,
    AnswerReader,
    SentIds,
    fault_in,
    normalize_roles,
    sent_arguments,
)
from component.models.answer_draft import DraftCall
from component.models.answer_limits import arguments_in, decode_any, decode_as, encode_any, text_in
from component.models.catalog import ModelTarget
from component.models.contents import IMAGES, PDF, adapted, base64_text
from component.models.messages import (
    FilePart,
    ImagePart,
    ModelMessage,
    OpaquePart,
    Part,
    TextPart,
    ToolCall,
    ToolResultPart,
    with_fields,
)
from component.models.protocol import ModelRequest, OnText
from component.models.tool_schemas import ToolNames
from component.models.usage import Reported, UsageFigures, later_usage

_TOOL_CHOICE: Final = {"none": {"type": "none"}, "required": {"type": "any"}}
_BEGINNING: Final = "[The beginning of this conversation is left out.]"
_EPHEMERAL: Final = {"type": "ephemeral"}
_MARKED: Final = 2
"""How many messages of the user are marked for the cache: the last one, and the previous one, at
which the previous request ended."""
_CALL: Final = ("type", "id", "name", "input", "cache_control")

_Block = dict[str, Any]


class Messages(Adapter):
    """The Messages API of one model."""

    optional: ClassVar = (
        "temperature",
        "output_config",
        "thinking",
        "tool_choice",
        "cache_control",
    )
    schema_parameter: ClassVar = "output_config"

    def __init__(self, target: ModelTarget) -> None:
        # Base URLs for Anthropic's SDK have no /v1, those for other dialects have it.
        super().__init__(target, "/messages" if target.base_url.endswith("/v1") else "/v1/messages")

    def _body(self, request: ModelRequest, names: ToolNames) -> dict[str, Any]:
        messages = normalize_roles(request.messages)
        body: dict[str, Any] = {"max_tokens": self._max_tokens(request)}
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
        if messages and messages[0].role == "system":
            if system := messages[0].text:
                body["system"] = [{"type": "text", "text": system}]
            messages = messages[1:]
        seen = IMAGES if self._target.vision else ()
        messages = adapted(messages, self.origin, images=seen, files=PDF)
        body["messages"] = _messages(messages, names)
        output: dict[str, Any] = {}
        effort = self._target.choice.reasoning_effort
        if effort == "none":
            body["thinking"] = {"type": "disabled"}
        elif effort is not None:
            body["thinking"] = {"type": "adaptive"}
            output["effort"] = effort
        if request.temperature is not None and effort in (None, "none"):
            # With thinking, only the temperature 1 is accepted; the maximum is always 1.
            body["temperature"] = min(request.temperature, 1.0)
        if request.schema is not None:
            output["format"] = {"type": "json_schema", "schema": request.schema}
        if output:
            body["output_config"] = output
        if self._target.choice.cache and "cache_control" not in self._left_out:
            _mark(body)
        return body

    def reader(
        self, request: ModelRequest, names: ToolNames, on_text: OnText | None
    ) -> "MessagesReader":
        """See Adapter.reader."""
        return MessagesReader(on_text, unsigned="claude" not in self._target.choice.model.lower())


def _messages(messages: Sequence[ModelMessage], names: ToolNames) -> list[_Block]:
    """Translate messages. All results of a round are in one message."""
    out: list[_Block] = []
    ids = SentIds(messages)
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
    part: Part, names: ToolNames, ids: SentIds, fields: Mapping[str, Any] = {}
) -> _Block | msgspec.Raw | None:
    """Translate a part; None if a request cannot have it. `fields` go back with a call."""
    match part:
        case TextPart(text):
            return _text(text) if text.strip() else None  # empty texts are rejected
        case ImagePart(media_type, data):
            return {"type": "image", "source": _base64(media_type, data)}
        case FilePart(name, media_type, data):
            return {"type": "document", "source": _base64(media_type, data), "title": name}
        case ToolCall():
            return {
                **fields,
                "type": "tool_use",
                "id": ids[part.id],
                "name": names.theirs(part.name),
                "input": msgspec.Raw(sent_arguments(part, names).encode()),
            }
        case ToolResultPart(id_, parts, is_error):
            content = [block for inner in parts if (block := _block(inner, names, ids))]
            result: _Block = {"type": "tool_result", "tool_use_id": ids[id_]}
            if content:
                result["content"] = content
            return result | {"is_error": True} if is_error else result
        case OpaquePart():
            return part.data


def _text(text: str) -> _Block:
    return {"type": "text", "text": text}


def _base64(media_type: str, data: bytes) -> _Block:
    return {"type": "base64", "media_type": media_type, "data": base64_text(data)}


def _mark(body: dict[str, Any]) -> None:
    """Mark what the provider should cache: tools or system message, and the last messages."""
    if "system" in body:
        body["system"][-1]["cache_control"] = _EPHEMERAL
    elif "tools" in body:
        body["tools"][-1]["cache_control"] = _EPHEMERAL
    ends = [message["content"][-1] for message in body["messages"] if message["role"] == "user"]
    for block in ends[-_MARKED:]:
        block["cache_control"] = _EPHEMERAL


# -- the answer -----------------------------------------------------------------------------------


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    content: list[dict[str, Any]] = []
    stop_reason: str | None = None
    usage: Any = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int | None = None
    message: _Message | None = None
    content_block: dict[str, Any] | None = None
    delta: _Delta | None = None
    usage: Any = None
    error: Any = None


_events = msgspec.json.Decoder(_Event)
_documents = msgspec.json.Decoder(_Message)


class _OpenBlock(msgspec.Struct, eq=False):
    """A block that is not complete yet, other than a text."""

    data: dict[str, Any]
    call: DraftCall | None
    pieces: list[str] = []
    signature: list[str] = []


class MessagesReader(AnswerReader):
    """Reads one answer of the Messages API
    (https://platform.claude.com/docs/en/build-with-claude/streaming).

    `unsigned` says whether the model takes thinking without a signature back. Those of Anthropic do
    not; others behind its API may have none, and some refuse a conversation without it.
    """

    def __init__(self, on_text: OnText | None, *, unsigned: bool = False) -> None:
        super().__init__(on_text)
        self._unsigned = unsigned
        self._blocks: dict[int | None, _OpenBlock] = {}

    def _event(self, data: bytes) -> bool:
        event = decode_as(_events, data)
        match event.type:
            case "message_start" if event.message is not None:
                self._use(event.message.usage)
                for block in event.message.content:  # in practice there is none yet
                    self._whole(block)
            case "content_block_start" if event.content_block is not None:
                self._start(event.index, event.content_block)
            case "content_block_delta" if event.delta is not None:
                self._grow(event.index, event.delta)
            case "content_block_stop":
                self._stop(event.index)
            case "message_delta":
                self._use(event.usage)
                self._end(event.delta.stop_reason if event.delta is not None else None)
            case "message_stop":
                return True
            case "error":
                raise fault_in(data)
        return False

    def _document(self, data: bytes) -> None:
        if decode_as(_events, data).type == "error":
            raise fault_in(data)
        message = decode_as(_documents, data)
        self._use(message.usage)
        for block in message.content:
            self._whole(block)
        self._end(message.stop_reason)

    def reported(self, figures: UsageFigures) -> Reported:
        """See AnswerReader.reported."""
        read = figures.tokens("cache_read_input_tokens") or 0
        written = figures.tokens("cache_creation_input_tokens") or 0
        uncached = figures.tokens("input_tokens")
        return Reported(
            tokens_in=None if uncached is None else uncached + read + written,
            tokens_out=figures.tokens("output_tokens"),
            cache_read=read,
            cache_write=written,
            reasoning=figures.inside("output_tokens_details").tokens("thinking_tokens") or 0,
        )

    # -- blocks ----------------------------------------------------------------------------------

    def _whole(self, block: dict[str, Any]) -> None:
        self._start(None, block)
        self._stop(None)

    def _start(self, index: int | None, block: dict[str, Any]) -> None:
        kind = block.get("type")
        if kind == "text":
            self._say(block.get("text"))
        elif kind == "tool_use":
            call = self.draft.call(text_in(block.get("id")), text_in(block.get("name")))
            if given := block.get("input"):
                self.draft.begin_arguments(call, arguments_in(given))
            self._blocks[index] = _OpenBlock(block, call)
        else:
            self._blocks[index] = _OpenBlock(block, None)
            self.draft.reasoning("")

    def _grow(self, index: int | None, delta: _Delta) -> None:
        if delta.text is not None:
            self._say(delta.text)
        block = self._blocks.get(index)
        if block is None and delta.partial_json and self._blocks:
            block = next(reversed(self._blocks.values()))  # the one that is being written
        if block is None:
            self.draft.lost = self.draft.lost or bool(delta.partial_json)
            return
        if block.call is not None and delta.partial_json:
            self.draft.add_arguments(block.call, delta.partial_json)
        elif piece := delta.partial_json or delta.thinking:
            self.draft.reasoning(piece)
            block.pieces.append(piece)
        elif delta.signature:
            self.draft.reasoning(delta.signature)
            block.signature.append(delta.signature)

    def _stop(self, index: int | None) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        data, text = block.data, "".join(block.pieces)
        if block.call is not None:
            self.draft.add_fields(block.call, data, _CALL)
            return
        if data.get("type") == "thinking":
            data["thinking"] = text_in(data.get("thinking")) + text
            data["signature"] = text_in(data.get("signature")) + "".join(block.signature)
            if not data["signature"]:
                if not (self._unsigned and data["thinking"]):
                    return
                del data["signature"]
        elif text:
            data["input"] = decode_any(text.encode(errors="replace"))
        self.draft.opaque(encode_any(data))

    def _say(self, text: Any) -> None:
        if isinstance(text, str) and text:
            self.draft.say(text)

    # -- the message -----------------------------------------------------------------------------

    def _use(self, usage: Any) -> None:
        self.draft.used = later_usage(self.draft.used, usage)

    def _end(self, reason: str | None) -> None:
        if reason:
            self.draft.paused = reason == "pause_turn"
            self.draft.end(reason)
