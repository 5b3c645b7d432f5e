"""Whole responses of a provider, drawn by hypothesis: what it says in each dialect, and the
JSON and HTTP around it, all of it bent.
"""

import json
from typing import Any

from hypothesis import strategies as st

from component.config.llm import Dialect
from tests.component.models import wire
from tests.component.models.wire import Phased, Spoken
from tests.hostile.provider import DONE, END, body, chunk, chunked, head

_HUGE = 300_000
Json = dict[str, Any]

WILD = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([2**31, 2**63, -(2**63), 2**64, 10**400]),
        st.floats(),
        st.text(st.characters(), max_size=8),
        st.text('\x00\x01\x1b\ud800\udc00\ufffe{}[]"\\', max_size=8),
        st.just("x" * _HUGE),
        st.just('{"a":' * 2000),
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)
TEXT = st.text(st.characters(), max_size=20)
ARGUMENTS = st.sampled_from(["{}", '{"q": ["a", 1.5]}'])
TOOL = st.sampled_from(["look", "buy", "", "no such tool"])

# -- chat completions -----------------------------------------------------------------------------

CHAT_CALL = st.builds(
    lambda index, id_, name, arguments: {
        "index": index,
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    },
    st.integers(0, 3),
    TEXT,
    st.sampled_from(["look", "buy", "", "no such tool"]),
    st.sampled_from(['{"q":"', "{}", 'x"}', "["]) | TEXT,
)
CHAT_EVENT = st.one_of(
    TEXT.map(lambda text: chunk({"content": text})),
    st.lists(CHAT_CALL, min_size=1, max_size=3).map(lambda calls: chunk({"tool_calls": calls})),
    CHAT_CALL.map(lambda call: chunk({"tool_calls": [call] * 200})),
    st.sampled_from([chunk(), {"choices": []}, {"error": {"message": "overloaded", "code": 503}}]),
)
CHAT_LAST = st.builds(
    lambda reason, tokens, cost: chunk(
        finish=reason,
        usage={"prompt_tokens": tokens, "completion_tokens": tokens, "cost": cost},
    ),
    st.sampled_from(["stop", "length", "tool_calls", "content_filter", "error", "other"]),
    st.integers(0, 99),
    st.floats(0, 1),
)


@st.composite
def _chat(draw: st.DrawFn) -> tuple[list[Json], Json]:
    events: list[Json] = [*draw(st.lists(CHAT_EVENT, max_size=4)), draw(CHAT_LAST)]
    first = json.dumps(events[0]).replace('"delta"', '"message"')
    return events, json.loads(first)


# -- Responses and Messages -----------------------------------------------------------------------

CALL = st.tuples(st.just("call"), TEXT, TOOL, ARGUMENTS)
ITEM = st.one_of(
    TEXT,
    st.builds(Phased, TEXT, st.sampled_from(["commentary", "final_answer", "", "new"])),
    CALL,
    st.sampled_from(
        [
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}],
             "encrypted_content": "gAAAAA"},
            {"type": "web_search_call", "id": "w", "status": "completed"},
            {"type": "not known", "id": "n"},
        ]
    ),
)  # fmt: skip
BLOCK = st.one_of(
    TEXT,
    CALL,
    st.sampled_from(
        [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "ZGF0YQ=="},
            {"type": "server_tool_use", "id": "s", "name": "search", "input": {"q": "a"}},
            {"type": "not known"},
        ]
    ),
)
UNKNOWN = st.sampled_from(
    [
        {"type": "not known"},
        {"type": "ping"},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        {},
        {"type": "response.not.known", "delta": "x", "item": {}, "output_index": 0},
        {"type": "response.output_text.delta", "delta": "late", "output_index": 9},
        {"type": "response.function_call_arguments.delta", "delta": "}", "output_index": 1},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "not known", "text": "x"}},
        {"type": "content_block_stop", "index": 0},
    ]
)


