"""What servers that are compatible with chat completions do differently: each test is a row of the
table in docs/how-to/agents.md, against a scripted server on a socket.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from component.agent.completions import directed
from component.models.hosted import HostedModel
from component.models.messages import (
    ModelMessage,
    OpaquePart,
    TextPart,
    ToolCall,
    call_message,
    result_message,
    text_message,
)
from component.models.protocol import (
    Completion,
    ContentFilteredError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    Void,
)
from tests.component.models.answers import sse
from tests.component.models.asking import Make, Slept, asking, tool
from tests.component.models.endpoint import (
    Answer,
    Chunks,
    Endpoint,
    Garbage,
    Refuse,
    Request,
    Text,
)

pytestmark = pytest.mark.anyio
CLOCK = (tool("clock"),)


def delta(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def native(id_: str = "c1") -> dict[str, Any]:
    function = {"name": "clock", "arguments": "{}"}
    return {"tool_calls": [{"index": 0, "id": id_, "type": "function", "function": function}]}


def said(*texts: str, finish: str = "stop") -> Chunks:
    return Chunks([*(delta(content=text) for text in texts), delta(finish)])


def after(completion: Completion, request: ModelRequest) -> ModelRequest:
    """The request of the next round."""
    results = [result_message(call.id, "12:00") for call in completion.tool_calls]
    messages = (*request.messages, ModelMessage("assistant", completion.parts), *results)
    if not results:
        messages += (text_message("user", "Sure?"),)
    return msgspec.structs.replace(request, messages=messages)


class Told:
    """Takes pieces of text, as a screen does that can be wiped."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def __call__(self, piece: str | Void) -> None:
        if isinstance(piece, str):
            self.pieces.append(piece)
        else:
            self.pieces.clear()

    @property
    def text(self) -> str:
        return "".join(self.pieces)


# -- reasoning beside the text --------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_returned_to_its_model_and_never_shown(
    endpoint: Endpoint, make: Make, field: str, whole: bool
) -> None:
    if whole:
        message = {field: "[[silent]] Hm.", "content": None, **native()}
        choice = {"message": message, "finish_reason": "tool_calls"}
        answer: Answer = Garbage(json.dumps({"choices": [choice]}).encode(), "application/json")
    else:
        pieces = [delta(role="assistant", content=None, **{field: "[[silent]] "})]
        answer = Chunks([*pieces, delta(**{field: "Hm."}), delta(**native()), delta("tool_calls")])
    endpoint.answers(answer, Text("Noon."), Text("Noon."))
    told = Told()
    request = asking(tools=CLOCK)
    first = await make().complete(request, told)
    assert first.text == told.text == ""
    assert isinstance(first.parts[0], OpaquePart)
    assert [call.name for call in first.tool_calls] == ["clock"]
    await make().complete(after(first, request))
    await make(model="another").complete(after(first, request))
    same, other = (request.messages[1] for request in endpoint.requests[1:])
    assert same[field] == "[[silent]] Hm."
    assert same["content"] is None
    assert field not in other


async def test_a_server_that_repeats_itself_gets_its_reasoning_once(
    endpoint: Endpoint, make: Make
) -> None:
    twice = [delta(reasoning="Hm.", reasoning_content="Hm.") for _ in range(2)]
    endpoint.answers(Chunks([*twice, delta(content="Noon."), delta("stop")]), Text("Yes."))
    first = await make().complete(asking())
    await make().complete(after(first, asking()))
    assert endpoint.requests[1].messages[1] == {
        "role": "assistant",
        "content": "Noon.",
        "reasoning_content": "Hm.Hm.",
    }


async def test_openrouter_gets_the_details_back_as_one_list(endpoint: Endpoint, make: Make) -> None:
    def details(*each: dict[str, Any]) -> dict[str, Any]:
        return delta(content="", reasoning="(the same)", reasoning_details=list(each))

    text = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
    sealed = {"type": "reasoning.encrypted", "index": 1, "data": "c2VjcmV0", "id": "rs_1"}
    endpoint.answers(
        Chunks(
            [
                details(text | {"text": "H"}),
                details(text | {"text": "m."}),
                details(text | {"signature": "sig"}),
                details(sealed),
                delta(**native()),
                delta("tool_calls"),
            ]
        ),
        Text("Noon."),
    )
    model = make(provider="openrouter")
    request = asking(tools=CLOCK)
    await model.complete(after(await model.complete(request), request))
    sent = endpoint.requests[1].messages[1]
    assert sent["reasoning_details"] == [text | {"text": "Hm.", "signature": "sig"}, sealed]
    assert "reasoning" not in sent


