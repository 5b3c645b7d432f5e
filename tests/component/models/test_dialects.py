"""What every dialect does alike: each test is run with chat completions, Responses and Messages,
against a scripted server on a socket.
"""

import json
from typing import Any

import anyio
import msgspec
import pytest

from component.models.hosted import HostedModel
from component.models.messages import (
    FilePart,
    ImagePart,
    ModelMessage,
    OpaquePart,
    TextPart,
    ToolCall,
    ToolResultPart,
    call_message,
    result_message,
    text_message,
)
from component.models.protocol import (
    ContextOverflowError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    Void,
)
from tests.component.models.asking import KEY, SCHEMA, Make, Slept, asking, tool
from tests.component.models.endpoint import (
    Answer,
    Break,
    Calls,
    End,
    Endpoint,
    Garbage,
    Hold,
    Overflow,
    Refuse,
    Stall,
    Text,
)
from tests.component.models.oracle import valid

pytestmark = pytest.mark.anyio
DIALECTS = ("chat", "responses", "messages")
PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 34_000


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def model(make: Make, dialect: str) -> HostedModel:
    return make(dialect=dialect)


def sent(endpoint: Endpoint, dialect: str) -> list[dict[str, Any]]:
    """The bodies of all requests; each is what the vendor's SDK would send."""
    for request in endpoint.requests:
        body = dict(request.body)
        if dialect == "messages":
            body.pop("temperature", None)  # older models take it, but the SDK does not know it
        valid(f"{dialect} request", body)
    return [request.body for request in endpoint.requests]


# -- what is read ---------------------------------------------------------------------------------


