"""A model behind an endpoint: requests, answers, and all kinds of failures."""

import gzip
import json
import math
from typing import Any

import anyio
import pytest

from component.models import hosted
from component.models.connection import Timeouts
from component.models.hosted import HostedModel
from component.models.messages import ToolCall, call_message, result_message, text_message
from component.models.protocol import (
    ContextOverflowError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    UnusableAnswerError,
    Usage,
    Void,
)
from tests.component.models.answers import Exchange
from tests.component.models.asking import KEY, Make, Slept, asking, tool
from tests.component.models.endpoint import (
    DIALECTS,
    Answer,
    Break,
    Calls,
    Chunks,
    Dialect,
    End,
    Endpoint,
    Garbage,
    Hold,
    Overflow,
    Refuse,
    Stall,
    Text,
)

pytestmark = pytest.mark.anyio


@pytest.mark.ports
async def test_connections_are_reused(endpoint: Endpoint, model: HostedModel) -> None:
    endpoint.answers(*(Text("Hi") for _ in range(3)))
    for _ in range(3):
        await model.complete(asking())
    assert endpoint.connections == 1


# -- what is read -------------------------------------------------------------------------------


@pytest.mark.ports
async def test_a_text_is_streamed(endpoint: Endpoint, model: HostedModel) -> None:
    endpoint.answers(Text("It is noon.", pieces=4))
    told: list[str] = []
    completion = await model.complete(asking(), told.append)
    assert len(told) == 4
    assert completion.text == "".join(told) == "It is noon."
    assert (completion.finish, completion.model) == ("stop", "m")


async def test_halves_of_surrogate_pairs_are_replaced(
    endpoint: Endpoint, model: HostedModel
) -> None:
    half = "\ud83d"
    endpoint.answers(Text("Hi"))
    call = call_message(half, (ToolCall("1", "clock", f'{{"zone": "{half}"}}'),))
    result = result_message("1", half)
    await model.complete(ModelRequest(messages=(text_message("user", half), call, result)))
    sent = json.dumps(endpoint.requests[0].messages, ensure_ascii=False)
    assert half not in sent
    assert sent.count("\ufffd") == 4


async def test_usage_at_the_configured_price(endpoint: Endpoint, make: Make) -> None:
    endpoint.answers(Text("Noon.", usage=(1000, 200)))
    completion = await make(usd_per_million_in=2, usd_per_million_out=10).complete(asking())
    assert completion.usage == Usage(1000, 200, pytest.approx(0.004), estimated=False)


async def test_missing_usage_is_estimated(endpoint: Endpoint, model: HostedModel) -> None:
    endpoint.answers(Text("It is noon.", usage=None), Calls(("clock", {"zone": "UTC"}), usage=None))
    first = await model.complete(asking("x" * 300, tools=(tool("clock"),)))
    second = await model.complete(asking("x" * 300))
    assert first.usage.estimated
    assert first.usage.tokens_in > second.usage.tokens_in >= 100
    assert first.usage.tokens_out >= 3
    assert second.usage.tokens_out >= 5