async def test_mistral_reasons_in_parts_of_the_content(endpoint: Endpoint, make: Make) -> None:
    def thinking(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}

    text = {"type": "text", "text": "Noon."}
    endpoint.answers(
        Chunks([delta(content=[thinking("H")]), delta(content=[thinking("m."), text]),
                delta("stop")]),
        Text("Yes."),
    )  # fmt: skip
    first = await make().complete(asking())
    assert first.text == "Noon."
    await make().complete(after(first, asking()))
    assert endpoint.requests[1].messages[1]["content"] == [thinking("Hm."), text]


@pytest.mark.parametrize(
    "refusal",
    [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Missing `reasoning_content` field in the assistant message at message index 1.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at 1",
    ],
)
async def test_deepseek_gets_a_conversation_of_another_model(
    endpoint: Endpoint, model: HostedModel, refusal: str
) -> None:
    def answer(request: Request) -> Answer:
        every = [m for m in request.messages if m["role"] == "assistant"]
        return (
            Text("Noon.") if all("reasoning_content" in m for m in every) else Refuse(400, refusal)
        )

    endpoint.otherwise = answer
    call = call_message("", (ToolCall("c1", "clock", "{}"),))
    messages = (text_message("user", "Time?"), call, result_message("c1", "12:00"))
    for _ in range(2):
        assert (await model.complete(ModelRequest(messages=messages))).text == "Noon."
    assert len(endpoint.requests) == 3, "the server has to say it only once"


@pytest.mark.parametrize(
    "refusal",
    [
        "messages.1.reasoning_content: Extra inputs are not permitted",
        "Please remove the reasoning_content from your message.",
    ],
)
async def test_a_server_that_rejects_reasoning_gets_none(
    endpoint: Endpoint, model: HostedModel, refusal: str
) -> None:
    reasoned = Chunks([delta(reasoning_content="Hm."), delta(content="Noon."), delta("stop")])
    endpoint.answers(reasoned, Refuse(422, refusal), Text("Yes."), Text("Yes."))
    request = after(await model.complete(asking()), asking())
    for _ in range(2):
        assert (await model.complete(request)).text == "Yes."
    assert ["reasoning_content" in r.messages[1] for r in endpoint.requests[1:]] == [
        True, False, False,
    ]  # fmt: skip


# -- reasoning in the text ------------------------------------------------------------------------


@dataclass
class InPieces:
    """A stream of which every chunk has so many bytes."""

    data: bytes
    size: int

    async def play(self, exchange: Any) -> None:
        await exchange.head()
        for at in range(0, len(self.data), self.size):
            await exchange.data(self.data[at : at + self.size])
        await exchange.end()


@pytest.mark.parametrize("size", [17, 64, 10_000])
@pytest.mark.parametrize("text", ["<think>[[silent]] Hm 😀.</think>\n\nNoon.", "Hm.</think>Noon."])
async def test_reasoning_in_the_text_is_never_shown(
    endpoint: Endpoint, model: HostedModel, text: str, size: int
) -> None:
    events = b"".join(sse(delta(content=character)) for character in text)
    stream = events + sse(delta("stop")) + sse("[DONE]")
    endpoint.answers(InPieces(stream, size), Text("Yes."))
    told = Told()
    completion = await model.complete(asking(), told)
    assert completion.text == told.text == "Noon."
    assert not directed(completion.text).silent
    await model.complete(after(completion, asking()))
    assert endpoint.requests[1].messages[1]["content"] == text, "the model gets back what it wrote"


async def test_reasoning_in_the_text_goes_to_no_other_model(endpoint: Endpoint, make: Make) -> None:
    endpoint.answers(said("<think>Hm.</think>Noon."), Text("Yes."))
    completion = await make().complete(asking())
    await make(model="another").complete(after(completion, asking()))
    assert endpoint.requests[1].messages[1]["content"] == "Noon."