async def test_each_dialect_streams_a_text_and_counts_its_tokens(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(Text("It is noon.", pieces=4, usage=(100, 20)))
    told: list[str | Void] = []
    completion = await model.complete(asking(), told.append)
    assert completion.text == "It is noon."
    assert len(told) == 4
    assert "".join(one for one in told if isinstance(one, str)) == completion.text
    assert (completion.finish, completion.model) == ("stop", "m")
    usage = completion.usage
    assert (usage.tokens_in, usage.tokens_out, usage.estimated) == (100, 20, False)


async def test_calls_and_results(endpoint: Endpoint, model: HostedModel, dialect: str) -> None:
    endpoint.answers(
        Calls(("clock_read", {"zone": "UTC"}), ("look", {}), text="Let me see.", pieces=5),
        Text("Noon."),
    )
    request = asking(tools=(tool("clock.read"), tool("look")))
    first = await model.complete(request)
    assert first.text == "Let me see."
    assert [(c.name, json.loads(c.arguments)) for c in first.tool_calls] == [
        ("clock.read", {"zone": "UTC"}),
        ("look", {}),
    ]
    assert first.finish == "tool_calls"
    answered = ModelMessage("assistant", first.parts)
    results = [result_message(call.id, "12:00") for call in first.tool_calls]
    messages = (*request.messages, answered, *results)
    await model.complete(msgspec.structs.replace(request, messages=messages))
    _, second = sent(endpoint, dialect)
    for call in first.tool_calls:
        assert json.dumps(second).count(json.dumps(call.id)) == 2, "in the call and in the result"


@pytest.mark.parametrize(
    ("said", "finish"), [("length", "length"), ("content_filter", "content_filter")]
)
async def test_why_it_stopped(
    endpoint: Endpoint, model: HostedModel, said: str, finish: str
) -> None:
    endpoint.answers(Text("It is n", finish=said))
    assert (await model.complete(asking())).finish == finish


@pytest.mark.parametrize("answer", [Text("It is noon."), Calls(("look", {"a": [1]}), text="So")])
async def test_each_dialect_reads_an_answer_sent_as_one_document(
    endpoint: Endpoint, make: Make, dialect: str, answer: Text | Calls
) -> None:
    # The gateway passes over `stream`.
    endpoint.answers(lambda request: request.body.pop("stream") and answer, answer)
    told: list[str | Void] = []
    whole = await make(dialect=dialect).complete(asking(), told.append)
    streamed = await make(dialect=dialect).complete(asking())
    assert "".join(one for one in told if isinstance(one, str)) == whole.text == streamed.text
    assert [(c.name, json.loads(c.arguments)) for c in whole.tool_calls] == [
        (c.name, json.loads(c.arguments)) for c in streamed.tool_calls
    ]
    assert whole.usage == streamed.usage


# -- what is sent ---------------------------------------------------------------------------------


async def test_the_key_is_sent_as_the_api_requires(
    endpoint: Endpoint, model: HostedModel, dialect: str
) -> None:
    endpoint.answers(Text("Noon."))
    await model.complete(asking())
    headers = endpoint.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    if dialect == "messages":
        assert headers["x-api-key"] == KEY
        assert headers["anthropic-version"]
    assert headers["accept-encoding"] == "identity"


async def test_equal_requests_have_equal_bytes_and_longer_ones_the_same_beginning(
    make: Make, dialect: str
) -> None:
    from component.models.tool_schemas import ToolNames

    request = ModelRequest(
        messages=(text_message("system", "Be kind."), text_message("user", "Time?")),
        tools=(tool("look"), tool("clock.read")),
    )
    names = ToolNames(each.name for each in request.tools)
    adapters = [make(dialect=dialect)._adapter for _ in range(2)]
    one, other = (adapter.body(request, names) for adapter in adapters)
    assert one == other
    longer = msgspec.structs.replace(
        request, messages=(*request.messages, text_message("assistant", "Noon."))
    )
    before, after = json.loads(one), json.loads(adapters[0].body(longer, names))
    for key in before:
        if key not in ("messages", "input"):
            assert before[key] == after[key]


@pytest.mark.parametrize(
    ("choice", "chat", "messages"),
    [
        ("auto", None, None),
        ("none", "none", {"type": "none"}),
        ("required", "required", {"type": "any"}),
    ],
)
async def test_tools_stay_in_a_request_that_must_not_call_them(
    endpoint: Endpoint, model: HostedModel, dialect: str, choice: Any, chat: Any, messages: Any
) -> None:
    endpoint.answers(Text("Noon."), Text("Noon."))
    await model.complete(asking(tools=(tool("look"),)))
    await model.complete(asking(tools=(tool("look"),), tool_choice=choice))
    before, body = sent(endpoint, dialect)
    assert body["tools"] == before["tools"]
    assert body.get("tool_choice") == (messages if dialect == "messages" else chat)


async def test_options_pass_through(endpoint: Endpoint, make: Make, dialect: str) -> None:
    endpoint.answers(Text("Noon."))
    model = make(
        dialect=dialect,
        reasoning_effort="low",
        headers={"X-Team": "agents", "Authorization": "Bearer other"},
        extra_body={"metadata": {"user_id": "a"}, "reasoning": {"summary": "auto"}},
    )
    await model.complete(asking())
    (request,) = endpoint.requests
    assert request.headers["x-team"] == "agents"
    assert request.headers["authorization"] == "Bearer other"
    assert request.body["metadata"] == {"user_id": "a"}
    match dialect:
        case "chat":
            assert request.body["reasoning_effort"] == "low"
        case "responses":
            assert request.body["reasoning"] == {"effort": "low", "summary": "auto"}
        case "messages":
            assert request.body["output_config"] == {"effort": "low"}
            assert request.body["thinking"] == {"type": "adaptive"}


async def test_the_temperature_of_a_request_precedes_that_of_the_model(
    endpoint: Endpoint, make: Make, dialect: str
) -> None:
    endpoint.answers(Text("Noon."), Text("Noon."))
    model = make(dialect=dialect, temperature=0.5)
    await model.complete(asking())
    await model.complete(asking(temperature=0.25))
    assert [body["temperature"] for body in sent(endpoint, dialect)] == [0.5, 0.25]


async def test_an_answer_with_a_schema(
    endpoint: Endpoint, model: HostedModel, dialect: str
) -> None:
    endpoint.answers(Text("{}"))
    await model.complete(asking(schema=msgspec.Raw(json.dumps(SCHEMA).encode())))
    (body,) = sent(endpoint, dialect)
    match dialect:
        case "chat":
            assert body["response_format"]["json_schema"]["schema"] == SCHEMA
        case "responses":
            assert body["text"]["format"]["schema"] == SCHEMA
        case "messages":
            assert body["output_config"]["format"]["schema"] == SCHEMA


@pytest.mark.parametrize("parameter", ["temperature", "schema"])
async def test_each_dialect_omits_a_parameter_once_it_is_rejected(
    endpoint: Endpoint, make: Make, dialect: str, parameter: str
) -> None:
    names = {"chat": "response_format", "responses": "text", "messages": "output_config"}
    key = names[dialect] if parameter == "schema" else parameter
    endpoint.answers(Refuse(400, f"{key}: Extra inputs are not permitted"), Text("{}"), Text("{}"))
    model = make(dialect=dialect, temperature=0.5)
    for _ in range(2):
        await model.complete(asking(schema=msgspec.Raw(json.dumps(SCHEMA).encode())))
    first, *later = sent(endpoint, dialect)
    assert key in first
    for body in later:
        assert key not in body
        in_words = json.dumps(SCHEMA) in json.dumps(body).replace('\\"', '"')
        assert in_words or parameter == "temperature"


async def test_each_dialect_wraps_arguments_that_are_not_an_object(
    endpoint: Endpoint, model: HostedModel, dialect: str
) -> None:
    endpoint.answers(Text("Sorry."))
    call = call_message("", (ToolCall("c1", "clock", '{"zone": '),))
    messages = (text_message("user", "?"), call, result_message("c1", "No."))
    await model.complete(ModelRequest(messages=messages))
    (body,) = sent(endpoint, dialect)
    assert "malformed" in json.dumps(body)


async def test_a_part_of_another_origin_is_not_sent(
    endpoint: Endpoint, model: HostedModel, dialect: str
) -> None:
    endpoint.answers(Text("Noon."))
    own = f"{dialect}/m"
    others = {"messages/other-model", "chat/m", "responses/m", "messages/m"} - {own}
    parts = tuple(OpaquePart(origin, msgspec.Raw(b'{"secret":1}')) for origin in sorted(others))
    messages = (
        text_message("user", "Time?"),
        ModelMessage("assistant", (*parts, TextPart("Noon."))),
        text_message("user", "Sure?"),
    )
    await model.complete(ModelRequest(messages=messages))
    (body,) = sent(endpoint, dialect)
    assert "secret" not in json.dumps(body)


# -- images and files -----------------------------------------------------------------------------

SEEN = (
    ModelMessage("user", (TextPart("What is this?"), ImagePart("image/png", PNG))),
    call_message("", (ToolCall("c1", "look", "{}"),)),
    ModelMessage(
        "tool", (ToolResultPart("c1", (TextPart("A photo:"), ImagePart("image/png", PNG))),)
    ),
)


async def test_images_are_sent_to_a_model_that_supports_them(
    endpoint: Endpoint, make: Make, dialect: str
) -> None:
    endpoint.answers(Text("A cat."))
    await make(dialect=dialect, vision=True).complete(ModelRequest(messages=SEEN))
    (body,) = sent(endpoint, dialect)
    text = json.dumps(body)
    assert text.count("iVBORw0KGgp4") == 2
    assert "cannot see" not in text
    assert "A photo:" in text


async def test_for_other_models_a_sentence_replaces_an_image(
    endpoint: Endpoint, make: Make, dialect: str
) -> None:
    endpoint.answers(Text("I cannot see it."))
    await make(dialect=dialect, vision=False).complete(ModelRequest(messages=SEEN))
    (body,) = sent(endpoint, dialect)
    text = json.dumps(body)
    assert "iVBOR" not in text
    assert text.count("[An image (image/png, 34 KB) that this model cannot see.") == 2


async def test_an_image_of_an_unsupported_type(
    endpoint: Endpoint, make: Make, dialect: str
) -> None:
    endpoint.answers(Text("?"))
    message = ModelMessage("user", (ImagePart("image/tiff", b"II*\0"),))
    await make(dialect=dialect, vision=True).complete(ModelRequest(messages=(message,)))
    (body,) = sent(endpoint, dialect)
    assert "[An image (image/tiff, 4 bytes) that this model cannot see." in json.dumps(body)


async def test_documents_are_sent_if_the_api_supports_them(
    endpoint: Endpoint, model: HostedModel, dialect: str
) -> None:
    endpoint.answers(Text("Read."))
    pdf = FilePart("a.pdf", "application/pdf", b"%PDF-1.7")
    other = FilePart("b.zip", "application/zip", b"PK" * 600_000)
    message = ModelMessage("user", (TextPart("Read this."), pdf, other))
    await model.complete(ModelRequest(messages=(message,)))
    (body,) = sent(endpoint, dialect)
    text = json.dumps(body)
    assert "[A file (b.zip, application/zip, 1.2 MB) that this model cannot read]" in text
    unread = "[A file (a.pdf, application/pdf, 8 bytes) that this model cannot read]" in text
    # Servers that are compatible with chat completions know no files.
    assert unread == (dialect == "chat")
    assert ("JVBERi0xLjc=" in text) == (dialect != "chat")


# -- trouble --------------------------------------------------------------------------------------

PASSING: list[Answer] = [
    Refuse(429),
    Refuse(500),
    Refuse(529, body={"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}),
    Break(),
    Break(after=0),
    Break(after=4),
    End(after=0),
    End(after=4),
    Garbage(b"data: {nonsense\n\n"),
    Garbage(b"data: 5\n\n"),
    Garbage(b"\xff\xfe"),
    Garbage(b"{", "application/json"),
    Garbage(b"data: [DONE]\n\n"),
    Garbage(b'data: {"type":"error","error":{"type":"overloaded_error","message":"Busy"}}\n\n'),
]


@pytest.mark.parametrize("dialect", ["responses", "messages"], indirect=True)
@pytest.mark.parametrize("trouble", PASSING, ids=lambda t: f"{t}"[:40])
async def test_responses_and_messages_retry_a_temporary_failure(
    endpoint: Endpoint, model: HostedModel, slept: Slept, trouble: Answer
) -> None:
    endpoint.answers(trouble, Text("Noon."))
    told: list[str | Void] = []
    assert (await model.complete(asking(), told.append)).text == "Noon."
    assert len(slept.pauses) == 1
    if Void.BROKEN_OFF in told:
        told = told[told.index(Void.BROKEN_OFF) + 1 :]
    assert "".join(one for one in told if isinstance(one, str)) == "Noon."


async def test_each_dialect_stops_waiting_for_a_silent_server(
    endpoint: Endpoint, make: Make, dialect: str
) -> None:
    endpoint.answers(Stall(after=6), Stall(after=0))
    model = make(dialect=dialect, token_timeout_s=0.2, retries=0)
    with pytest.raises(ModelUnavailableError, match=r"llm\.token_timeout_s"):
        await model.complete(asking())
    model = make(dialect=dialect, first_token_timeout_s=0.2, retries=0)
    with pytest.raises(ModelUnavailableError, match=r"llm\.first_token_timeout_s"):
        await model.complete(asking())


async def test_a_request_that_is_too_long_is_not_repeated(
    endpoint: Endpoint, model: HostedModel, dialect: str
) -> None:
    endpoint.answers(Overflow("anthropic" if dialect == "messages" else "openai"))
    with pytest.raises(ContextOverflowError):
        await model.complete(asking())
    assert len(endpoint.requests) == 1


async def test_each_dialect_reports_a_wrong_key_without_showing_it(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.key = "another"
    with pytest.raises(ModelRefusedError, match=r"correct llm\.api_key") as error:
        await model.complete(asking())
    assert KEY not in str(error.value)


async def test_a_cancelled_call_hangs_up(endpoint: Endpoint, model: HostedModel) -> None:
    hold = Hold(Text("It is noon.", pieces=4), anyio.Event(), after=4)
    endpoint.answers(hold, Text("Noon."))
    async with anyio.create_task_group() as group:
        group.start_soon(model.complete, asking())
        await hold.held.wait()
        group.cancel_scope.cancel()
    await endpoint.until(lambda: endpoint.hung_up == 1)
    assert (await model.complete(asking())).text == "Noon."
