"""The dialect of OpenAI's Responses API, without state at the provider
(https://platform.openai.com/docs/api-reference/responses).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from component.models.adapter import (
    Adapter,
    AnswerReader,
    SentIds,
    fault_in,
    is_strict,
    normalize_roles,
    sent_arguments,
)
from component.models.answer_draft import DraftCall
from component.models.answer_limits import arguments_in, decode_as, encode_any, text_in
from component.models.catalog import ModelTarget
from component.models.contents import IMAGES, PDF, adapted, data_url
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
    with_fields,
)
from component.models.protocol import Finish, ModelRequest, OnText
from component.models.tool_schemas import ToolNames
from component.models.usage import Reported, UsageFigures, with_reasoning

_ADDED: Final = "response.output_item.added"
_CALL: Final = ("type", "id", "call_id", "name", "arguments", "status")
_FINISH: Mapping[str, Finish] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}

_Item = dict[str, Any] | msgspec.Raw


class Responses(Adapter):
    """The Responses API of one model.

    Nothing is stored at the provider (`store: false`): each request has the whole conversation, and
    reasoning comes back encrypted, to be given back in its place.
    """

    optional: ClassVar = ("temperature", "text", "reasoning", "tool_choice", "include", "store")
    schema_parameter: ClassVar = "text"

    def __init__(self, target: ModelTarget) -> None:
        super().__init__(target, "/responses")

    def _body(self, request: ModelRequest, names: ToolNames) -> dict[str, Any]:
        messages: Sequence[ModelMessage] = request.messages
        if not self._is_openai:
            messages = normalize_roles(messages)
        body: dict[str, Any] = {
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": self._max_tokens(request),
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
        ids = SentIds(messages)
        body["input"] = [item for message in messages for item in _items(message, names, ids)]
        if not self._is_openai:
            body["input"] = [_spelled_out(item) for item in body["input"]]
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if self._target.choice.reasoning_effort is not None:
            body["reasoning"] = {"effort": self._target.choice.reasoning_effort}
        if request.schema is not None:
            schema = {"type": "json_schema", "name": "answer", "schema": request.schema}
            body["text"] = {"format": schema | {"strict": is_strict(request.schema)}}
        return body

    def reader(
        self, request: ModelRequest, names: ToolNames, on_text: OnText | None
    ) -> "ResponsesReader":
        """See Adapter.reader."""
        return ResponsesReader(on_text)


def _items(message: ModelMessage, names: ToolNames, ids: SentIds) -> list[_Item]:
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
            case ToolCall():
                flush()
                call = {
                    "type": "function_call",
                    "call_id": ids[part.id],
                    "name": names.theirs(part.name),
                    "arguments": sent_arguments(part, names),
                }
                items.append({k: v for k, v in fields.items() if k != "id"} | call)
            case ToolResultPart(id_):
                flush()
                result = {"type": "function_call_output", "call_id": ids[id_]}
                items.append(result | {"output": _output(part)})
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
    content: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case TextPart(text):
                content.append({"type": "input_text", "text": text})
            case ImagePart():
                image = {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
                content.append(image)
            case FilePart(name):
                file = {"type": "input_file", "filename": name, "file_data": data_url(part)}
                content.append(file)
    return content


# -- the answer -----------------------------------------------------------------------------------


class _Phase(msgspec.Struct, forbid_unknown_fields=True):
    """What the provider calls the message before: `commentary` or `final_answer`.

    It is stored as an opaque part after the text. Models expect it back (`phase` in OpenAI's
    reference of input messages).
    """

    phase: str


class _Response(msgspec.Struct):
    status: str | None = None
    output: list[dict[str, Any]] | None = None
    usage: Any = None
    error: Any = None
    incomplete_details: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int | None = None
    item_id: str | None = None
    item: dict[str, Any] | None = None
    delta: str | dict[str, Any] | None = None
    arguments: Any = None
    response: _Response | None = None
    error: Any = None


_events = msgspec.json.Decoder(_Event)
_documents = msgspec.json.Decoder(_Response)
_phases = msgspec.json.Decoder(_Phase)


class _OutputItem(msgspec.Struct, eq=False):
    """An item of the output: what has been read of it by deltas."""

    kind: str = ""
    call: DraftCall | None = None
    characters: int = 0
    done: bool = False

    @property
    def begun(self) -> bool:
        """Whether something of it is known."""
        return bool(self.kind or self.characters or self.done)


class ResponsesReader(AnswerReader):
    """Reads one answer (https://platform.openai.com/docs/api-reference/responses-streaming)."""

    def __init__(self, on_text: OnText | None) -> None:
        super().__init__(on_text)
        self._items: list[_OutputItem] = []  # in the order in which they began
        self._by_index: dict[int, _OutputItem] = {}
        self._by_id: dict[str, _OutputItem] = {}

    def _event(self, data: bytes) -> bool:
        event = decode_as(_events, data)
        match event.type:
            case "response.output_item.added" if event.item is not None:
                self._begin(self._of(event), event.item)
            case "response.output_text.delta" | "response.refusal.delta":
                self._say(self._of(event), event.delta)
            case "response.function_call_arguments.delta" | "response.function_call_arguments.done":
                item = self._of(event)
                self._argue(item, event.arguments if not item.characters else None)
                self._argue(item, event.delta)
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                if isinstance(event.delta, str):
                    self.draft.reasoning(event.delta)
            case "response.output_item.done" if event.item is not None:
                self._whole(self._of(event), event.item)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(event.response or _Response())
                return True
            case "error":
                raise fault_in(data)
            case "":
                # A fault of a server or gateway that has no types of events.
                if event.error:
                    raise fault_in(data)
        return False

    def _document(self, data: bytes) -> None:
        response = decode_as(_documents, data)
        if response.error and not response.status:
            raise fault_in(data)
        self._end(response)

    def reported(self, figures: UsageFigures) -> Reported:
        """See AnswerReader.reported."""
        details = figures.inside("input_tokens_details")
        out = figures.inside("output_tokens_details")
        found = Reported(
            tokens_in=figures.tokens("input_tokens"),
            tokens_out=figures.tokens("output_tokens"),
            cache_read=details.tokens("cached_tokens") or 0,
            cache_write=details.tokens("cache_write_tokens") or 0,
            reasoning=out.tokens("reasoning_tokens") or 0,
        )
        return with_reasoning(found, figures)

    # -- items -----------------------------------------------------------------------------------

    def _of(self, event: _Event) -> _OutputItem:
        """The item that an event belongs to: that with its id, its index, or the one that is
        being written. Some gateways give each event another id, or each item the same index.
        """
        data = event.item or {}
        ids = _ids({"item_id": event.item_id} | data)
        found = self._known(ids)
        if found is not None and event.type == _ADDED and _is_other_call(found, data):
            found = None
        elif found is None:
            found = self._by_index.get(-1 if event.output_index is None else event.output_index)
            if found is not None and (
                found.done if event.type == "response.output_item.done" else event.type == _ADDED
            ):
                found = None if found.begun else found
        if found is None and event.output_index is None and event.type != _ADDED:
            found = next((one for one in reversed(self._items) if not one.done), None)
        if found is None:
            found = _OutputItem()
            self._items.append(found)
        if event.output_index is not None:
            self._by_index[event.output_index] = found
        for id_ in ids:
            self._by_id[id_] = found
        return found

    def _known(self, ids: Iterable[str]) -> _OutputItem | None:
        return next((self._by_id[id_] for id_ in ids if id_ in self._by_id), None)

    def _begin(self, item: _OutputItem, data: dict[str, Any]) -> None:
        self._add(item, data)
        if item.call is not None and not item.call.arguments and (given := data.get("arguments")):
            self.draft.begin_arguments(item.call, arguments_in(given))

    def _add(self, item: _OutputItem, data: dict[str, Any]) -> None:
        item.kind = item.kind or text_in(data.get("type"))
        if data.get("type") == "function_call":
            if item.call is None:
                item.call = self.draft.call(text_in(data.get("call_id")), text_in(data.get("name")))
            item.call.name = item.call.name or text_in(data.get("name"))
            item.call.cut = data.get("status") == "incomplete"
        elif data.get("type") != "message":
            self.draft.reasoning("")

    def _say(self, item: _OutputItem, delta: Any) -> None:
        if isinstance(delta, str) and delta:
            item.kind = item.kind or "message"
            item.characters += len(delta)
            self.draft.say(delta)

    def _argue(self, item: _OutputItem, delta: Any) -> None:
        piece = arguments_in(delta)
        if piece:
            if item.call is None:
                self.draft.lost = True
                return
            item.characters += len(piece)
            self.draft.add_arguments(item.call, piece)

    def _whole(self, item: _OutputItem, data: dict[str, Any]) -> None:
        """Read a complete item, as far as deltas have not brought it."""
        if item.done:
            return
        item.done = True
        kind = data.get("type")
        item.kind = item.kind or text_in(kind)
        if kind == "message":
            text = _message_text(data)
            self._say(item, text[item.characters :])
            if (text or item.characters) and (phase := text_in(data.get("phase"))):
                self.draft.opaque(encode_any(_Phase(phase)))
        elif kind == "function_call":
            self._add(item, data)
            if item.call is not None:
                self.draft.add_fields(item.call, data, _CALL)
            if not item.characters:
                self._argue(item, data.get("arguments"))
        elif kind is not None:
            self.draft.opaque(encode_any(data))

    def _end(self, response: _Response) -> None:
        if response.usage is not None:
            self.draft.used = response.usage
        if response.status == "failed" or response.error:
            raise fault_in(encode_any({"error": response.error or {}}))
        # Some gateways have all of the output in here, and had none of it before.
        self._rest(response.output or ())
        reason = text_in((response.incomplete_details or {}).get("reason"))
        if response.status == "incomplete":
            self.draft.finish(_FINISH.get(reason, "length"), calls_whole=False)
        elif response.status in ("completed", None):
            self.draft.finish(None, calls_whole=True)

    def _rest(self, output: Sequence[dict[str, Any]]) -> None:
        """Read the items of the whole output, as far as the events before have not brought them."""
        known = [self._known(_ids(data)) for data in output]
        taken = set(known)
        waiting = dict[str, Iterator[_OutputItem]]()
        for index, (data, found) in enumerate(zip(output, known, strict=True)):
            item = found
            if item is None:
                kind = text_in(data.get("type"))
                item = self._by_index.get(index)
                if item is None or item.kind != kind or item in taken:
                    same = waiting.setdefault(
                        kind, iter([i for i in self._items if i.kind == kind])
                    )
                    item = next((one for one in same if one not in taken), None) or _OutputItem()
                taken.add(item)
            self._whole(item, data)


def _ids(data: Mapping[str, Any]) -> list[str]:
    return [id_ for key in ("item_id", "id", "call_id") if (id_ := text_in(data.get(key)))]


def _is_other_call(item: _OutputItem, data: Mapping[str, Any]) -> bool:
    """Whether an item that begins is another call than one with the same id."""
    known, id_ = item.call, text_in(data.get("call_id"))
    return known is not None and bool(known.id and id_) and known.id != id_


def _message_text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(
        text_in(part.get("text")) or text_in(part.get("refusal"))
        for part in parts
        if isinstance(part, dict)
    )