async def test_once_it_is_known_no_text_is_shown_before_reasoning_has_ended(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(said("Hm.", "</think>Noon."), said("Hm.", "</think>", "One."), said("Two."))
    told: list[str | Void] = []
    for expected in (["Hm.", Void.WITHDRAWN, "Noon."], ["One."], ["Two."]):
        told.clear()
        await model.complete(asking(), told.append)
        assert told == expected


async def test_the_name_of_a_model_is_not_sufficient_evidence(
    endpoint: Endpoint, make: Make
) -> None:
    endpoint.answers(said("Hm.", "</think>", "One."))
    told: list[str | Void] = []
    await make(model="deepseek-r1:14b").complete(asking(), told.append)
    assert told == ["One."]


async def test_reasoning_that_uses_up_the_length(endpoint: Endpoint, model: HostedModel) -> None:
    for answer in (
        said("<think>Hm, hm, ", finish="length"),
        Chunks([delta(reasoning_content="Hm, hm, "), delta("length")]),
    ):
        endpoint.answers(answer)
        completion = await model.complete(asking())
        assert (completion.text, completion.finish) == ("", "length")


# -- roles ----------------------------------------------------------------------------------------


def template(request: Request, *, counts_calls: bool) -> str:
    """What the template of Gemma or Mistral says of these messages; nothing if it takes them."""
    messages = list(request.messages)
    if messages[0]["role"] == "system":
        messages.pop(0)
    if any(message["role"] == "system" for message in messages):
        return "System message must be at the beginning."
    roles = [
        message["role"]
        for message in messages
        if message["role"] != "tool" and (counts_calls or not message.get("tool_calls"))
    ]
    alternates = all(role == ("user", "assistant")[i % 2] for i, role in enumerate(roles))
    return "" if alternates else "Conversation roles must alternate user/assistant/user/assistant/"


def strict(status: int, *, counts_calls: bool = False) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        refusal = template(request, counts_calls=counts_calls)
        return Refuse(status, refusal) if refusal else Text("Noon.")

    return answer


def told_by(roles: Iterable[str]) -> tuple[ModelMessage, ...]:
    return tuple(text_message(role, f"{i}") for i, role in enumerate(roles))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "roles",
    [
        ["user", "user"],
        ["system", "user", "user", "system", "user"],
        ["system", "system", "user", "assistant", "assistant", "user", "user"],
    ],
)
async def test_two_quick_messages_do_not_poison_a_session(
    endpoint: Endpoint, model: HostedModel, roles: list[str]
) -> None:
    endpoint.otherwise = strict(400)
    assert (await model.complete(ModelRequest(messages=told_by(roles)))).text == "Noon."
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("status", [400, 500])
async def test_a_strict_template_is_learned_from_one_refusal(
    endpoint: Endpoint, model: HostedModel, slept: Slept, status: int
) -> None:
    endpoint.otherwise = strict(status)
    messages = (
        *told_by(["system", "assistant", "user"]),
        call_message("", (ToolCall("c1", "clock", "{}"),)),
        result_message("c1", "12:00"),
        *told_by(["user", "assistant", "user"]),
    )
    for _ in range(2):
        assert (await model.complete(ModelRequest(messages=messages))).text == "Noon."
    assert len(endpoint.requests) == 3
    assert slept.pauses == []
    texts = json.dumps(endpoint.requests[-1].messages)
    assert all(text in texts for text in ("12:00", '"0"', '"1"', '"2"'))


