"""What a hostile provider may do in the dialects of Messages and Responses."""

import json
from typing import Any

from tests.component.models import wire
from tests.component.models.wire import Spoken
from tests.hostile.provider import END, HONEST, body, chunked, head
from tests.hostile.provider_attacks import ATTACKS, SLOW, repeats, sends

Json = dict[str, Any]


def add() -> None:
    """Add the attacks."""
    _messages()
    _responses()


def _says(name: str, *events: Json) -> None:
    sends(name, body(b"".join(map(wire.event, events))))


def _block(index: Any, block: Any) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: Any, **delta: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _messages() -> None:
    start, ping, *_, last, stop = wire.message_events(Spoken([HONEST]))
    begun = head() + chunked(wire.event(start))
    tool = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    endless = {
        "text": [_delta(0, type="text_delta", text="word " * 1000)],
        "pings": [ping] * 100,
        "blocks": [_block(1, {"type": "text", "text": ""})] * 100,
        "tools": [_block(1, tool)],
        "thinking": [_delta(1, type="thinking_delta", thinking="x" * 60_000)],
        "thoughts": [_block(1, {"type": "redacted_thinking", "data": "x" * 60_000})] * 2
        + [{"type": "content_block_stop", "index": 1}],
        "arguments": [_delta(2, type="input_json_delta", partial_json="1" * 60_000)],
        "usage": [last | {"usage": {"output_tokens": 1}}] * 100,
        "starts": [start] * 100,
    }
    opened = begun + chunked(wire.event(_block(1, thinking)) + wire.event(_block(2, tool)))
    for name, events in endless.items():
        unit = chunked(b"".join(map(wire.event, events)))
        repeats(f"messages: endless {name}", opened, unit)
    for name, events in {
        "blocks of no type": [_block(0, {}), _block(0, {"type": 5}), _block(None, {"type": None})],
        "deltas of no block in the text": [
            _delta(7, type="text_delta", text="\ud800\x00"),
            _delta(8),
        ],
        "a call of no name": [_block(0, tool | {"id": 5, "name": None, "input": [[]]})],
        "an input of its own": [
            _block(0, tool | {"input": {"a": "\x00\ud800"}}),
            {"type": "content_block_stop", "index": 0},
        ],
        "a broken input of a tool of the server": [
            _block(0, {"type": "server_tool_use", "id": "s", "input": {}}),
            _delta(0, type="input_json_delta", partial_json="{]"),
            {"type": "content_block_stop", "index": 0},
        ],
        "impossible usage": [last | {"usage": {"output_tokens": -1, "input_tokens": 10**400}}],
        "a stop for no reason": [last | {"delta": {"stop_reason": "\x00because"}}],
        "an error of nothing": [{"type": "error"}, {"type": "error", "error": {"type": []}}],
        "a pause for ever": [last | {"delta": {"stop_reason": "pause_turn"}}],
    }.items():
        _says(f"messages: {name}", start, *events, stop)
    _says("messages: a message in the beginning", start | {"message": {"content": [tool] * 300}})
    deep = b'{"type":"message","content":[{"type":"text","text":' + b'{"a":' * 100_000
    sends("messages: a deep document", body(deep, "application/json"))
    deep_block = b'{"type":"content_block_start","index":0,"content_block":{"type":"x","a":'
    sends("messages: a deep block", body(b"data: " + deep_block + b"[" * 90_000 + b"\n\n"))
    for document in ({"type": "error"}, {"content": None}, {"content": [5]}, {"content": [{}]}):
        sends(f"messages: {document}", body(json.dumps(document).encode(), "application/json"))


def _responses() -> None:
    events = wire.response_events(Spoken([HONEST, ("call", "c1", "look", "{}")]))
    begun = head() + chunked(b"".join(map(wire.event, events[:3])))
    reasoning = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x" * 60_000}
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": ""}
    place = {"output_index": 0}

    def done(item: Any, index: Any = 0) -> Json:
        return {"type": "response.output_item.done", "output_index": index, "item": item}

    endless = {
        "text": place | {"type": "response.output_text.delta", "delta": "word " * 1000},
        "refusal": place | {"type": "response.refusal.delta", "delta": "no " * 1000},
        "reasoning": place | {"type": "response.reasoning_text.delta", "delta": "x" * 60_000},
        "events": {"type": "response.in_progress"},
        "unknown events": {"type": "response.\x00", "delta": {"a": []}},
    }
    for name, event in endless.items():
        repeats(f"responses: endless {name}", begun, chunked(wire.event(event)))
    SLOW.update(("responses: endless events", "responses: endless unknown events"))

    for name, item in {"items": reasoning, "calls": call}.items():

        def play(item: Json = item) -> Any:
            yield begun
            for index in range(1_000_000):
                yield chunked(wire.event(done(item, index)))

        ATTACKS[f"responses: endless {name}"] = play
    completed = events[-1]
    for name, attack in {
        "items of no type": [done({}), done({"type": 5}, 1), done({"type": None}, None)],
        "a call of no name": [done(call | {"call_id": 5, "name": None, "arguments": [[]]})],
        "control characters": [
            done({"type": "message", "content": [{"text": "\ud800\x00"}, 5, {"refusal": []}]}),
            done(call | {"call_id": "\x01", "name": "lo\x00ok", "arguments": "\ud800"}, 1),
        ],
        "the same item again": [done(call), done(call), done(call)],
        "deltas of no item": [
            {"type": "response.function_call_arguments.delta", "delta": "{}", "output_index": 9}
        ],
        "an error of nothing": [{"type": "error"}],
        "a failure of nothing": [{"type": "response.failed", "response": {"status": "failed"}}],
        "a failure with an error of numbers": [
            {"type": "response.failed", "response": {"status": "failed", "error": {"code": 1e999}}}
        ],
        "incomplete for nothing": [
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": []}}}
        ],
    }.items():
        _says(f"responses: {name}", *events[:2], *attack, completed)
    odd = completed["response"] | {"usage": {"input_tokens": 10**400, "output_tokens": -5}}
    _says("responses: impossible usage", *events[:-1], completed | {"response": odd})
    many = completed["response"] | {"output": [call] * 300}
    _says("responses: many calls at the end", completed | {"response": many})
    for document in ({"error": {}}, {"output": [5]}, {"output": [{}] * 3}, {"status": "failed"}):
        sends(f"responses: {document}", body(json.dumps(document).encode(), "application/json"))
    sends("responses: a cut stream", begun + END)
