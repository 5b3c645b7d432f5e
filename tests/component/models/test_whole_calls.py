"""The arguments of a call are whole, or the call is not made, in each dialect."""

import json
from typing import Any

import pytest

from component.models.chat_reader import ChatReader
from component.models.messages import ToolCall
from component.models.messages_dialect import MessagesReader
from component.models.responses import ResponsesReader
from component.models.tool_schemas import ToolNames

WANTED = '{"days": 90}'
Reader = ChatReader | ResponsesReader | MessagesReader


def read(reader: Reader, *events: dict[str, Any]) -> Reader:
    for event in events:
        reader.event(json.dumps(event).encode())
    return reader


def calls(reader: Reader) -> list[tuple[str, str]]:
    parts = reader.draft.parts(ToolNames(()), "o", set())
    return [(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)]


# -- the events of the dialects ------------------------------------------------------------------


def chat(finish: str | None = None, **call: Any) -> dict[str, Any]:
    delta = {"tool_calls": [call]} if call else {}
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


def begin(**more: Any) -> dict[str, Any]:
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": ""}
    return {"type": "response.output_item.added", "item": item} | more


def argue(piece: str, **more: Any) -> dict[str, Any]:
    return {"type": "response.function_call_arguments.delta", "delta": piece} | more


def responded(status: str = "completed") -> dict[str, Any]:
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    response = {"status": status, "incomplete_details": details}
    return {"type": f"response.{status}", "response": response}


def block(index: int | None, name: str = "f") -> dict[str, Any]:
    content = {"type": "tool_use", "id": "t1", "name": name, "input": {}}
    return {"type": "content_block_start", "index": index, "content_block": content}


def grow(index: int | None, piece: str) -> dict[str, Any]:
    delta = {"type": "input_json_delta", "partial_json": piece}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def stopped(reason: str) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}}


# -- a call without arguments --------------------------------------------------------------------

NAME_ONLY: dict[str, Any] = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}
CHAT = (ChatReader, [chat(**NAME_ONLY)], chat("length"), chat("tool_calls"))
RESPONSES = (
    ResponsesReader,
    [begin(output_index=0)],
    responded("incomplete"),
    responded(),
)
MESSAGES = (
    MessagesReader,
    [block(0), {"type": "content_block_stop", "index": 0}],
    stopped("max_tokens"),
    stopped("tool_use"),
)


@pytest.mark.parametrize(("reader", "events", "cut", "done"), [CHAT, RESPONSES, MESSAGES])
def test_a_call_has_no_arguments_only_if_the_provider_says_that_it_is_complete(
    reader: Any, events: list[dict[str, Any]], cut: dict[str, Any], done: dict[str, Any]
) -> None:
    assert calls(read(reader(None), *events, cut)) == [("f", "")]
    assert calls(read(reader(None), *events)) == [("f", "")]
    assert calls(read(reader(None), *events, done)) == [("f", "{}")]


# -- pieces --------------------------------------------------------------------------------------


def pieces(*of: dict[str, Any], name: str = "", **more: Any) -> list[dict[str, Any]]:
    """A call whose arguments come in three pieces; `of` are what else each of them has."""
    texts = ("", WANTED[:5], WANTED[5:])
    functions = [{"name": "f", "arguments": ""}] + [
        {"arguments": text} | ({"name": name} if name else {}) for text in texts[1:]
    ]
    return [chat(function=function, **one) for function, one in zip(functions, of, strict=True)]