async def test_later_messages_do_not_change_the_beginning_of_the_prompt(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.otherwise = Text("Noon.")
    messages = told_by(["system", "user", "user", "assistant", "user", "system", "user"])
    for end in range(2, len(messages) + 1):
        await model.complete(ModelRequest(messages=messages[:end]))
    prompts = [
        "".join(f"<{message['role']}>{message['content']}" for message in request.messages)
        for request in endpoint.requests
    ]
    assert all(after.startswith(before) for before, after in pairwise(prompts))


async def test_a_template_without_a_system_role(endpoint: Endpoint, model: HostedModel) -> None:
    endpoint.otherwise = lambda r: (
        Refuse(400, "System role not supported")
        if any(message["role"] == "system" for message in r.messages)
        else Text("Noon.")
    )
    await model.complete(ModelRequest(messages=told_by(["system", "user"])))
    assert endpoint.requests[1].messages == [{"role": "user", "content": "0\n\n1"}]


async def test_mistral_wants_ids_of_nine_characters(endpoint: Endpoint, model: HostedModel) -> None:
    def answer(request: Request) -> Answer:
        ids = [m["tool_call_id"] for m in request.messages if m["role"] == "tool"]
        called = [c["id"] for m in request.messages for c in m.get("tool_calls", ())]
        if all(len(id_) == 9 for id_ in (*ids, *called)) and ids == called:
            return Text("Noon.")
        return Refuse(400, "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.")

    endpoint.otherwise = answer
    call = call_message(
        "", (ToolCall("call_1", "clock", "{}"), ToolCall("a1B2c3D4e", "clock", "{}"))
    )
    results = (result_message("call_1", "12:00"), result_message("a1B2c3D4e", "13:00"))
    messages = (text_message("user", "Time?"), call, *results)
    assert (await model.complete(ModelRequest(messages=messages))).text == "Noon."
    assert endpoint.requests[-1].messages[-1]["tool_call_id"] == "a1B2c3D4e"


async def test_a_repeated_refusal_is_reported(
    endpoint: Endpoint, model: HostedModel, slept: Slept
) -> None:
    endpoint.otherwise = Refuse(500, "Conversation roles must alternate")
    with pytest.raises(ModelRefusedError, match="roles must alternate"):
        await model.complete(asking())
    assert len(endpoint.requests) == 2
    assert slept.pauses == []


# -- calls in the text ----------------------------------------------------------------------------

WRITTEN = '<tool_call>\n{"name": "clock", "arguments": {"zone": "UTC"}}\n</tool_call>'


@pytest.mark.parametrize(
    "written",
    [
        WRITTEN,
        '[TOOL_CALLS][{"name": "clock", "arguments": {"zone": "UTC"}}]',
        '<|python_tag|>{"name": "clock", "parameters": {"zone": "UTC"}}',
        '```json\n{"name": "clock", "arguments": {"zone": "UTC"}}\n```',
        "<tool_call>clock\n<arg_key>zone</arg_key>\n<arg_value>UTC</arg_value>\n</tool_call>",
    ],
)
async def test_calls_in_the_text_are_made(
    endpoint: Endpoint, model: HostedModel, written: str
) -> None:
    endpoint.answers(said("<think>Hm.</think>", *written), Text("Noon."))
    told = Told()
    request = asking(tools=CLOCK)
    first = await model.complete(request, told)
    assert [(c.name, json.loads(c.arguments)) for c in first.tool_calls] == [
        ("clock", {"zone": "UTC"})
    ]
    assert (first.finish, first.text, told.text) == ("tool_calls", "", "")
    await model.complete(after(first, request))
    sent = endpoint.requests[1].messages[1]
    assert [call["function"]["name"] for call in sent["tool_calls"]] == ["clock"]


async def test_an_answer_in_the_format_of_gpt_oss(endpoint: Endpoint, model: HostedModel) -> None:
    call = (
        "<|channel|>analysis<|message|>[[silent]] Hm.<|end|><|start|>assistant<|channel|>commentary"
        ' to=functions.clock <|constrain|>json<|message|>{"zone": "UTC"}<|call|>'
    )
    answer = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Noon."
    )
    endpoint.answers(said(*call), said(*answer))
    told = Told()
    request = asking(tools=CLOCK)
    first = await model.complete(request, told)
    assert [(c.name, c.arguments) for c in first.tool_calls] == [("clock", '{"zone": "UTC"}')]
    assert (first.finish, first.text, told.text) == ("tool_calls", "", "")
    second = await model.complete(after(first, request), told)
    assert second.text == told.text == "Noon."
    sent = endpoint.requests[1].messages[1]
    assert sent["reasoning"] == "[[silent]] Hm.", "without the marks, which its template refuses"
    assert "<|" not in json.dumps(sent)


@pytest.mark.parametrize(
    "request_",
    [
        asking(),
        asking(tools=(tool("another"),)),
        asking(tools=CLOCK, tool_choice="none"),
        asking(f"What does {WRITTEN} mean?", tools=CLOCK),
    ],
)
async def test_where_no_call_is_certain_it_is_text(
    endpoint: Endpoint, model: HostedModel, request_: ModelRequest
) -> None:
    endpoint.answers(said(*WRITTEN))
    told = Told()
    completion = await model.complete(request_, told)
    assert completion.tool_calls == ()
    assert completion.text == told.text == WRITTEN


async def test_a_text_next_to_real_calls_is_text(endpoint: Endpoint, model: HostedModel) -> None:
    endpoint.answers(Chunks([delta(content=WRITTEN), delta(**native()), delta("tool_calls")]))
    completion = await model.complete(asking(tools=CLOCK))
    assert completion.text == WRITTEN
    assert [call.arguments for call in completion.tool_calls] == ["{}"]


