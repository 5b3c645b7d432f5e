"""From the events of OpenAI's Responses API to an answer
(https://platform.openai.com/docs/api-reference/responses-streaming).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from component.models.adapter import ProviderFaultError
from component.models.answer_draft import AnswerDraft, DraftCall
from component.models.faults import read_fault
from component.models.protocol import Finish, OnText
from component.models.tolerant_json import BadJSONError, arguments_in, decode_as, encode_any
from component.models.usage import Figures, Reported, with_reasoning

_ADDED: Final = "response.output_item.added"
_CALL: Final = ("type", "id", "call_id", "name", "arguments", "status")
_FINISH: Mapping[str, Finish] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class Phase(msgspec.Struct, forbid_unknown_fields=True):
    """What the provider calls the message before: `commentary` or `final_answer`.

    It is stored as an opaque part after the text. Models expect it back (`phase` in OpenAI's
    reference of input messages).
    """

    phase: str


class Response(msgspec.Struct):
    """A response, as the events that end a stream and whole answers have it."""

    status: str | None = None
    output: list[dict[str, Any]] | None = None
    usage: Any = None
    error: Any = None
    incomplete_details: dict[str, Any] | None = None


class Event(msgspec.Struct):
    """An event of the stream."""

    type: str = ""
    output_index: int | None = None
    item_id: str | None = None
    item: dict[str, Any] | None = None
    delta: str | dict[str, Any] | None = None
    arguments: Any = None
    response: Response | None = None
    error: Any = None


_events = msgspec.json.Decoder(Event)
_documents = msgspec.json.Decoder(Response)


class _Item:
    """An item of the output: what has been read of it by deltas."""

    def __init__(self) -> None:
        self.kind = ""
        self.call: DraftCall | None = None
        self.characters = 0
        self.done = False

    @property
    def begun(self) -> bool:
        """Whether something of it is known."""
        return bool(self.kind or self.characters or self.done)


class ResponsesReader:
    """Reads one answer of the Responses API; see AnswerReader."""

    def __init__(self, on_text: OnText | None) -> None:
        self.draft = AnswerDraft(on_text)
        self._items: list[_Item] = []  # in the order in which they began
        self._by_index: dict[int, _Item] = {}
        self._by_id: dict[str, _Item] = {}

    def event(self, data: bytes) -> bool:
        """Read one event; see AnswerReader.event."""
        if data == b"[DONE]":
            return True
        if not data.startswith(b"{"):
            raise BadJSONError("it is not an object")
        event = decode_as(_events, data)
        self.draft.count()
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
                self._end(event.response or Response(), data)
                return True
            case "error":
                raise ProviderFaultError(read_fault(0, data))
            case "":
                # A fault of a server or gateway that has no types of events.
                if event.error:
                    raise ProviderFaultError(read_fault(0, data))
        return False

    def document(self, data: bytes) -> None:
        """Read an answer that came as one document; see AnswerReader.document."""
        if not data.startswith(b"{"):
            raise BadJSONError("it is not an object")
        response = decode_as(_documents, data)
        self.draft.count()
        if response.error and not response.status:
            raise ProviderFaultError(read_fault(0, data))
        self._end(response, data)

    def reported(self, figures: Figures) -> Reported:
        """The figures of `usage`; see AnswerReader.reported."""
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

    def _of(self, event: Event) -> _Item:
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
            found = _Item()
            self._items.append(found)
        if event.output_index is not None:
            self._by_index[event.output_index] = found
        for id_ in ids:
            self._by_id[id_] = found
        return found

    def _known(self, ids: Iterable[str]) -> _Item | None:
        return next((self._by_id[id_] for id_ in ids if id_ in self._by_id), None)

    def _begin(self, item: _Item, data: dict[str, Any]) -> None:
        self._add(item, data)
        if item.call is not None and not item.call.arguments and (given := data.get("arguments")):
            self.draft.begin_arguments(item.call, arguments_in(given))

    def _add(self, item: _Item, data: dict[str, Any]) -> None:
        item.kind = item.kind or _text(data.get("type"))
        if data.get("type") == "function_call":
            if item.call is None:
                item.call = self.draft.call(_text(data.get("call_id")), _text(data.get("name")))
            item.call.name = item.call.name or _text(data.get("name"))
            item.call.cut = data.get("status") == "incomplete"
        elif data.get("type") != "message":
            self.draft.reasoning("")

    def _say(self, item: _Item, delta: Any) -> None:
        if isinstance(delta, str) and delta:
            item.kind = item.kind or "message"
            item.characters += len(delta)
            self.draft.say(delta)

    def _argue(self, item: _Item, delta: Any) -> None:
        piece = arguments_in(delta)
        if piece:
            if item.call is None:
                self.draft.lost = True
                return
            item.characters += len(piece)
            self.draft.add_arguments(item.call, piece)

    def _whole(self, item: _Item, data: dict[str, Any]) -> None:
        """Read a complete item, as far as deltas have not brought it."""
        if item.done:
            return
        item.done = True
        kind = data.get("type")
        item.kind = item.kind or _text(kind)
        if kind == "message":
            text = _message_text(data)
            self._say(item, text[item.characters :])
            if (text or item.characters) and (phase := _text(data.get("phase"))):
                self.draft.opaque(encode_any(Phase(phase)))
        elif kind == "function_call":
            self._add(item, data)
            more = {k: v for k, v in data.items() if k not in _CALL and v is not None}
            if item.call is not None and more:
                self.draft.add_fields(item.call, more)
            if not item.characters:
                self._argue(item, data.get("arguments"))
        elif kind is not None:
            self.draft.opaque(encode_any(data))

    def _end(self, response: Response, data: bytes) -> None:
        if response.usage is not None:
            self.draft.used = response.usage
        if response.status == "failed" or response.error:
            raise ProviderFaultError(read_fault(0, encode_any({"error": response.error or {}})))
        # Some gateways have all of the output in here, and had none of it before.
        self._rest(response.output or ())
        reason = _text((response.incomplete_details or {}).get("reason"))
        if response.status == "incomplete":
            self.draft.finish(_FINISH.get(reason, "length"), calls_whole=False)
        elif response.status in ("completed", None):
            self.draft.finish(None, calls_whole=True)

    def _rest(self, output: Sequence[dict[str, Any]]) -> None:
        """Read the items of the whole output, as far as the events before have not brought them."""
        known = [self._known(_ids(data)) for data in output]
        taken = set(known)
        waiting = dict[str, Iterator[_Item]]()
        for index, (data, found) in enumerate(zip(output, known, strict=True)):
            item = found
            if item is None:
                kind = _text(data.get("type"))
                item = self._by_index.get(index)
                if item is None or item.kind != kind or item in taken:
                    same = waiting.setdefault(
                        kind, iter([i for i in self._items if i.kind == kind])
                    )
                    item = next((one for one in same if one not in taken), None) or _Item()
                taken.add(item)
            self._whole(item, data)


def _ids(data: Mapping[str, Any]) -> list[str]:
    """The ids of an item, or of an event about it."""
    return [id_ for key in ("item_id", "id", "call_id") if (id_ := _text(data.get(key)))]


def _is_other_call(item: _Item, data: Mapping[str, Any]) -> bool:
    """Whether an item that begins is another call than one with the same id."""
    known, id_ = item.call, _text(data.get("call_id"))
    return known is not None and bool(known.id and id_) and known.id != id_


def _message_text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(
        _text(part.get("text")) or _text(part.get("refusal"))
        for part in parts
        if isinstance(part, dict)
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
