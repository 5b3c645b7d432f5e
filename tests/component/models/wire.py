"""The three dialects as servers speak them: the same answer as events and as one document.

The events are those of the vendors' documentation; `test_wire` holds them against the SDKs' types.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

Json = dict[str, Any]
_COUNTER = itertools.count(1)


def event(value: Json) -> bytes:
    """One event of a stream, with its type."""
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def spread(text: str, pieces: int) -> list[str]:
    """Split a text into approximately so many pieces."""
    size = max(1, -(-len(text) // pieces))
    return [text[at : at + size] for at in range(0, len(text), size)]


class Phased(str):
    """A text in a message of the Responses API that has a phase."""

    phase: str

    def __new__(cls, text: str, phase: str) -> Self:
        self = super().__new__(cls, text)
        self.phase = phase
        return self


@dataclass
class Spoken:
    """An answer: `parts` are texts, ("call", id, name, arguments) and objects of the dialect.

    finish: as the dialect says it; None: the natural one.
    usage: as the dialect reports it; None: it reports nothing.
    """

    parts: Sequence[Any]
    pieces: int = 3
    finish: str | None = None
    usage: Json | None = field(default_factory=dict)

    @property
    def calls(self) -> bool:
        return any(isinstance(part, tuple) for part in self.parts)


# -- Anthropic's Messages API ---------------------------------------------------------------------


def _block(part: Any) -> Json:
    if isinstance(part, str):
        return {"type": "text", "text": part, "citations": None}
    if isinstance(part, tuple):
        _, id_, name, arguments = part
        return {"type": "tool_use", "id": id_, "name": name, "input": json.loads(arguments)}
    return dict(part)


def message(spoken: Spoken, model: str = "m") -> Json:
    """The answer as one document of the Messages API."""
    usage = {"input_tokens": 11, "output_tokens": 7} | (spoken.usage or {})
    return {
        "id": f"msg_{next(_COUNTER)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [_block(part) for part in spoken.parts],
        "stop_reason": spoken.finish or ("tool_use" if spoken.calls else "end_turn"),
        "stop_sequence": None,
        "usage": usage,
    }


def _deltas(part: Any, block: Json, pieces: int) -> Iterator[Json]:
    if isinstance(part, str):
        for piece in spread(part, pieces):
            yield {"type": "text_delta", "text": piece}
        block["text"] = ""
    elif isinstance(part, tuple):
        for piece in ["", *spread(part[3], pieces)]:
            yield {"type": "input_json_delta", "partial_json": piece}
        block["input"] = {}
    elif part["type"] == "thinking":
        for piece in spread(part["thinking"], pieces):
            yield {"type": "thinking_delta", "thinking": piece}
        if part["signature"]:
            yield {"type": "signature_delta", "signature": part["signature"]}
        block["thinking"] = block["signature"] = ""
    elif part["type"] == "server_tool_use":
        yield {"type": "input_json_delta", "partial_json": json.dumps(part["input"])}
        block["input"] = {}


def message_events(spoken: Spoken, model: str = "m") -> list[Json]:
    """The answer as the events of the Messages API."""
    whole = message(spoken, model)
    usage = whole["usage"]
    start = whole | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, part in enumerate(spoken.parts):
        block = _block(part)
        deltas = list(_deltas(part, block, spoken.pieces))
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    last = {"output_tokens": usage["output_tokens"]}
    events.append({"type": "message_delta", "delta": delta, "usage": last})
    events.append({"type": "message_stop"})
    return events


# -- OpenAI's Responses API -----------------------------------------------------------------------


def _item(part: Any, number: int) -> Json:
    if isinstance(part, str):
        text = {"type": "output_text", "text": part, "annotations": [], "logprobs": []}
        return {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": [text],
            **({"phase": part.phase} if isinstance(part, Phased) else {}),
        }
    if isinstance(part, tuple):
        _, id_, name, arguments = part
        return {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": id_,
            "name": name,
            "arguments": arguments,
            "status": "completed",
        }
    return dict(part)


def response(spoken: Spoken, model: str = "m") -> Json:
    """The answer as one document of the Responses API."""
    usage: Json = {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 18,
    }
    incomplete = {"reason": spoken.finish} if spoken.finish else None
    return {
        "id": f"resp_{next(_COUNTER)}",
        "object": "response",
        "created_at": 1.0,
        "model": model,
        "status": "incomplete" if incomplete else "completed",
        "error": None,
        "incomplete_details": incomplete,
        "output": [_item(part, number) for number, part in enumerate(spoken.parts)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None if spoken.usage is None else usage | spoken.usage,
    }


def _item_events(part: Any, index: int, pieces: int) -> Iterator[Json]:
    item = _item(part, index)
    place = {"output_index": index, "item_id": item["id"]}
    if isinstance(part, str):
        here = place | {"content_index": 0}
        empty = item["content"][0] | {"text": ""}
        added = item | {"status": "in_progress", "content": []}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        yield {"type": "response.content_part.added", "part": empty} | here
        for piece in spread(part, pieces):
            yield {"type": "response.output_text.delta", "delta": piece, "logprobs": []} | here
        yield {"type": "response.output_text.done", "text": part, "logprobs": []} | here
        yield {"type": "response.content_part.done", "part": item["content"][0]} | here
    elif isinstance(part, tuple):
        added = item | {"status": "in_progress", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        for piece in spread(part[3], pieces):
            yield {"type": "response.function_call_arguments.delta", "delta": piece} | place
        done = {"arguments": part[3], "name": part[2]}
        yield {"type": "response.function_call_arguments.done"} | done | place
    else:
        added = {k: v for k, v in item.items() if k != "encrypted_content"}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        for number, summary in enumerate(item.get("summary", ())):
            here = place | {"summary_index": number}
            delta = {"delta": summary["text"]}
            yield {"type": "response.reasoning_summary_text.delta"} | delta | here
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def response_events(spoken: Spoken, model: str = "m") -> list[Json]:
    """The answer as the events of the Responses API."""
    whole = response(spoken, model)
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    begun["incomplete_details"] = None
    events: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, part in enumerate(spoken.parts):
        events += _item_events(part, index, spoken.pieces)
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [one | {"sequence_number": number} for number, one in enumerate(events)]
