"""From the events of Anthropic's Messages API to an answer
(https://platform.claude.com/docs/en/build-with-claude/streaming).
"""

from typing import Any, Final

import msgspec

from component.models import finish_reasons
from component.models.adapter import ProviderFaultError
from component.models.answer_draft import AnswerDraft, DraftCall
from component.models.faults import read_fault
from component.models.protocol import OnText
from component.models.tolerant_json import (
    BadJSONError,
    arguments_in,
    decode_any,
    decode_as,
    encode_any,
)
from component.models.usage import Figures, Reported, later_usage

_CALL: Final = ("type", "id", "name", "input", "cache_control")


class Delta(msgspec.Struct):
    """An addition to a block, or to the message."""

    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class Message(msgspec.Struct):
    """A message; `content` is empty where it begins."""

    content: list[dict[str, Any]] = []
    stop_reason: str | None = None
    usage: Any = None


class Event(msgspec.Struct):
    """An event of the stream."""

    type: str = ""
    index: int | None = None
    message: Message | None = None
    content_block: dict[str, Any] | None = None
    delta: Delta | None = None
    usage: Any = None
    error: Any = None


_events = msgspec.json.Decoder(Event)
_documents = msgspec.json.Decoder(Message)


class _Block:
    """A block that is not complete yet, other than a text."""

    def __init__(self, data: dict[str, Any], call: DraftCall | None) -> None:
        self.data = data
        self.call = call
        self.pieces: list[str] = []
        self.signature: list[str] = []


class MessagesReader:
    """Reads one answer of the Messages API; see AnswerReader.

    Args:
        on_text: receives each piece of text.
        unsigned: whether the model takes thinking without a signature back. Those of Anthropic do
            not; others behind its API may have none, and some refuse a conversation without it.
    """

    def __init__(self, on_text: OnText | None, *, unsigned: bool = False) -> None:
        self.draft = AnswerDraft(on_text)
        self._unsigned = unsigned
        self._blocks: dict[int | None, _Block] = {}

    def event(self, data: bytes) -> bool:
        """Read one event; see AnswerReader.event."""
        if not data.startswith(b"{"):
            if data == b"[DONE]":  # some gateways end every stream so
                return True
            raise BadJSONError("it is not an object")
        event = decode_as(_events, data)
        self.draft.count()
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
                if event.delta is not None and event.delta.stop_reason:
                    self._end(event.delta.stop_reason)
            case "message_stop":
                return True
            case "error":
                raise ProviderFaultError(read_fault(0, data))
        return False

    def document(self, data: bytes) -> None:
        """Read an answer that came as one document; see AnswerReader.document."""
        if not data.startswith(b"{"):
            raise BadJSONError("it is not an object")
        if decode_as(_events, data).type == "error":
            raise ProviderFaultError(read_fault(0, data))
        message = decode_as(_documents, data)
        self.draft.count()
        self._use(message.usage)
        for block in message.content:
            self._whole(block)
        if message.stop_reason:
            self._end(message.stop_reason)

    def reported(self, figures: Figures) -> Reported:
        """The figures of `usage`; see AnswerReader.reported."""
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
            call = self.draft.call(_text(block.get("id")), _text(block.get("name")))
            if given := block.get("input"):
                self.draft.begin_arguments(call, arguments_in(given))
            self._blocks[index] = _Block(block, call)
        else:
            self._blocks[index] = _Block(block, None)
            self.draft.reasoning("")

    def _grow(self, index: int | None, delta: Delta) -> None:
        if delta.text is not None:
            self._say(delta.text)
        block = self._blocks.get(index)
        if block is None and delta.partial_json and self._blocks:
            block = next(reversed(self._blocks.values()))  # the one that is being written
        if block is None:
            self.draft.lost = self.draft.lost or bool(delta.partial_json)
            return
        if delta.partial_json:
            if block.call is not None:
                self.draft.add_arguments(block.call, delta.partial_json)
            else:
                self.draft.reasoning(delta.partial_json)
            block.pieces.append(delta.partial_json)
        elif delta.thinking:
            self.draft.reasoning(delta.thinking)
            block.pieces.append(delta.thinking)
        elif delta.signature:
            self.draft.reasoning(delta.signature)
            block.signature.append(delta.signature)

    def _stop(self, index: int | None) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        data, text = block.data, "".join(block.pieces)
        if block.call is not None:
            more = {k: v for k, v in data.items() if k not in _CALL and v is not None}
            if more:
                self.draft.add_fields(block.call, more)
            return
        if data.get("type") == "thinking":
            data["thinking"] = _text(data.get("thinking")) + text
            data["signature"] = _text(data.get("signature")) + "".join(block.signature)
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

    def _end(self, reason: str) -> None:
        self.draft.paused = reason == "pause_turn"
        finish_reasons.end(self.draft, reason)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
