"""Features that only Anthropic's Messages API has."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.hosted import HostedModel
from component.models.messages import (
    ModelMessage,
    OpaquePart,
    TextPart,
    ToolCall,
    ToolResultPart,
    call_message,
    result_message,
    text_message,
)
from component.models.messages_dialect import MessagesReader
from component.models.protocol import ModelRequest, ModelUnavailableError, Void
from tests.component.models.asking import Make, asking, tool
from tests.component.models.disorder import parts, read_disordered
from tests.component.models.endpoint import Endpoint, Events, Text
from tests.component.models.oracle import valid
from tests.component.models.wire import Spoken, message, message_events

THINKING = {"type": "thinking", "thinking": "They ask for the time.", "signature": "EqQB"}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAh"}
CALL = ("call", "toolu_1", "look", '{"a": {"b": [1, 2.5, "\u00e9"]}}')
ANSWERS = (
    Spoken(["It is noon."]),
    Spoken([THINKING, REDACTED, "Let me see.", CALL, ("call", "toolu_2", "look", "{}")]),
    Spoken(["It is n"], finish="max_tokens"),
    Spoken([], finish="refusal"),
)


@pytest.fixture
def model(make: Make) -> HostedModel:
    return make(dialect="messages", model="claude-opus-4-5")


@pytest.mark.parametrize("answer", ANSWERS)
def test_scripted_messages_events_fit_the_schemas_of_the_sdk(answer: Spoken) -> None:
    for event in message_events(answer):
        if event["type"] != "ping":
            valid("messages event", event)
    valid("messages document", message(answer))


@given(st.sampled_from(ANSWERS), st.integers(1, 30))
def test_a_messages_stream_and_document_give_the_same_answer(answer: Spoken, pieces: int) -> None:
    answer.pieces = pieces
    streamed, whole = MessagesReader(None), MessagesReader(None)
    overs = [streamed.event(json.dumps(event).encode()) for event in message_events(answer)]
    whole.document(json.dumps(message(answer)).encode())
    assert overs == [False] * (len(overs) - 1) + [True]
    one, other = parts(streamed), parts(whole)
    assert len(one) == len(other) == len(answer.parts)
    for left, right in zip(one, other, strict=True):
        if isinstance(left, ToolCall):
            assert json.loads(left.arguments) == json.loads(right.arguments)
        elif isinstance(left, OpaquePart):
            assert json.loads(bytes(left.data)) == json.loads(bytes(right.data))
        else:
            assert left == right
    assert streamed.draft.finish_reason == whole.draft.finish_reason
    assert streamed.draft.used == whole.draft.used


@given(st.data())
def test_messages_events_in_any_order_raise_only_expected_errors(data: st.DataObject) -> None:
    events = [event for answer in ANSWERS for event in message_events(answer)]
    read_disordered(MessagesReader(None), events, data)


# -- a conversation -------------------------------------------------------------------------------

pytest_anyio = pytest.mark.anyio


@pytest_anyio
async def test_thinking_is_returned_in_its_position(endpoint: Endpoint, model: HostedModel) -> None:
    endpoint.answers(
        Events(message_events(Spoken([THINKING, REDACTED, "Let me see.", CALL]))), Text("Noon.")
    )
    request = asking(tools=(tool("look"),))
    first = await model.complete(request)
    assert first.text == "Let me see."
    assert [type(part) for part in first.parts] == [OpaquePart, OpaquePart, TextPart, ToolCall]
    messages = (
        *request.messages,
        ModelMessage("assistant", first.parts),
        result_message("toolu_1", "12:00"),
    )
    await model.complete(ModelRequest(messages=messages, tools=request.tools))
    body = endpoint.requests[1].body
    valid("messages request", body)
    _, answered, results = body["messages"]
    assert answered["content"] == [
        THINKING,
        REDACTED,
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": json.loads(CALL[3])},
    ]
    assert results["role"] == "user"


@pytest_anyio
async def test_thinking_without_a_signature_is_not_kept(
    endpoint: Endpoint, model: HostedModel
) -> None:
    unsigned = THINKING | {"signature": ""}
    endpoint.answers(Events(message_events(Spoken([unsigned, "Noon."]))))
    assert (await model.complete(asking())).parts == (TextPart("Noon."),)


@pytest_anyio
async def test_all_results_of_a_round_are_in_one_message(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(Text("Noon."))
    calls = [ToolCall(id_, "look", "{}") for id_ in ("toolu_1", "call:2 \u00e9")]
    messages = (
        text_message("system", "Be kind."),
        text_message("user", "Time?"),
        call_message("", calls),
        result_message("toolu_1", "12:00"),
        ModelMessage("tool", (ToolResultPart("call:2 \u00e9", (), is_error=True),)),
        text_message("system", "They stopped you."),
        text_message("user", "And now?"),
    )
    await model.complete(ModelRequest(messages=messages, tools=(tool("look"),)))
    body = endpoint.requests[0].body
    valid("messages request", body)
    assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]
    content = body["messages"][2]["content"]
    assert [block["type"] for block in content] == ["tool_result", "tool_result", "text", "text"]
    sent = [block["id"] for block in body["messages"][1]["content"]]
    assert [block["tool_use_id"] for block in content[:2]] == sent
    assert content[1]["is_error"]
    assert "content" not in content[1]


@pytest_anyio
async def test_marks_for_the_cache(endpoint: Endpoint, make: Make) -> None:
    endpoint.otherwise = Text("Noon.")
    said = [text_message("system", "Be kind.")]
    for number in range(3):
        said += [text_message("user", f"{number}?"), text_message("assistant", f"{number}!")]
    request = ModelRequest(messages=tuple(said[:-1]), tools=(tool("look"),))
    await make(dialect="messages").complete(request)
    await make(dialect="messages", cache=False).complete(request)
    body, without = (each.body for each in endpoint.requests)
    valid("messages request", body)
    mark = {"type": "ephemeral"}
    assert body["system"][-1]["cache_control"] == mark
    users = [each["content"][-1] for each in body["messages"] if each["role"] == "user"]
    assert [block.get("cache_control") for block in users] == [None, mark, mark]
    assert json.dumps(body).count("cache_control") == 3
    assert "cache_control" not in json.dumps(without)


@pytest_anyio
async def test_cached_tokens_are_counted_and_priced(endpoint: Endpoint, make: Make) -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 100,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 20},
    }
    endpoint.answers(Events(message_events(Spoken(["Noon."], usage=usage))))
    model = make(
        dialect="messages",
        usd_per_million_in=10,
        usd_per_million_out=100,
        usd_per_million_cache_read=1,
        usd_per_million_cache_write=12.5,
    )
    found = (await model.complete(asking())).usage
    assert (found.tokens_in, found.tokens_out, found.estimated) == (1110, 50, False)
    assert (found.cache_read, found.cache_write, found.reasoning) == (1000, 100, 20)
    assert found.cost_usd == pytest.approx((10 * 10 + 1000 + 100 * 12.5 + 50 * 100) / 1e6)


@pytest_anyio
async def test_a_turn_that_is_paused_is_continued(endpoint: Endpoint, model: HostedModel) -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    search |= {"input": {"query": "noon"}}
    endpoint.answers(
        Events(message_events(Spoken(["I search.", search], finish="pause_turn"))),
        Text("It is noon.", usage=(100, 20)),
    )
    told: list[str | Void] = []
    completion = await model.complete(asking(), told.append)
    assert completion.text == "I search.It is noon."
    assert "".join(one for one in told if isinstance(one, str)) == completion.text
    assert completion.usage.tokens_in == 111
    last = endpoint.requests[1].body["messages"][-1]
    assert last["role"] == "assistant"
    assert last["content"][-1] == search


@pytest_anyio
@pytest.mark.parametrize(
    ("kind", "again"), [("overloaded_error", True), ("api_error", True), ("billing_error", False)]
)
async def test_errors_in_the_stream(endpoint: Endpoint, make: Make, kind: str, again: bool) -> None:
    events = message_events(Spoken(["It is noon."]))[:4]
    error = {"type": "error", "error": {"type": kind, "message": "No."}}
    endpoint.answers(Events([*events, error]), Text("Noon."))
    model = make(dialect="messages")
    if again:
        assert (await model.complete(asking())).text == "Noon."
    else:
        with pytest.raises(Exception, match="requires payment"):
            await model.complete(asking())


@pytest_anyio
async def test_an_answer_without_its_last_event(endpoint: Endpoint, make: Make) -> None:
    endpoint.answers(Events(message_events(Spoken(["It is noon."]))[:-2]))
    with pytest.raises(ModelUnavailableError, match="broke off"):
        await make(dialect="messages", retries=0).complete(asking())


@pytest_anyio
@pytest.mark.parametrize("suffix", ["", "/v1"])
async def test_a_base_url_with_and_without_the_version(
    endpoint: Endpoint, make: Make, suffix: str
) -> None:
    endpoint.answers(Text("Noon."))
    base = endpoint.url.removesuffix("/v1")
    await make(dialect="messages", base_url=f"{base}{suffix}").complete(asking())
    assert endpoint.requests[0].path == "/v1/messages"
