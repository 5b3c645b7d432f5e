"""Features that only OpenAI's Responses API has."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.config.llm import ModelChoice
from component.models.catalog import resolve
from component.models.hosted import HostedModel
from component.models.messages import (
    ModelMessage,
    OpaquePart,
    TextPart,
    ToolCall,
    result_message,
    text_message,
)
from component.models.protocol import ContextOverflowError, ModelRequest
from component.models.responses import Responses, ResponsesReader
from component.models.tool_schemas import ToolNames
from tests.component.models.asking import Make, asking, tool
from tests.component.models.disorder import parts, read_disordered
from tests.component.models.endpoint import Answer, Endpoint, Events, Garbage, Text
from tests.component.models.oracle import valid
from tests.component.models.wire import Phased, Spoken, response, response_events

REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "They ask for the time."}],
    "encrypted_content": "gAAAAA",
}
CALL = ("call", "call_1", "look", '{"a": {"b": [1, 2.5, "\u00e9"]}}')
PHASED = Spoken(
    [REASONING, Phased("I look.", "commentary"), CALL, Phased("It is noon.", "final_answer")]
)
ANSWERS = (
    Spoken(["It is noon."]),
    Spoken([REASONING, "Let me see.", CALL, ("call", "call_2", "look", "{}")]),
    Spoken(["It is n"], finish="max_output_tokens"),
    Spoken([], finish="content_filter"),
)


@pytest.fixture
def model(make: Make) -> HostedModel:
    return make(dialect="responses", model="gpt-5")


@pytest.mark.parametrize("answer", [*ANSWERS, PHASED])
def test_scripted_responses_events_fit_the_schemas_of_the_sdk(answer: Spoken) -> None:
    for event in response_events(answer):
        valid("responses event", event)
    valid("responses document", response(answer))


@given(st.sampled_from(ANSWERS), st.integers(1, 30), st.booleans())
def test_a_responses_stream_and_document_give_the_same_answer(
    answer: Spoken, pieces: int, deltas: bool
) -> None:
    answer.pieces = pieces
    streamed, whole = ResponsesReader(None), ResponsesReader(None)
    events = response_events(answer)
    if not deltas:  # some gateways send complete items only
        events = [event for event in events if not event["type"].endswith(".delta")]
    overs = [streamed.event(json.dumps(event).encode()) for event in events]
    whole.document(json.dumps(response(answer)).encode())
    assert overs == [False] * (len(overs) - 1) + [True]
    assert parts(streamed) == parts(whole)
    assert len(parts(whole)) == len(answer.parts)
    assert streamed.draft.finish_reason == whole.draft.finish_reason
    assert streamed.draft.used == whole.draft.used


@given(st.data())
def test_responses_events_in_any_order_raise_only_expected_errors(data: st.DataObject) -> None:
    events = [event for answer in (*ANSWERS, PHASED) for event in response_events(answer)]
    read_disordered(ResponsesReader(None), events, data)


# -- a conversation -------------------------------------------------------------------------------

pytest_anyio = pytest.mark.anyio


@pytest_anyio
async def test_nothing_is_stored_and_reasoning_is_given_back_in_its_place(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(
        Events(response_events(Spoken([REASONING, "Let me see.", CALL]))), Text("Noon.")
    )
    request = asking(tools=(tool("look"),))
    first = await model.complete(request)
    assert [type(part) for part in first.parts] == [OpaquePart, TextPart, ToolCall]
    messages = (
        text_message("system", "Be kind."),
        *request.messages,
        ModelMessage("assistant", first.parts),
        result_message("call_1", "12:00"),
    )
    await model.complete(ModelRequest(messages=messages, tools=request.tools))
    body = endpoint.requests[1].body
    valid("responses request", body)
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["instructions"] == "Be kind."
    assert body["input"][1:] == [
        REASONING,
        {
            "type": "message",
            "id": "msg",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": CALL[3]},
        {"type": "function_call_output", "call_id": "call_1", "output": "12:00"},
    ]


@pytest_anyio
@pytest.mark.parametrize("whole", [False, True])
async def test_messages_keep_their_phase(
    endpoint: Endpoint, model: HostedModel, whole: bool
) -> None:
    answer: Answer = Events(response_events(PHASED))
    if whole:
        answer = Garbage(json.dumps(response(PHASED)).encode(), "application/json")
    endpoint.answers(answer, Text("Noon."), Text("Noon."))
    request = asking(tools=(tool("look"),))
    first = await model.complete(request)
    assert first.text == "I look.It is noon."
    messages = (
        *request.messages,
        ModelMessage("assistant", first.parts),
        result_message("call_1", "12:00"),
    )
    again = ModelRequest(messages=messages, tools=request.tools)
    await model.complete(again)
    body = endpoint.requests[1].body
    valid("responses request", body)
    found = [(item.get("type"), item.get("phase")) for item in body["input"]]
    assert found == [
        (None, None),
        ("reasoning", None),
        ("message", "commentary"),
        ("function_call", None),
        ("message", "final_answer"),
        ("function_call_output", None),
    ]
    choice = ModelChoice.model_validate({"provider": "openai", "model": "gpt-5", "api_key": "k"})
    official = Responses(resolve(choice, "llm")).body(again, ToolNames(()))
    valid("responses request", json.loads(official))
    said = [item for item in json.loads(official)["input"] if item.get("role") == "assistant"]
    assert said == [
        {"role": "assistant", "content": "I look.", "phase": "commentary"},
        {"role": "assistant", "content": "It is noon.", "phase": "final_answer"},
    ]


@pytest_anyio
async def test_cached_and_reasoning_tokens_are_counted_and_priced(
    endpoint: Endpoint, make: Make
) -> None:
    usage = {
        "input_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 100},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 20},
    }
    endpoint.answers(Events(response_events(Spoken(["Noon."], usage=usage))))
    model = make(
        dialect="responses",
        usd_per_million_in=10,
        usd_per_million_out=100,
        usd_per_million_cache_read=1,
        usd_per_million_cache_write=12.5,
    )
    found = (await model.complete(asking())).usage
    assert (found.tokens_in, found.tokens_out, found.estimated) == (1000, 50, False)
    assert (found.cache_read, found.cache_write, found.reasoning) == (600, 100, 20)
    assert found.cost_usd == pytest.approx((300 * 10 + 600 + 100 * 12.5 + 50 * 100) / 1e6)


@pytest_anyio
async def test_a_response_that_failed(endpoint: Endpoint, make: Make) -> None:
    begun = response_events(Spoken(["It is noon."]))[:4]

    def failed(code: str) -> Events:
        error = {"code": code, "message": "It was not to be."}
        last = response(Spoken([])) | {"status": "failed", "error": error}
        return Events([*begun, {"type": "response.failed", "response": last}])

    endpoint.answers(failed("server_error"), Text("Noon."), failed("context_length_exceeded"))
    model = make(dialect="responses")
    assert (await model.complete(asking())).text == "Noon."
    with pytest.raises(ContextOverflowError):
        await model.complete(asking())


@pytest_anyio
async def test_a_refusal_is_the_text(endpoint: Endpoint, model: HostedModel) -> None:
    said = {"type": "refusal", "refusal": "I will not."}
    item = {"type": "message", "role": "assistant", "content": [said]}
    whole = response(Spoken([])) | {"output": [item]}
    endpoint.answers(Garbage(json.dumps(whole).encode(), "application/json"))
    assert (await model.complete(asking())).text == "I will not."


def test_openai_itself_is_told_of_the_system_where_it_speaks() -> None:
    choice = ModelChoice.model_validate({"provider": "openai", "model": "gpt-5", "api_key": "k"})
    adapter = Responses(resolve(choice, "llm"))
    messages = (
        text_message("system", "Be kind."),
        text_message("user", "Time?"),
        text_message("assistant", "It is"),
        text_message("system", "They stopped you."),
    )
    body = json.loads(adapter.body(ModelRequest(messages=messages), ToolNames(())))
    valid("responses request", body)
    assert [item["role"] for item in body["input"]] == ["user", "assistant", "developer"]
    assert body["input"][1]["content"] == "It is"