@pytest.mark.parametrize(
    "events",
    [
        pieces({"index": 0, "id": "a"}, {"index": 0, "id": "b"}, {"index": 0, "id": "c"}),
        pieces({"index": 0, "id": "a"}, {"index": 0, "id": "b"}, {"index": 0, "id": "c"}, name="f"),
        pieces({"id": "a"}, {"id": "b"}, {"id": "c"}),
        pieces({"index": 0, "id": "a"}, {"index": 1, "id": "a"}, {"index": 2, "id": "a"}),
        pieces({"index": 0, "id": "a"}, {"index": 1, "id": "b"}, {"index": 2, "id": "c"}),
        pieces({}, {}, {}),
        [*pieces({"id": "a"}, {"id": "a"}, {"id": "a"}),
         chat(id="a", function={"name": "f", "arguments": WANTED})],
    ],
)  # fmt: skip
def test_pieces_of_chat_completions_are_joined_by_index_id_or_order(
    events: list[dict[str, Any]],
) -> None:
    reader = read(ChatReader(None), *events, chat("tool_calls"))
    assert calls(reader) == [("f", WANTED)]
    assert not reader.draft.incoherent


def test_pieces_of_two_calls_that_come_by_turns_are_kept_apart() -> None:
    reader = read(
        ChatReader(None),
        chat(index=0, id="a", function={"name": "f", "arguments": ""}),
        chat(index=1, id="b", function={"name": "g", "arguments": ""}),
        chat(index=0, function={"arguments": WANTED[:5]}),
        chat(index=1, function={"arguments": "{}"}),
        chat(index=0, function={"arguments": WANTED[5:]}),
        chat("tool_calls"),
    )
    assert calls(reader) == [("f", WANTED), ("g", "{}")]


@pytest.mark.parametrize(
    "more",
    [
        [{"output_index": 0}] * 3,
        [{"item_id": "fc_1"}] * 3,
        [{"item_id": "x"}, {"item_id": "y"}, {"item_id": "z"}],
    ],
)
def test_pieces_of_responses_are_joined_by_index_id_or_order(more: list[dict[str, Any]]) -> None:
    first, second, third = more
    events = [begin(**first), argue(WANTED[:5], **second), argue(WANTED[5:], **third), responded()]
    assert calls(read(ResponsesReader(None), *events)) == [("f", WANTED)]
    done = {"type": "response.function_call_arguments.done", "arguments": WANTED}
    events = [begin(**first), done | second, responded()]
    assert calls(read(ResponsesReader(None), *events)) == [("f", WANTED)]


@pytest.mark.parametrize("indexes", [(0, 0, 0), (0, 1, 2), (None, None, None)])
def test_pieces_of_messages_are_joined_by_index_or_order(indexes: tuple[int | None, ...]) -> None:
    first, second, third = indexes
    events = [block(first), grow(second, WANTED[:5]), grow(third, WANTED[5:]), stopped("tool_use")]
    assert calls(read(MessagesReader(None), *events)) == [("f", WANTED)]


@pytest.mark.parametrize(
    ("reader", "events"),
    [
        (ChatReader, [chat(index=0, function={"arguments": WANTED}), chat("tool_calls")]),
        (ResponsesReader, [argue(WANTED, output_index=3), responded()]),
        (MessagesReader, [grow(0, WANTED), stopped("tool_use")]),
    ],
)
def test_a_piece_that_belongs_to_no_call_makes_the_answer_incoherent(
    reader: Any, events: list[dict[str, Any]]
) -> None:
    assert read(reader(None), *events).draft.incoherent


# -- other encodings -----------------------------------------------------------------------------

WHOLE: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "f"}
DECODED = json.loads(WANTED)


