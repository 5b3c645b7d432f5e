"""What a provider sends beside a call or a text goes back to it, and to no other provider."""

import json
import re
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.building import Fallback
from component.models.chat_text import more_fields
from component.models.hosted import HostedModel
from component.models.messages import (
    ModelMessage,
    ToolCall,
    add_fields,
    is_portable_id,
    portable_id,
    result_message,
    text_message,
)
from component.models.protocol import Completion, ModelRequest
from tests.component.models import wire
from tests.component.models.asking import Make, asking, tool
from tests.component.models.endpoint import (
    Answer,
    Calls,
    Chunks,
    Endpoint,
    Events,
    Refuse,
    Request,
    Text,
)
from tests.component.models.oracle import valid

pytestmark = pytest.mark.anyio
SIGNATURE = {"google": {"thought_signature": "SIGNED=="}}
LONG_ID = "call_" + "a1B2c3D4e5" * 4 + "x"
TOOLS = (tool("clock"), tool("look"))
NAMES = ("chat", "responses", "messages")


def chat(*deltas: dict[str, Any], finish: str = "tool_calls") -> Chunks:
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return Chunks([*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}])


def chat_call(id_: str = "c1", name: str = "clock", index: int = 0, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": "{}", **more.pop("function", {})}
    return {"index": index, "id": id_, "type": "function", "function": function, **more}


def next_round(completion: Completion, request: ModelRequest) -> ModelRequest:
    results = [result_message(call.id, "12:00") for call in completion.tool_calls]
    messages = (*request.messages, ModelMessage("assistant", completion.parts), *results)
    return msgspec.structs.replace(request, messages=messages)


async def second_message(endpoint: Endpoint, model: HostedModel, answer: Answer) -> dict[str, Any]:
    """The assistant's message in the second request, after this answer to the first."""
    endpoint.answers(answer, Text("Noon."))
    request = asking(tools=TOOLS)
    await model.complete(next_round(await model.complete(request), request))
    found: dict[str, Any] = endpoint.requests[1].messages[1]
    return found


async def test_the_signature_of_each_call_goes_back_beside_it(
    endpoint: Endpoint, model: HostedModel
) -> None:
    other = {"google": {"thought_signature": "OTHER"}}
    sent = await second_message(
        endpoint,
        model,
        chat(
            {"tool_calls": [chat_call("c1", extra_content=SIGNATURE)]},
            {"tool_calls": [chat_call("c2", index=1)]},
            {"tool_calls": [chat_call("c3", "look", index=2, extra_content=other)]},
        ),
    )
    assert [call.get("extra_content") for call in sent["tool_calls"]] == [SIGNATURE, None, other]


async def test_reasoning_in_pieces_inside_a_call_goes_back_inside_it(
    endpoint: Endpoint, model: HostedModel
) -> None:
    sent = await second_message(
        endpoint,
        model,
        chat(
            {"tool_calls": [chat_call(reasoning_content="I ", function={"signature": "S"})]},
            {"tool_calls": [{"index": 0, "reasoning_content": "look."}]},
        ),
    )
    [call] = sent["tool_calls"]
    assert call["reasoning_content"] == "I look."
    assert call["function"] == {"name": "clock", "arguments": "{}", "signature": "S"}


@pytest.mark.parametrize(
    ("fields", "returned"),
    [
        ({"extra_content": SIGNATURE}, {"extra_content": SIGNATURE}),
        ({"reasoning_opaque": "SEALED", "reasoning_text": "Hm."}, None),
        ({"thinking_blocks": [{"type": "thinking", "thinking": "Hm", "signature": "S"}]}, None),
        ({"reasoning_content": "Hm.", "thought_signature": "S"}, None),
        ({"provider_specific_fields": {"a": 1}, "audio": None, "annotations": []},
         {"provider_specific_fields": {"a": 1}}),
    ],
)  # fmt: skip
async def test_fields_beside_a_text_go_back_whatever_they_are_called(
    endpoint: Endpoint, model: HostedModel, fields: Any, returned: Any
) -> None:
    sent = await second_message(
        endpoint, model, chat({"content": "I look.", **fields}, {"tool_calls": [chat_call()]})
    )
    for name in ("role", "content", "tool_calls"):
        del sent[name]
    assert sent == (returned or fields)


async def test_an_id_of_its_own_form_goes_back_to_the_model(
    endpoint: Endpoint, model: HostedModel
) -> None:
    for id_ in ("functions.clock:0", LONG_ID):
        endpoint.requests.clear()
        await second_message(endpoint, model, chat({"tool_calls": [chat_call(id_)]}))
        call, result = endpoint.requests[1].messages[1:]
        assert (call["tool_calls"][0]["id"], result["tool_call_id"]) == (id_, id_)


@pytest.mark.parametrize(
    ("speech", "path"),
    [
        ("chat", "messages[1].tool_calls[0].id"),
        ("chat", "messages[2].tool_call_id"),
        ("responses", "input[1].call_id"),
        ("responses", "input[2].call_id"),
        ("messages", "messages.1.content.0.tool_use.id"),
    ],
)
async def test_an_id_that_its_own_gateway_refuses_is_mapped(
    endpoint: Endpoint, make: Make, speech: str, path: str
) -> None:
    refusal = Refuse(400, f"Invalid '{path}': string too long.", code="string_above_max_length")
    endpoint.answers(Calls(("clock", {}, LONG_ID)), refusal, Text("Noon."))
    request, model = asking(tools=TOOLS), make(dialect=speech)
    completion = await model.complete(next_round(await model.complete(request), request))
    assert (completion.text, len(completion.refused)) == ("Noon.", 1)
    calls, results = ids_of(endpoint.requests[2], speech)
    assert calls == results == [portable_id(LONG_ID)]


async def test_a_field_of_a_tool_use_block_goes_back_with_it(
    endpoint: Endpoint, make: Make
) -> None:
    block = {"type": "tool_use", "id": "t1", "name": "clock", "input": {}, "caller": {"type": "x"}}
    answer = {"id": "m", "type": "message", "role": "assistant", "content": [block],
              "stop_reason": "tool_use", "usage": {}}  # fmt: skip
    sent = await second_message(endpoint, make(dialect="messages"), Refuse(200, body=answer))
    assert sent["content"] == [block]


async def test_a_field_of_a_function_call_item_goes_back_with_it(
    endpoint: Endpoint, make: Make
) -> None:
    item = {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"}
    output = [{**item, "id": "fc_1", "status": "completed", "namespace": "n"}]
    endpoint.answers(Refuse(200, body={"status": "completed", "output": output}), Text("Noon."))
    request, model = asking(tools=TOOLS), make(dialect="responses")
    await model.complete(next_round(await model.complete(request), request))
    assert endpoint.requests[1].body["input"][1] == {**item, "namespace": "n"}


async def test_thinking_without_a_signature_goes_back_to_a_model_that_has_none(
    endpoint: Endpoint, make: Make
) -> None:
    block = {"type": "thinking", "thinking": "Hm."}
    call = {"type": "tool_use", "id": "t1", "name": "clock", "input": {}}
    answer = {"type": "message", "content": [block, call], "stop_reason": "tool_use"}
    model = make(dialect="messages", model="deepseek-chat")
    sent = await second_message(endpoint, model, Refuse(200, body=answer))
    assert sent["content"] == [block, call]


async def test_calls_of_another_model_are_signed_once_gemini_asks_for_it(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(
        Refuse(
            400,
            "Function call is missing a thought_signature in functionCall parts. Additional data,"
            " function call `default_api:clock_read`, position 2.",
        ),
        Text("Noon."),
    )
    call = ModelMessage("assistant", (ToolCall("1", "clock", "{}"), ToolCall("2", "clock", "{}")))
    messages = (text_message("user", "Time?"), call, *(result_message(n, "12:00") for n in "12"))
    request = ModelRequest(messages=messages, tools=(tool("clock_read"),))
    assert (await model.complete(request)).text == "Noon."
    assert len(endpoint.requests[1].tools) == 1
    calls = endpoint.requests[1].messages[1]["tool_calls"]
    assert ["extra_content" in call for call in calls] == [True, False]


# -- a fallback in the middle of a round ----------------------------------------------------------


def answer_of(speech: str, id_: str, name: str) -> Answer:
    """A call with reasoning and a signature, as a provider of this dialect sends it."""
    if speech == "chat":
        return chat(
            {"reasoning_content": f"SEALED by {speech}"},
            {"tool_calls": [chat_call(id_, name, extra_content={"by": f"SEALED {speech}"})]},
        )
    call = ("call", id_, name, "{}")
    if speech == "responses":
        reasoning = {"type": "reasoning", "id": "rs_1", "summary": [],
                     "encrypted_content": f"SEALED by {speech}"}  # fmt: skip
        return Events(list(wire.response_events(wire.Spoken([reasoning, call]), "m")))
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": f"SEALED by {speech}"}
    return Events(list(wire.message_events(wire.Spoken([thinking, call]), "m")))


def ids_of(request: Request, speech: str) -> tuple[list[str], list[str]]:
    """The ids of calls, and of results."""
    if speech == "chat":
        calls = [c["id"] for m in request.messages for c in m.get("tool_calls", ())]
        return calls, [m["tool_call_id"] for m in request.messages if m["role"] == "tool"]
    if speech == "responses":
        items = request.body["input"]
        calls = [i["call_id"] for i in items if i.get("type") == "function_call"]
        return calls, [i["call_id"] for i in items if i.get("type") == "function_call_output"]
    blocks = [b for m in request.messages for b in m["content"] if isinstance(b, dict)]
    return (
        [b["id"] for b in blocks if b["type"] == "tool_use"],
        [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"],
    )


@pytest.mark.parametrize("id_", ["call_1", "functions.clock:0", LONG_ID])
@pytest.mark.parametrize(("speech", "other"), list(permutations(NAMES, 2)))
async def test_a_fallback_of_another_dialect_goes_on_in_the_middle_of_a_round(
    endpoint: Endpoint, make: Make, speech: str, other: str, id_: str
) -> None:
    models = [make(dialect=name, model=f"{name}-m", retries=0) for name in (speech, other)]
    chain = Fallback(models)
    request = asking(tools=TOOLS)
    # The first model calls a tool and is then away: the other one reads the result and calls again.
    endpoint.answers(answer_of(speech, id_, "clock"))
    request = next_round(await chain.complete(request), request)
    endpoint.answers(Refuse(503), answer_of(other, "o.1", "look"))
    second = await chain.complete(request)
    assert [call.name for call in second.tool_calls] == ["look"]
    assert second.model == f"{other}-m"
    # The first one is back, and gets its own things, and none of the other one's.
    request = next_round(second, request)
    endpoint.answers(Text("Noon."))
    assert (await chain.complete(request)).text == "Noon."

    _, own, foreign, back = endpoint.requests
    for sent, name in ((own, speech), (foreign, other), (back, speech)):
        if name != "chat" or sent is foreign:  # its own fields are not those of OpenAI
            valid(f"{name} request", sent.body)
        calls, results = ids_of(sent, name)
        assert calls == results
        assert len(set(calls)) == len(calls)
    assert ids_of(own, speech)[0] == [id_], "its own id goes back"
    [mapped] = ids_of(foreign, other)[0]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", mapped)
    assert f"SEALED by {speech}" in json.dumps(own.body)
    assert "SEALED" not in json.dumps(foreign.body)
    said = json.dumps(back.body)
    assert f"SEALED by {speech}" in said
    assert f"SEALED by {other}" not in said
    assert ids_of(back, speech)[0][0] == id_
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", ids_of(back, speech)[0][1])


@pytest.mark.parametrize("speech", ["responses", "messages"])
async def test_mistral_gets_ids_of_nine_characters_after_another_provider(
    endpoint: Endpoint, make: Make, speech: str
) -> None:
    def mistral(request: Request) -> Answer:
        calls, results = ids_of(request, "chat")
        if calls == results and all(re.fullmatch("[A-Za-z0-9]{9}", each) for each in calls):
            return Calls(("look", {}, "a1B2c3D4e"))
        return Refuse(400, "Tool call id was x but must be a-z, A-Z, 0-9, with a length of 9.")

    chain = Fallback([make(dialect=speech, retries=0), make(model="mistral", retries=0)])
    request = asking(tools=TOOLS)
    endpoint.answers(answer_of(speech, LONG_ID, "clock"))
    request = next_round(await chain.complete(request), request)
    endpoint.answers(Refuse(503), mistral, mistral)
    second = await chain.complete(request)
    assert [call.id for call in second.tool_calls] == ["a1B2c3D4e"]


# -- small parts ----------------------------------------------------------------------------------


@given(st.text())
def test_every_api_takes_a_portable_id(id_: str) -> None:
    mapped = portable_id(id_)
    assert is_portable_id(mapped)
    assert portable_id(mapped) == mapped


def test_fields_of_pieces_are_merged() -> None:
    known: dict[str, Any] = {}
    pieces: list[dict[str, Any]] = [
        {"reasoning": "a", "x": {"signature": "s", "n": None}, "l": [1], "id": "i"},
        {"reasoning": "a", "x": {"signature": "s", "m": 2}, "l": [2], "id": "i"},
    ]
    for piece in pieces:
        add_fields(known, piece)
    assert known == {"reasoning": "aa", "x": {"signature": "s", "n": None, "m": 2}, "l": [1, 2],
                     "id": "i"}  # fmt: skip


@given(st.binary() | st.sampled_from([b'{"choices":7,"signature":1}', b'{"thought":1}',
                                      b'{"choices":[{"delta":[{"signature":1}]}]}']))  # fmt: skip
def test_any_event_is_searched_for_more_fields(data: bytes) -> None:
    assert more_fields(data) == {}
    assert more_fields(b'{"choices":[{"delta":{"content":"\\"signature\\": 1"}}]}') == {}
