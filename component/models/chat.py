"""The dialect of OpenAI's chat completions, which most providers and local servers understand."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

import structlog

from component.models.adapter import Adapter, SentIds, is_strict, normalize_roles, sent_arguments
from component.models.catalog import ModelTarget
from component.models.chat_reader import ChatReader
from component.models.chat_text import FIELDS, MORE_FIELDS, Habits, returned_content, written_calls
from component.models.contents import IMAGES, PDF, adapted, data_url
from component.models.faults import Fault
from component.models.messages import (
    FilePart,
    ImagePart,
    ModelMessage,
    Part,
    TextPart,
    ToolCall,
    text_message,
    text_of,
    with_fields,
)
from component.models.protocol import ModelRequest, OnText
from component.models.tool_schemas import ToolNames

_log = structlog.get_logger("component.models")

_ATTACHED: Final = "[Images and files of the results above]"


class ChatCompletions(Adapter):
    """The chat completions of one model."""

    optional: ClassVar = (
        "stream_options",
        "temperature",
        "response_format",
        "tool_choice",
        "reasoning_effort",
    )
    schema_parameter: ClassVar = "response_format"

    def __init__(self, target: ModelTarget) -> None:
        super().__init__(target, "/chat/completions")
        self._length = "max_completion_tokens" if self._is_openai else "max_tokens"
        self._swapped = False
        self._habits = Habits(target.choice.model)
        self._quirks = Quirks()

    def _body(self, request: ModelRequest, names: ToolNames) -> dict[str, Any]:
        messages: Sequence[ModelMessage] = request.messages
        if not self._is_openai:
            messages = self._quirks.arranged(join_adjacent(normalize_roles(messages)))
        messages = adapted(
            messages,
            self.origin,
            images=IMAGES if self._target.vision else (),
            files=PDF if self._is_openai else (),
        )
        body: dict[str, Any] = {
            "messages": self._quirks.written(_messages(messages, names)),
            "stream_options": {"include_usage": True},
            self._length: self._max_tokens(request),
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": names.theirs(tool.name),
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in request.tools
            ]
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
        if request.schema is not None:
            schema = {"name": "answer", "schema": request.schema}
            strict = {"strict": is_strict(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema | strict}
        if self._target.choice.reasoning_effort is not None:
            body["reasoning_effort"] = self._target.choice.reasoning_effort
        return body

    def reader(self, request: ModelRequest, names: ToolNames, on_text: OnText | None) -> ChatReader:
        """See Adapter.reader."""
        context = self._target.choice.context_tokens
        return ChatReader(
            on_text,
            calls=None if self._is_openai else written_calls(request, names),
            habits=self._habits,
            tells_cost=self._target.preset.tells_cost,
            room=None if context is None else (context, self._max_tokens(request)),
        )

    def leave_out(self, fault: Fault) -> bool:
        """See Adapter.leave_out."""
        if not self._swapped and fault.blames(self._length):
            # Older servers know the one name only, newer models of OpenAI the other.
            self._swapped = True
            old = self._length == "max_tokens"
            self._length = "max_completion_tokens" if old else "max_tokens"
            return True
        return self._quirks.learn(fault) or super().leave_out(fault)


# -- messages ------------------------------------------------------------------------------------


def _messages(messages: Sequence[ModelMessage], names: ToolNames) -> list[dict[str, Any]]:
    """Translate messages.

    Results of tools can only be text, so their images and files follow the results of a round, in a
    message of the user.
    """
    out: list[dict[str, Any]] = []
    attached: list[dict[str, Any]] = []
    ids = SentIds(messages)

    def attach() -> None:
        if attached:
            content = [{"type": "text", "text": _ATTACHED}, *attached]
            out.append({"role": "user", "content": content})
            attached.clear()

    for message in messages:
        if message.role != "tool":
            attach()
        else:
            parts = [part for result in message.results for part in result.parts]
            attached += [_content(part) for part in parts if not isinstance(part, TextPart)]
        out += _messages_of(message, names, ids)
    attach()
    return out


def _content(part: Part) -> dict[str, Any]:
    match part:
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": data_url(part)}}
        case FilePart(name):
            return {"type": "file", "file": {"filename": name, "file_data": data_url(part)}}
    return {"type": "text", "text": text_of([part])}


def _messages_of(message: ModelMessage, names: ToolNames, ids: SentIds) -> list[dict[str, Any]]:
    """Translate a message. Each result of a tool becomes a message of its own.

    An assistant's message without text has the content `null`: some servers reject an empty one.
    """
    if len(message.parts) == 1 and isinstance(part := message.parts[0], TextPart):
        return [{"role": message.role, "content": part.text}]  # as most messages are
    if message.role == "tool":
        return [
            {"role": "tool", "content": result.text, "tool_call_id": ids[result.id]}
            for result in message.results
        ]
    out: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "assistant":
        out |= returned_content(message.parts)
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
    call: ToolCall, fields: Mapping[str, Any], names: ToolNames, ids: SentIds
) -> dict[str, Any]:
    inner = fields.get("function")
    function = {"name": names.theirs(call.name), "arguments": sent_arguments(call, names)}
    return {
        **fields,
        "id": ids[call.id],
        "type": "function",
        "function": {**inner, **function} if isinstance(inner, dict) else function,
    }


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
    parts, more = list(one.parts), list(other.parts)
    if parts and more and isinstance(last := parts[-1], TextPart):
        if isinstance(first := more[0], TextPart):
            more[0] = TextPart(f"{last.text}\n\n{first.text}")
            parts.pop()
        elif one.role == "assistant":
            parts[-1] = TextPart(f"{last.text}\n\n")
    return ModelMessage(one.role, (*parts, *more))


# -- what servers demand beyond OpenAI's API ------------------------------------------------------
#
# It is learned from their errors. A refused request is sent again in the form that the server
# wants, and so are all later ones.

Quirk: TypeAlias = Literal[
    "alternating roles",
    "no system message",
    "ids of nine characters",
    "reasoning in every message",
    "no reasoning",
    "signatures of calls",
]

_FIELD: Final = re.compile(
    rf"\b({'|'.join(FIELDS)}|thinking|thinking_blocks|extra_content|provider_specific_fields"
    r"|thought_signature)\b"
)
_REFUSALS: Final[Mapping[Quirk, re.Pattern[str]]] = {
    # Templates of Mistral and Gemma, and Mistral's API.
    "alternating roles": re.compile(
        r"roles must alternate|unexpected role '?\w+'? after|must alternate between", re.IGNORECASE
    ),
    "no system message": re.compile(
        r"system (role|message|prompt)s? (is |are )?not supported", re.IGNORECASE
    ),
    "ids of nine characters": re.compile(
        r"tool[ _]call id.{0,80}length (of|is|must be) 9|tool[ _]call ids? should be alphanumeric",
        re.IGNORECASE | re.DOTALL,
    ),
    # DeepSeek and Moonshot, of messages that another model wrote.
    "reasoning in every message": re.compile(
        r"reasoning_content\W.{0,60}(must be passed back|is missing|is required)"
        r"|missing .?reasoning_content",
        re.IGNORECASE | re.DOTALL,
    ),
    # Gemini, of calls that another model has made.
    "signatures of calls": re.compile(r"missing a .?thought.?signature", re.IGNORECASE),
}
_UNREAD: Final = re.compile(
    r"extra (inputs|fields)|not (be )?(supported|permitted|allowed)|unexpected|unknown|unrecognized"
    r"|please remove",  # DeepSeek's first models
    re.IGNORECASE,
)
_UNSIGNED: Final = "skip_thought_signature_validator"
_EARLIER: Final = "[Earlier messages are not shown.]"
_READ: Final = "I have the results."
_ID: Final = re.compile("[A-Za-z0-9]{9}")


class Quirks:
    """The demands that one server has made. Without any, nothing is changed."""

    def __init__(self) -> None:
        self._known: set[Quirk] = set()

    def learn(self, fault: Fault) -> bool:
        """Learn a requirement from an error; False if it is not a new one."""
        for quirk, refusal in _REFUSALS.items():
            if refusal.search(fault.message):
                return self._add(quirk)
        unread = _FIELD.search(fault.message) and _UNREAD.search(fault.message)
        return bool(unread) and self._add("no reasoning")

    def _add(self, quirk: Quirk) -> bool:
        if quirk in self._known:
            return False
        self._known.add(quirk)
        _log.info("a model server wants requests in another form", form=quirk)
        return True

    def arranged(self, messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
        """The messages, whose roles are normalized, in the order that the server wants."""
        out = list(messages)
        if "no system message" in self._known and out and out[0].role == "system":
            system, *rest = out
            if rest and rest[0].role == "user":
                parts = (TextPart(f"{system.text}\n\n"), *rest[0].parts)
                out = [ModelMessage("user", parts), *rest[1:]]
            else:
                out = [text_message("user", system.text), *rest]
        if "alternating roles" in self._known:
            out = _alternating(out)
        return tuple(out)

    def written(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The translated messages with the fields that the server wants."""
        changes: dict[Quirk, Callable[[dict[str, Any]], None]] = {
            "ids of nine characters": _shorten,
            "no reasoning": _without_reasoning,
            "reasoning in every message": _with_reasoning,
            "signatures of calls": _with_signatures,
        }
        for quirk, change in changes.items():
            if quirk in self._known:
                for message in messages:
                    change(message)
        return messages


