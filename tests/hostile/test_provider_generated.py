"""Answers of a provider made by hypothesis: bytes, HTTP, JSON and what it says, all of it bent."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import given
from hypothesis import strategies as st

from component.models.answer_limits import (
    ARGUMENTS_CHARACTERS,
    CALL_TOKENS,
    CALL_USD,
    CALLS,
    ID_CHARACTERS,
    NAME_CHARACTERS,
    TEXT_CHARACTERS,
)
from component.models.catalog import resolve
from component.models.openai_compatible import OpenAICompatible
from component.models.protocol import (
    ChatMessage,
    Completion,
    ModelError,
    ModelRequest,
)
from component.models.storable import storable
from component.settings.llm import ModelChoice
from tests.component.models.asking import tool
from tests.hostile.provider import (
    DONE,
    END,
    HONEST,
    Provider,
    body,
    chunk,
    chunked,
    head,
    provider_in_thread,
)

_HUGE = 300_000

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
CALL = st.builds(
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
EVENT = st.one_of(
    TEXT.map(lambda text: chunk({"content": text})),
    st.lists(CALL, min_size=1, max_size=3).map(lambda calls: chunk({"tool_calls": calls})),
    CALL.map(lambda call: chunk({"tool_calls": [call] * 200})),
    st.sampled_from([chunk(), {"choices": []}, {"error": {"message": "overloaded", "code": 503}}]),
)
LAST = st.builds(
    lambda reason, tokens, cost: chunk(
        finish=reason,
        usage={"prompt_tokens": tokens, "completion_tokens": tokens, "cost": cost},
    ),
    st.sampled_from(["stop", "length", "tool_calls", "content_filter", "error", "other"]),
    st.integers(0, 99),
    st.floats(0, 1),
)
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


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """A whole response, and what is wrong with it: seldom more than a thing or two."""

    def seldom() -> bool:
        return draw(st.integers(0, 7)) == 7

    events = [*draw(st.lists(EVENT, max_size=4)), draw(LAST)]
    document = json.loads(json.dumps(events))
    for _ in range(draw(st.integers(0, 3))):
        if not document:
            break
        holder, key = draw(st.sampled_from(places(document)))
        if draw(st.booleans()):
            holder[key] = draw(WILD)
        else:
            del holder[key]
    ascii_only = draw(st.booleans())
    encoded = [
        json.dumps(one, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        for one in document
    ]
    data = b"".join(b"data: %s\n\n" % event for event in encoded)
    data += draw(st.sampled_from([DONE, DONE, b"data: [DONE]", b"", b": x\n\ndata: x"]))
    kind: str | None = "text/event-stream"
    if encoded and seldom():
        data, kind = encoded[0].replace(b'"delta"', b'"message"'), "application/json"
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


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with provider_in_thread({}) as provider:
        yield provider


@pytest.fixture(scope="module", params=["trio", "asyncio"])
def ask(request: pytest.FixtureRequest, provider: Provider) -> Iterator[Callable[[str], Any]]:
    choice = ModelChoice(
        provider="openrouter",
        model="m",
        base_url=provider.url,
        api_key="sk-secret",  # type: ignore[arg-type]  # pydantic makes a secret of it
        timeout_s=60,
        retries=1,
    )

    async def at_once(_pause_s: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def asked(model: OpenAICompatible, text: str) -> Completion | ModelError:
        told: list[str] = []
        tools = (tool("look"), tool("buy"))
        try:
            return await model.complete(
                ModelRequest(messages=(ChatMessage("user", text),), tools=tools), told.append
            )
        except ModelError as error:
            return error

    def ask(portal: BlockingPortal, model: OpenAICompatible, text: str) -> Any:
        return portal.call(asked, model, text)

    with start_blocking_portal(request.param) as portal:
        model = OpenAICompatible(resolve(choice, "llm"), sleep=at_once)
        yield lambda text: ask(portal, model, text)
        portal.call(model.aclose)


@given(answer=answers())
def test_whatever_is_answered(
    ask: Callable[[str], Completion | ModelError], provider: Provider, answer: bytes
) -> None:
    provider.attacks["drawn"] = lambda: iter([answer])
    found = ask("attack: drawn")
    if isinstance(found, ModelError):
        assert str(found) == storable(str(found))
        assert len(str(found)) < 1000
        assert "sk-secret" not in str(found)
    else:
        fits(found)
    honest = ask("What time is it?")
    assert isinstance(honest, Completion)
    assert honest.text == HONEST


def fits(found: Completion) -> None:
    """It can be stored, and is within all bounds."""
    assert len(found.text) <= TEXT_CHARACTERS
    assert len(found.tool_calls) <= CALLS
    assert sum(len(call.arguments) for call in found.tool_calls) <= ARGUMENTS_CHARACTERS + 2 * CALLS
    assert len({call.id for call in found.tool_calls}) == len(found.tool_calls)
    for call in found.tool_calls:
        assert 0 < len(call.id) <= ID_CHARACTERS
        assert 0 < len(call.name) <= NAME_CHARACTERS
        for text in (call.id, call.name, call.arguments):
            assert text == storable(text)
    assert found.text == storable(found.text)
    usage = found.usage
    assert isinstance(usage.tokens_in, int)
    assert isinstance(usage.tokens_out, int)
    assert 0 <= usage.tokens_in <= CALL_TOKENS
    assert 0 <= usage.tokens_out <= CALL_TOKENS
    assert 0 <= usage.cost_usd <= CALL_USD