@st.composite
def _disordered(draw: st.DrawFn, events: list[Json]) -> list[Json]:
    """Events of which some are missing, repeated, unknown, or in another place."""
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(0, len(events) - 1)))
        match draw(st.sampled_from(["drop", "repeat", "move", "add"])):
            case "drop":
                events = events[:at] + events[at + 1 :]
            case "repeat":
                events = events[:at] + events[at : at + 1] * 3 + events[at + 1 :]
            case "move":
                to = draw(st.integers(0, len(events)))
                moved, events = events[at : at + 1], events[:at] + events[at + 1 :]
                events = events[:to] + moved + events[to:]
            case _:
                events = [*events[:at], draw(UNKNOWN), *events[at:]]
    return events


@st.composite
def _responses(draw: st.DrawFn) -> tuple[list[Json], Json]:
    finish = draw(st.sampled_from([None, None, "max_output_tokens", "content_filter", "other"]))
    spoken = Spoken(draw(st.lists(ITEM, max_size=4)), draw(st.integers(1, 5)), finish)
    return draw(_disordered(wire.response_events(spoken))), wire.response(spoken)


@st.composite
def _messages(draw: st.DrawFn) -> tuple[list[Json], Json]:
    finish = draw(st.sampled_from([None, None, "max_tokens", "refusal", "pause_turn", "other"]))
    spoken = Spoken(draw(st.lists(BLOCK, max_size=4)), draw(st.integers(1, 5)), finish)
    return draw(_disordered(wire.message_events(spoken))), wire.message(spoken)


# -- JSON and HTTP --------------------------------------------------------------------------------

TYPES = ["text/plain", "text/html", "application/json", "image/png", None, ";"]
STATUS = [302, 400, 401, 413, 422, 429, 500, 503, 999]
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "Retry-After-Ms", "Content-Encoding", "Location", "Cookie"]),
    st.sampled_from(["1e300", "-1", "gzip", "identity", "a=b", "http://127.0.0.2:9/", "\xff", ""]),
    min_size=1,
    max_size=2,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a document: what holds it, and its key there."""
    found: list[tuple[Any, Any]] = []
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        found += [(value, key), *places(value[key])]
    return found


_DIALECTS: dict[Dialect, st.SearchStrategy[tuple[list[Json], Json]]] = {
    "chat": _chat(),
    "responses": _responses(),
    "messages": _messages(),
}


@st.composite
def answers(draw: st.DrawFn, dialect: Dialect) -> bytes:
    """A whole response, and what is wrong with it: seldom more than a thing or two."""

    def seldom() -> bool:
        return draw(st.integers(0, 7)) == 7

    events, document = draw(_DIALECTS[dialect])
    is_document = seldom()
    chosen = json.loads(json.dumps([document] if is_document else events))
    for _ in range(draw(st.integers(0, 3))):
        if not chosen:
            break
        holder, key = draw(st.sampled_from(places(chosen)))
        if draw(st.booleans()):
            holder[key] = draw(WILD)
        else:
            del holder[key]
    ascii_only = draw(st.booleans())
    encoded = [
        json.dumps(one, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for one in chosen
    ]
    data = b"".join(b"data: %s\n\n" % event for event in encoded)
    data += draw(st.sampled_from([DONE, DONE, b"data: [DONE]", b"", b": x\n\ndata: x"]))
    kind: str | None = "text/event-stream"
    if encoded and is_document:
        data, kind = encoded[0], "application/json"
    while seldom():  # bytes that are others than they should be
        at = draw(st.integers(0, max(0, len(data) - 1)))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 4)) :]
    kind = draw(st.sampled_from(TYPES)) if seldom() else kind
    status = draw(st.sampled_from(STATUS)) if seldom() else 200
    headers = draw(HEADERS) if seldom() else {}
    if draw(st.booleans()):
        whole = body(data, kind, status=status, headers=headers)
    else:
        size = draw(st.sampled_from([1, 7, 1000])) if len(data) < 5000 else 1 << 16
        pieces = [chunked(data[at : at + size]) for at in range(0, len(data), size)]
        whole = b"".join((head(kind, status, headers=headers), *pieces, END))
    return whole[: draw(st.integers(0, len(whole)))] if seldom() else whole