def _alternating(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Have the user begin, and an assistant's message between results and the user.

    Templates do not count calls and results: the user before and after them would be in a row.
    """
    out: list[ModelMessage] = []
    for message in messages:
        if message.role == "assistant" and (not out or out[-1].role == "system"):
            out.append(text_message("user", _EARLIER))
        elif message.role == "user" and out and out[-1].role == "tool":
            out.append(text_message("assistant", _READ))
        out.append(message)
    return out


def _shorten(message: dict[str, Any]) -> None:
    if "tool_call_id" in message:
        message["tool_call_id"] = _short(message["tool_call_id"])
    for call in message.get("tool_calls", ()):
        call["id"] = _short(call["id"])


def _short(id_: str) -> str:
    """An id of nine letters and digits, the same for the same id."""
    return id_ if _ID.fullmatch(id_) else hashlib.sha256(id_.encode()).hexdigest()[:9]


def _without_reasoning(message: dict[str, Any]) -> None:
    for field in [key for key in message if key in FIELDS or MORE_FIELDS.fullmatch(key)]:
        del message[field]
    for call in message.get("tool_calls", ()):
        for field in [key for key in call if key not in ("id", "type", "function")]:
            del call[field]
    if isinstance(message.get("content"), list) and message["role"] == "assistant":
        parts = [part for part in message["content"] if part["type"] != "thinking"]
        text = "".join([part["text"] for part in parts])
        message["content"] = text if text or "tool_calls" not in message else None


def _with_signatures(message: dict[str, Any]) -> None:
    """Sign the first call of a message, as Google's documentation says for calls of other models
    (https://ai.google.dev/gemini-api/docs/thought-signatures).
    """
    for call in message.get("tool_calls", ())[:1]:
        call.setdefault("extra_content", {"google": {"thought_signature": _UNSIGNED}})


def _with_reasoning(message: dict[str, Any]) -> None:
    if message["role"] == "assistant":
        message.setdefault("reasoning_content", "")