@pytest.mark.parametrize(
    ("reader", "events"),
    [
        (ChatReader, [chat(id=7, index="0", function={"name": "f", "arguments": WANTED})]),
        (ChatReader, [chat(function={"name": "f", "arguments": DECODED})]),
        (ChatReader, [chat(function={"name": "f", "arguments": json.dumps(WANTED)})]),
        (ChatReader, [{"choices": [{"delta": {"function_call": {"name": "f"}}}]},
                     {"choices": [{"delta": {"function_call": {"arguments": WANTED}}}]}]),
        (ChatReader, [chat(index=0, id="a", function={"name": "f", "arguments": WANTED}),
                     chat(index=0, id="a", function={"arguments": WANTED})]),
        (ResponsesReader, [{"type": "response.output_item.done",
                            "item": WHOLE | {"arguments": DECODED}}]),
        (ResponsesReader, [begin(), {"type": "response.function_call_arguments.done",
                                     "arguments": DECODED}]),
        (MessagesReader, [{"type": "content_block_start", "index": 0, "content_block":
                           {"type": "tool_use", "id": "t1", "name": "f", "input": WANTED}},
                          {"type": "content_block_stop", "index": 0}]),
    ],
)  # fmt: skip
def test_arguments_are_not_lost_however_they_are_encoded(
    reader: Any, events: list[dict[str, Any]]
) -> None:
    ends = {
        ChatReader: chat("tool_calls"),
        ResponsesReader: responded(),
        MessagesReader: stopped("tool_use"),
    }
    ((name, arguments),) = calls(read(reader(None), *events, ends[reader]))
    assert (name, json.loads(arguments)) == ("f", DECODED)


@pytest.mark.parametrize("arguments", [[], [1], 5, True, "5", '"five"', "nonsense"])
def test_what_is_no_object_is_not_taken_for_a_call_without_arguments(arguments: Any) -> None:
    item = {"type": "response.output_item.done", "item": WHOLE | {"arguments": arguments}}
    (responses,) = calls(read(ResponsesReader(None), item, responded()))
    function = {"name": "f", "arguments": arguments}
    (chat_completions,) = calls(read(ChatReader(None), chat(function=function), chat("tool_calls")))
    assert "{}" not in (responses[1], chat_completions[1])


def test_two_objects_in_one_call_are_no_arguments() -> None:
    reader = read(
        ChatReader(None),
        chat(index=0, id="a", function={"name": "f", "arguments": ""}),
        chat(index=0, function={"name": "", "arguments": WANTED}),
        chat(index=0, function={"name": "", "arguments": '{"days": 1}'}),
        chat("tool_calls"),
    )
    ((_, arguments),) = calls(reader)
    with pytest.raises(ValueError, match="Extra data"):
        json.loads(arguments)


# -- what gateways make of it --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "arguments"),
    [
        *[(reason, "{}") for reason in ("stop", "tool_use", "end_turn", "function_call", "EOS")],
        *[(reason, "") for reason in ("abort", "network_error", "insufficient_system_resource")],
        *[(reason, "") for reason in ("MALFORMED_FUNCTION_CALL", "cancelled", "max_output_tokens")],
        *[(reason, "") for reason in ("other", "a reason of next year")],
    ],
)
def test_a_call_has_no_arguments_only_after_a_reason_that_says_so(
    reason: str, arguments: str
) -> None:
    chat_completions = read(ChatReader(None), chat(**NAME_ONLY), chat(reason))
    messages = read(MessagesReader(None), block(0), stopped(reason))
    assert calls(chat_completions) == calls(messages) == [("f", arguments)]


def test_empty_arguments_before_the_cut_of_an_answer_may_be_the_beginning_of_others() -> None:
    first = chat(index=0, id="c1", function={"name": "f", "arguments": "{}"})
    assert calls(read(ChatReader(None), first, chat("length"))) == [("f", "")]
    assert calls(read(ChatReader(None), first, chat("tool_calls"))) == [("f", "{}")]


@pytest.mark.parametrize("stop", [[], [{"type": "content_block_stop", "index": 7}]])
def test_a_block_that_begins_with_its_arguments_has_them_without_an_end(
    stop: list[dict[str, Any]],
) -> None:
    begun = block(0)
    begun["content_block"]["input"] = DECODED
    ((_, arguments),) = calls(read(MessagesReader(None), begun, *stop, stopped("tool_use")))
    assert json.loads(arguments) == DECODED
    # The next block has the same index.
    reader = read(MessagesReader(None), begun, block(0, "g"), stopped("tool_use"))
    assert [(name, json.loads(one)) for name, one in calls(reader)] == [("f", DECODED), ("g", {})]