# -- filters, gateways, odd events ----------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [
        Refuse(
            400,
            "The response was filtered due to the prompt triggering Azure OpenAI's content"
            " management policy.",
            code="content_filter",
        ),
        Refuse(
            400, "Output data may contain inappropriate content.", code="data_inspection_failed"
        ),
        Chunks(
            [{"error": {"code": "1301", "message": "系统检测到输入或生成内容可能包含敏感内容"}}]
        ),
    ],
)
async def test_a_filtered_question(endpoint: Endpoint, model: HostedModel, refusal: Answer) -> None:
    endpoint.answers(refusal)
    with pytest.raises(ContentFilteredError):
        await model.complete(asking())
    assert len(endpoint.requests) == 1, "it is not asked again"


async def test_an_answer_with_content_filter_results_of_azure_is_read(
    endpoint: Endpoint, model: HostedModel
) -> None:
    filters = {"hate": {"filtered": False, "severity": "safe"}}
    first = {
        "choices": [], "created": 0, "id": "", "model": "", "object": "",
        "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": filters}],
    }  # fmt: skip
    later = {"choices": [{"content_filter_results": filters, "finish_reason": None, "index": 0}]}
    endpoint.answers(
        Chunks([first, delta(content="Noon."), later, delta("stop")]),
        Chunks([first, delta(content="No"), delta("content_filter")]),
    )
    assert (await model.complete(asking())).text == "Noon."
    filtered = await model.complete(asking())
    assert (filtered.text, filtered.finish) == ("No", "content_filter")


@pytest.mark.parametrize(
    ("kind", "document"),
    [("text/event-stream", True), ("text/plain", True), ("application/json", False)],
)
async def test_gateways_that_confuse_streams_and_documents(
    endpoint: Endpoint, model: HostedModel, kind: str, document: bool
) -> None:
    choice = {"message": {"content": "<think>Hm.</think>Noon."}, "finish_reason": "stop"}
    data = json.dumps({"choices": [choice]}).encode()
    endpoint.answers(Garbage(data if document else b"data: " + data + b"\n\n", kind))
    assert (await model.complete(asking())).text == "Noon."


async def test_events_without_content(endpoint: Endpoint, model: HostedModel) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    events = [
        b": OPENROUTER PROCESSING\n\n",
        sse(usage),
        sse(delta(role="assistant")),
        b": keep-alive\r\n\r\n",
        sse(delta(content=None, tool_calls=None, reasoning=None)),
        sse(delta(content="Noon.")),
        sse(delta("stop")),
        sse(usage | {"choices": None}),
        sse("[DONE]"),
    ]
    endpoint.answers(Garbage(b"".join(events)))
    completion = await model.complete(asking())
    assert (completion.text, completion.usage.tokens_in) == ("Noon.", 7)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "Upstream is gone", "code": 502}},
        {"error": "Upstream is gone"},
        {"object": "error", "message": "Upstream is gone", "code": 503},
        {"code": "ServiceUnavailable", "message": "Upstream is gone", "request_id": "1"},
    ],
)
async def test_an_error_in_the_stream(
    endpoint: Endpoint, make: Make, slept: Slept, error: Any
) -> None:
    endpoint.answers(Chunks([delta(content="I"), error]), Text("Noon."))
    assert (await make().complete(asking())).text == "Noon."
    assert len(slept.pauses) == 1
    endpoint.answers(Chunks([error]))
    with pytest.raises(ModelUnavailableError, match="Upstream is gone"):
        await make(retries=0).complete(asking())


async def test_a_parameter_that_is_refused_in_the_stream_is_left_out(
    endpoint: Endpoint, make: Make
) -> None:
    refusal = {"error": {"message": "Unsupported parameter: temperature", "code": 400}}
    endpoint.answers(Chunks([refusal]), Text("Noon."))
    assert (await make(temperature=0.5).complete(asking())).text == "Noon."
    assert "temperature" not in endpoint.requests[1].body


def test_the_text_of_a_session_has_no_reasoning() -> None:
    parts = (
        OpaquePart("chat/m", msgspec.Raw(b'{"text": "<think>Hm.</think>"}')),
        TextPart("Noon."),
    )
    assert ModelMessage("assistant", parts).text == "Noon."