async def test_openrouter_reports_its_charge(endpoint: Endpoint, make: Make) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 6, "cost": 0.25}
    chunks = [{"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}], "usage": usage}]
    endpoint.answers(Chunks(chunks), Chunks(chunks))
    assert (await make(provider="openrouter").complete(asking())).usage == Usage(5, 6, 0.25)
    assert (await make().complete(asking())).usage == Usage(5, 6, 0.0)


@pytest.mark.parametrize(
    "calls",
    [
        Calls(("a", {"x": 1}), ("b", {})),
        Calls(("a", {"x": 1}), ("b", {}), pieces=9),
        Calls(("a", {"x": 1}), ("b", {}), ids=False),
        Calls(("a", {"x": 1}), ("b", {}), repeat_name=True, pieces=3),
        Calls(("a", {"x": 1}), ("b", {}), repeat_name=True, pieces=3, ids=False),
        Calls(("a", {"x": 1}), ("b", {}), indexed=False, pieces=1),
        Calls(("a", {"x": 1}), ("b", {}), indexed=False, pieces=1, ids=False),
        Calls(("a", {"x": 1}, "same"), ("b", {}, "same")),
        Calls(("a", {"x": 1}), ("b", {}), finish="stop"),
    ],
)
async def test_calls_in_any_pieces(endpoint: Endpoint, model: HostedModel, calls: Calls) -> None:
    endpoint.answers(calls)
    completion = await model.complete(asking(tools=(tool("a"), tool("b"))))
    assert [(c.name, json.loads(c.arguments)) for c in completion.tool_calls] == [
        ("a", {"x": 1}),
        ("b", {}),
    ]
    assert len({c.id for c in completion.tool_calls} - {""}) == 2
    assert completion.finish == "tool_calls"


@pytest.mark.parametrize("arguments", [{"x": 1}, '{"x": 1}'])
async def test_whole_calls_that_all_have_index_0(
    endpoint: Endpoint, model: HostedModel, arguments: Any
) -> None:
    each = [
        {"index": 0, "function": {"name": name, "arguments": arguments}} for name in ("a", "a", "b")
    ]
    chunks = [{"choices": [{"delta": {"tool_calls": [call]}}]} for call in each]
    endpoint.answers(Chunks([*chunks, {"choices": [{"delta": {}, "finish_reason": "stop"}]}]))
    completion = await model.complete(asking())
    assert [c.name for c in completion.tool_calls] == ["a", "a", "b"]
    assert all(json.loads(c.arguments) == {"x": 1} for c in completion.tool_calls)


async def test_calls_with_only_names(endpoint: Endpoint, model: HostedModel) -> None:
    endpoint.answers(Calls(("a", ""), ("b", ""), indexed=False, ids=False, pieces=1))
    completion = await model.complete(asking())
    assert [(c.name, c.arguments) for c in completion.tool_calls] == [("a", "{}"), ("b", "{}")]


async def test_ids_of_the_conversation_are_not_reused(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(Calls(("a", {}, "call_0")))
    before = call_message("", (ToolCall("call_0", "a", "{}"),))
    completion = await model.complete(ModelRequest(messages=(before,)))
    assert completion.tool_calls[0].id not in ("", "call_0")


async def test_malformed_arguments_and_invented_tools_are_passed_to_the_caller(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(Calls(("invented", '{"zone": '), text="Let me see."))
    completion = await model.complete(asking(tools=(tool("clock"),)))
    assert completion.text == "Let me see."
    (call,) = completion.tool_calls
    assert (call.name, call.arguments) == ("invented", '{"zone": ')


async def test_names_of_tools_are_restored(endpoint: Endpoint, model: HostedModel) -> None:
    endpoint.answers(Calls(("files_read", {}), ("files_read_2", {})))
    completion = await model.complete(asking(tools=(tool("files.read"), tool("files:read"))))
    assert [c.name for c in completion.tool_calls] == ["files.read", "files:read"]


async def test_a_reason_that_nobody_knows_is_an_ordinary_end(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(Text("It is n", finish="eos"))
    assert (await model.complete(asking())).finish == "stop"


async def test_a_json_document_is_accepted_in_place_of_a_stream(
    endpoint: Endpoint, model: HostedModel
) -> None:
    whole = {
        "choices": [
            {"message": {"role": "assistant", "content": "Noon."}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    endpoint.answers(Garbage(json.dumps(whole).encode(), "application/json"))
    told: list[str] = []
    completion = await model.complete(asking(), told.append)
    assert (completion.text, told) == ("Noon.", ["Noon."])
    assert completion.usage.tokens_in == 3


@pytest.mark.parametrize("kind", ["text/event-stream; charset=utf-8", "text/plain", "a/b"])
async def test_a_stream_with_any_content_type(
    endpoint: Endpoint, model: HostedModel, kind: str
) -> None:
    said = b""": keep-alive\r\n\r\nevent: x\r\ndata:{"choices":[{"finish_reason":"stop","delta":\
{"content":[{"type":"text","text":"Noon."}]}}]}"""
    endpoint.answers(Garbage(said, kind))
    assert (await model.complete(asking())).text == "Noon."


async def test_an_encoded_answer_is_neither_asked_for_nor_read(
    endpoint: Endpoint, model: HostedModel
) -> None:
    said = b'data: {"choices":[{"finish_reason":"stop","delta":{"content":"Noon."}}]}\n\n'
    endpoint.answers(Garbage(gzip.compress(said), headers={"Content-Encoding": "gzip"}))
    with pytest.raises(UnusableAnswerError, match="encoded as 'gzip', though asked for none"):
        await model.complete(asking())
    assert endpoint.requests[0].headers["accept-encoding"] == "identity"
    assert len(endpoint.requests) == 1, "such an answer is not asked for again"


# -- trouble ------------------------------------------------------------------------------------

PASSING = [
    Refuse(429),
    Refuse(500),
    Refuse(502, body="<html>Bad gateway</html>"),
    Refuse(503, body=[{"error": {"message": "overloaded"}}]),
    Refuse(408),
    Refuse(409),
    Break(),
    Break(after=0),
    Break(after=3),
    End(after=0),
    End(after=3),
    Garbage(b"data: {nonsense\n\n"),
    Garbage(b"data: 5\n\n"),
    Garbage(b'data: {"choices": 5}\n\n'),
    Garbage(b"\xff\xfe"),
    Garbage(b"{", "application/json"),
    Garbage(b"data: [DONE]\n\n"),
    Chunks([{"error": {"message": "overloaded", "code": 502}}]),
    Chunks([{"choices": [{"delta": {"content": "I"}, "finish_reason": "error"}]}]),
]


@pytest.mark.parametrize("trouble", PASSING, ids=lambda t: f"{t}"[:40])
async def test_temporary_failures_are_retried_after_longer_and_longer_pauses(
    endpoint: Endpoint, model: HostedModel, slept: Slept, trouble: Answer
) -> None:
    endpoint.answers(trouble, trouble, Text("Noon."))
    assert (await model.complete(asking())).text == "Noon."
    assert len(slept.pauses) == 2
    assert slept.pauses[0] < slept.pauses[1]
    assert endpoint.left == 0


@pytest.mark.parametrize("trouble", [Refuse(500), Break(after=3), Garbage(b"data: 5\n\n")])
async def test_a_lasting_failure_is_reported(
    endpoint: Endpoint, make: Make, slept: Slept, trouble: Answer
) -> None:
    endpoint.otherwise = trouble
    with pytest.raises(ModelUnavailableError) as error:
        await make(retries=1).complete(asking())
    assert endpoint.url in str(error.value)
    assert KEY not in str(error.value)
    assert len(slept.pauses) == 1
    assert len(endpoint.requests) == 2


async def test_a_refused_connection(make: Make, slept: Slept) -> None:
    model = make(base_url="http://127.0.0.1:9/v1", retries=1)
    with pytest.raises(ModelUnavailableError, match="base_url"):
        await model.complete(asking())
    assert len(slept.pauses) == 1


async def test_the_provider_sets_the_time_to_wait(
    endpoint: Endpoint, model: HostedModel, slept: Slept
) -> None:
    endpoint.answers(
        Refuse(429, retry_after=7), Refuse(503, headers={"Retry-After-Ms": "250"}), Text("Noon.")
    )
    assert (await model.complete(asking())).text == "Noon."
    assert slept.pauses == [7.0, 0.25]


async def test_a_wait_that_is_too_long_is_left_to_the_caller(
    endpoint: Endpoint, model: HostedModel, slept: Slept
) -> None:
    endpoint.answers(Refuse(429, retry_after=600))
    with pytest.raises(ModelUnavailableError) as error:
        await model.complete(asking())
    assert error.value.retry_after_s == 600
    assert slept.pauses == []


@pytest.mark.parametrize(
    ("stall", "setting"),
    [
        (Stall(), "first_token_timeout_s"),
        (Stall(after=1), "first_token_timeout_s"),
        (Stall(after=3), "token_timeout_s"),
    ],
)
async def test_a_silent_server_is_an_error_that_names_the_timeout_setting(
    endpoint: Endpoint, make: Make, stall: Stall, setting: str
) -> None:
    model = make(**{setting: 0.2}, retries=0)
    endpoint.answers(stall)
    with pytest.raises(ModelUnavailableError, match=rf"within 0\.2 s: see llm\.{setting}$"):
        await model.complete(asking())
    await endpoint.until(lambda: endpoint.hung_up == 1)


class Ending(Timeouts):
    """Timeouts that pass when a test says so, whatever the machine does meanwhile."""

    def end(self, setting: str) -> None:
        self.scope.deadline = anyio.current_time()
        if setting == "timeout_s":
            self._last = self.scope.deadline


@pytest.fixture
def endings(monkeypatch: pytest.MonkeyPatch) -> list[Ending]:
    """The timeouts of each answer."""
    made: list[Ending] = []

    def timeouts(*_seconds: float) -> Ending:
        made.append(Ending(math.inf, math.inf, math.inf))
        return made[-1]

    monkeypatch.setattr(hosted, "Timeouts", timeouts)
    return made


async def end_when(held: anyio.Event, endings: list[Ending], setting: str) -> None:
    """Have the first answer time out when its server is silent and what it has sent was read."""
    await held.wait()
    await anyio.wait_all_tasks_blocked()
    endings[0].end(setting)


async def test_silence_before_the_answer_is_retried(
    endpoint: Endpoint, make: Make, endings: list[Ending]
) -> None:
    stall = Hold(Text("Late."), anyio.Event(), after=2)
    endpoint.answers(stall, Text("Noon."))

    async with anyio.create_task_group() as group:
        group.start_soon(end_when, stall.held, endings, "token_timeout_s")
        completion = await make().complete(asking(), lambda _: None)
    assert completion.text == "Noon."


class Endless(Text):
    """A text that does not end: piece after piece, until the client hangs up."""

    async def play(self, exchange: Any) -> None:
        await exchange.head()
        while True:
            for event in list(self.events(exchange.body))[1:-2]:
                await exchange.data(event)
            await anyio.sleep(0.01)


@pytest.mark.ports
async def test_a_text_that_is_still_being_written_at_the_limit_is_kept(
    endpoint: Endpoint, make: Make, endings: list[Ending]
) -> None:
    endpoint.answers(Endless("tick "))
    told: list[str] = []

    def tell(piece: str | None) -> bool:
        told.append(piece or "")
        if "".join(told).startswith("tick tick"):
            endings[0].end("timeout_s")
        return False

    completion = await make(timeout_s=600).complete(asking(), tell)
    assert completion.text.startswith("tick tick")
    assert completion.finish == "length"
    assert completion.usage.estimated
    await endpoint.until(lambda: endpoint.hung_up == 1)


async def test_a_call_that_is_not_complete_at_the_limit_is_not_made(
    endpoint: Endpoint, make: Make, endings: list[Ending]
) -> None:
    hold = Hold(Calls(("a", {}), ("b", {"x": "y"}), text="So", pieces=2), anyio.Event(), after=5)
    endpoint.answers(hold)

    async with anyio.create_task_group() as group:
        group.start_soon(end_when, hold.held, endings, "timeout_s")
        completion = await make(timeout_s=600).complete(asking())
    assert completion.text == "So"
    assert [call.name for call in completion.tool_calls] == ["a"]
    assert completion.finish == "length"


async def test_nothing_is_retried_after_a_person_has_seen_a_piece(
    endpoint: Endpoint, model: HostedModel, slept: Slept
) -> None:
    endpoint.answers(Break(after=3), Text("Noon."))
    shown: list[str | None] = []

    def show(piece: str | None) -> bool:
        shown.append(piece)
        return True

    with pytest.raises(ModelUnavailableError):
        await model.complete(asking(), show)
    assert shown
    assert slept.pauses == []
    assert endpoint.left == 1


async def test_an_unseen_answer_is_retried(endpoint: Endpoint, model: HostedModel) -> None:
    endpoint.answers(Break(after=3), Break(after=1), Text("Noon.", pieces=1))
    told: list[str | Void] = []
    assert (await model.complete(asking(), told.append)).text == "Noon."
    assert told[-2:] == [Void.BROKEN_OFF, "Noon."]
    assert told.count(Void.BROKEN_OFF) == 1, "nothing of the second answer was told"


async def test_a_call_without_a_streamed_piece_is_retried(
    endpoint: Endpoint, model: HostedModel
) -> None:
    endpoint.answers(Break(after=1), Text("Noon.", pieces=1))
    told: list[str] = []
    await model.complete(asking(), told.append)
    assert told == ["Noon."]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_way_to_say_that_a_request_is_too_long_is_known(
    endpoint: Endpoint, model: HostedModel, dialect: Dialect
) -> None:
    endpoint.answers(Overflow(dialect))
    with pytest.raises(ContextOverflowError):
        await model.complete(asking())
    assert len(endpoint.requests) == 1


async def test_too_long_reported_in_the_stream(endpoint: Endpoint, model: HostedModel) -> None:
    said = {"message": "Context window exceeded", "code": "context_length_exceeded"}
    endpoint.answers(Chunks([{"error": said}]))
    with pytest.raises(ContextOverflowError):
        await model.complete(asking())


@pytest.mark.parametrize(
    ("refusal", "names"),
    [
        (Refuse(401, f"Incorrect API key: {KEY}"), "llm.api_key"),
        (Refuse(403, f"Key {KEY} may not."), "llm.model"),
        (Refuse(404, "No such model."), "llm.model or llm.base_url; it says: No such model."),
        (Refuse(308, headers={"Location": "http://127.0.0.1:9/"}), "correct llm.base_url"),
        (Refuse(400, "What is this?"), "HTTP 400"),
        (Refuse(422, body={"detail": [{"msg": "odd"}]}), "odd"),
        (Refuse(402, "Payment required"), "requires payment"),
        (Refuse(429, "Quota.", code="insufficient_quota", retry_after=1), "requires payment"),
        (Garbage(b"<html>Welcome</html>", "text/html"), "web page: correct llm.base_url"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_permanent_failures_are_not_retried(
    endpoint: Endpoint, model: HostedModel, refusal: Answer, names: str
) -> None:
    endpoint.answers(refusal)
    with pytest.raises(ModelRefusedError) as error:
        await model.complete(asking())
    assert names in str(error.value)
    assert KEY not in str(error.value)
    assert len(endpoint.requests) == 1


async def test_many_concurrent_requests(endpoint: Endpoint, model: HostedModel) -> None:
    endpoint.otherwise = lambda request: Text(request.messages[0]["content"])
    answers: dict[int, str] = {}

    async def ask(number: int) -> None:
        answers[number] = (await model.complete(asking(str(number)))).text

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(ask, number)
    assert answers == {number: str(number) for number in range(20)}


async def test_a_server_that_does_not_close_after_the_answer(
    endpoint: Endpoint, model: HostedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.models.connection._LAST_BYTES_S", 0.01)

    class Unended(Text):
        async def play(self, exchange: Any) -> None:
            await exchange.head()
            for event in (*self.events(exchange.body), b"data: [DONE]\n\n"):
                await exchange.data(event)
            await exchange.gone()

    endpoint.answers(Unended("Noon."))
    assert (await model.complete(asking())).text == "Noon."
    await endpoint.until(lambda: endpoint.hung_up == 1)


@pytest.mark.parametrize("then", [b"", b"data: {nonsense\n\n", b"data: [5]\n\n"])
@pytest.mark.parametrize(
    "answer", [Text("It is noon.", usage=None), Calls(("clock", {"zone": "UTC"}), usage=None)]
)
async def test_a_connection_that_breaks_after_the_answer_loses_nothing(
    endpoint: Endpoint, model: HostedModel, slept: Slept, answer: Text | Calls, then: bytes
) -> None:
    class Cut(Text):
        async def play(self, exchange: Any) -> None:
            await exchange.head()
            for event in answer.events(exchange.body):
                await exchange.data(event)
            if then:
                await exchange.data(then)
            exchange.cut()

    endpoint.answers(Cut(""))
    told: list[str] = []
    completion = await model.complete(asking(tools=(tool("clock"),)), told.append)
    assert completion.text == "".join(told) == ("It is noon." if told else "")
    assert [call.name for call in completion.tool_calls] == ([] if told else ["clock"])
    assert completion.usage.estimated
    assert slept.pauses == []


async def test_a_server_that_is_silent_after_the_answer(
    endpoint: Endpoint, make: Make, endings: list[Ending]
) -> None:
    silent = anyio.Event()

    class Mute(Text):
        async def play(self, exchange: Any) -> None:
            await exchange.head()
            for event in self.events(exchange.body):
                await exchange.data(event)
            silent.set()
            await exchange.gone()

    endpoint.answers(Mute("Noon."))
    async with anyio.create_task_group() as group:
        group.start_soon(end_when, silent, endings, "token_timeout_s")
        completion = await make().complete(asking(), lambda _: None)
    assert completion.text == "Noon."


@pytest.mark.parametrize("split", [False, True])
async def test_a_byte_order_mark_before_a_stream_or_a_document_hides_nothing(
    endpoint: Endpoint, make: Make, split: bool
) -> None:
    mark = b"\xef\xbb\xbf"
    piece = {"choices": [{"delta": {"content": "\ufeffIt is "}}]}
    last = {"choices": [{"delta": {"content": "noon."}, "finish_reason": "stop"}]}
    stream = b"".join([b"data: %s\n\n" % json.dumps(one).encode() for one in (piece, last)])
    whole = {"choices": [{"message": {"content": "It is noon."}, "finish_reason": "stop"}]}
    document = json.dumps(whole).encode()
    kind = "application/json"
    if split:
        endpoint.answers(Slowly(mark, stream), Slowly(mark, document, kind))
    else:
        endpoint.answers(Garbage(mark + stream), Garbage(mark + document, kind))
    for _ in range(2):
        assert (await make().complete(asking())).text == "It is noon."


class Slowly:
    """An answer whose first bytes come alone."""

    def __init__(self, mark: bytes, data: bytes, kind: str = "text/event-stream") -> None:
        self._pieces, self._kind = (mark[:1], mark[1:], data), kind

    async def play(self, exchange: Exchange) -> None:
        await exchange.head(200, self._kind, {})
        for piece in self._pieces:
            await exchange.data(piece)
        await exchange.end()