def item_of(id_: str, name: str = "f", arguments: str = "", **more: Any) -> dict[str, Any]:
    own = {"id": f"fc_{id_}", "call_id": id_, "name": name, "arguments": arguments}
    return {"type": "function_call"} | own | more


def added(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "item": item} | more


def done(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": item} | more


def completed(*output: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"status": "completed", "output": output}}


MESSAGE: dict[str, Any] = {
    "type": "message",
    "id": "m",
    "content": [{"type": "output_text", "text": "So."}],
}
SAID = {"type": "response.output_text.delta", "delta": "So."}
GIVEN = {"type": "response.function_call_arguments.done", "arguments": WANTED}
ZERO = {"output_index": 0}
FIRST, OTHER = item_of("1", arguments=WANTED), item_of("2", "g", '{"a":1}')


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        # No event has an index, and the end repeats all.
        ([added(item_of("1")), argue(WANTED), done(FIRST), completed(FIRST)], 1),
        ([added(item_of("1"), item_id="fc_1"), argue(WANTED, item_id="fc_1"), completed(FIRST)], 1),
        # Each item has the index 0.
        ([SAID | ZERO, added(item_of("1"), **ZERO), GIVEN | ZERO, done(FIRST, **ZERO)], 1),
        ([added(MESSAGE, **ZERO), SAID | ZERO, done(MESSAGE, **ZERO), added(item_of("1"), **ZERO),
          argue(WANTED, **ZERO), done(FIRST, **ZERO), completed(MESSAGE, FIRST)], 1),
        ([done(FIRST, **ZERO), done(OTHER, **ZERO), completed(FIRST, OTHER)], 2),
        ([added(item_of("1"), **ZERO), GIVEN | ZERO, done(FIRST, **ZERO), added(OTHER, **ZERO)], 2),
        # The end has an item more than the stream, so the indexes differ.
        ([added(item_of("1"), **ZERO), argue(WANTED, **ZERO), done(FIRST, **ZERO),
          completed({"type": "reasoning", "id": "r", "summary": []}, FIRST)], 1),
        # Only the ids say to which call a piece belongs.
        ([added(item_of("1")), added(item_of("2", "g")), argue(WANTED[:5], item_id="fc_1"),
          argue('{"a":1}', item_id="fc_2"), argue(WANTED[5:], item_id="fc_1")], 2),
        # The arguments come with the beginning, or the name at the end.
        ([added(FIRST, **ZERO)], 1),
        ([added(item_of("1", ""), **ZERO), argue(WANTED, **ZERO), done(FIRST, **ZERO)], 1),
    ],
)  # fmt: skip
def test_each_call_of_responses_is_made_once_whatever_indexes_and_ids_the_events_have(
    events: list[dict[str, Any]], wanted: int
) -> None:
    ends = () if events[-1]["type"] == "response.completed" else (responded(),)
    reader = read(ResponsesReader(None), *events, *ends)
    assert calls(reader) == [("f", WANTED), ("g", '{"a":1}')][:wanted]
    assert not reader.draft.incoherent


def test_a_call_that_the_provider_calls_incomplete_has_no_arguments() -> None:
    cut = done(item_of("1", status="incomplete"), **ZERO)
    assert calls(read(ResponsesReader(None), cut, responded())) == [("f", "")]


def test_calls_that_the_end_of_chat_completions_repeats_are_made_once() -> None:
    some = [("a", "f", WANTED), ("b", "g", '{"a":1}')]
    deltas = [
        chat(index=number, id=id_, function={"name": name, "arguments": arguments})
        for number, (id_, name, arguments) in enumerate(some)
    ]
    again = [{"id": id_, "function": {"name": n, "arguments": a}} for id_, n, a in some]
    end = {"choices": [{"message": {"tool_calls": again}, "finish_reason": "tool_calls"}]}
    assert calls(read(ChatReader(None), *deltas, end)) == [(name, a) for _, name, a in some]
