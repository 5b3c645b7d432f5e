"""The scripted endpoint, tested with a third-party client, which takes long to import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.component.models.endpoint import (
    Break,
    Calls,
    Endpoint,
    Garbage,
    Hold,
    Overflow,
    Refuse,
    Request,
    Stall,
    Text,
    in_thread,
)
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    import openai

pytestmark = [
    pytest.mark.anyio,
    # The SDK leaves its generators to the garbage collector, of which trio complains.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
async def client(endpoint: Endpoint) -> AsyncIterator[openai.AsyncOpenAI]:
    import openai

    async with openai.AsyncOpenAI(
        base_url=endpoint.url, api_key="k", max_retries=0, timeout=LIMIT_S
    ) as client:
        yield client


async def streamed(client: openai.AsyncOpenAI) -> list[Any]:
    return [chunk async for chunk in await client.chat.completions.create(**ASK, stream=True)]


async def test_a_text_whole_and_in_pieces(endpoint: Endpoint, client: openai.AsyncOpenAI) -> None:
    endpoint.answers(Text("It is noon."), Text("It is noon.", pieces=4))
    whole = await client.chat.completions.create(**ASK)
    assert whole.choices[0].message.content == "It is noon."
    pieces = [c.choices[0].delta.content for c in await streamed(client)]
    assert "".join(filter(None, pieces)) == "It is noon."
    assert len([p for p in pieces if p]) == 4
    assert endpoint.requests[0].messages == ASK["messages"]
    assert endpoint.requests[0].headers["authorization"] == "Bearer k"
    assert endpoint.connections == 1


async def test_the_scripted_endpoint_sends_calls(
    endpoint: Endpoint, client: openai.AsyncOpenAI
) -> None:
    endpoint.answers(Calls(("clock", {"zone": "UTC"}), ("ping", "{broken", "x")))
    whole = await client.chat.completions.create(**ASK)
    calls: Any = whole.choices[0].message.tool_calls
    assert [(c.function.name, c.function.arguments) for c in calls] == [
        ("clock", '{"zone": "UTC"}'),
        ("ping", "{broken"),
    ]
    assert calls[1].id == "x"


async def test_an_answer_can_depend_on_the_request(
    endpoint: Endpoint, client: openai.AsyncOpenAI
) -> None:
    def echo(request: Request) -> Text:
        return Text(request.messages[-1]["content"])

    endpoint.otherwise = echo
    whole = await client.chat.completions.create(**ASK)
    assert whole.choices[0].message.content == "Hi"


async def test_the_scripted_endpoint_refuses_requests(
    endpoint: Endpoint, client: openai.AsyncOpenAI
) -> None:
    import openai

    endpoint.answers(Refuse(429, retry_after=7), Overflow("llamacpp"))
    with pytest.raises(openai.RateLimitError) as limited:
        await client.chat.completions.create(**ASK)
    assert limited.value.response.headers["retry-after"] == "7"
    with pytest.raises(openai.BadRequestError, match="context size"):
        await client.chat.completions.create(**ASK)
    with pytest.raises(openai.InternalServerError, match="at its end"):
        await client.chat.completions.create(**ASK)
    endpoint.key = "other"
    with pytest.raises(openai.AuthenticationError):
        await client.chat.completions.create(**ASK)


@pytest.mark.parametrize("after", [None, 0, 3])
async def test_a_connection_that_breaks(
    endpoint: Endpoint, client: openai.AsyncOpenAI, after: int | None
) -> None:
    endpoint.answers(Break(after))
    # Once the answer has begun, the client lets its own transport's error through.
    with pytest.raises(Exception, match=r"Connection error|peer closed|RemoteProtocol"):
        await streamed(client)


@pytest.mark.parametrize("after", [None, 2])
async def test_silence_lasts_until_the_client_leaves(
    endpoint: Endpoint, client: openai.AsyncOpenAI, after: int | None
) -> None:
    endpoint.answers(Stall(after))
    async with anyio.create_task_group() as group:
        group.start_soon(streamed, client)
        await endpoint.until(lambda: len(endpoint.requests) == 1)
        group.cancel_scope.cancel()
    await endpoint.until(lambda: endpoint.hung_up == 1)


async def test_an_answer_is_held(endpoint: Endpoint, client: openai.AsyncOpenAI) -> None:
    release = anyio.Event()
    hold = Hold(Text("It is noon.", pieces=4), release, after=2)
    endpoint.answers(hold)
    stream = await client.chat.completions.create(**ASK, stream=True)
    await hold.held.wait()
    release.set()
    text = "".join([c.choices[0].delta.content or "" async for c in stream])
    assert text == "It is noon."


async def test_the_scripted_endpoint_sends_garbage(
    endpoint: Endpoint, client: openai.AsyncOpenAI
) -> None:
    endpoint.answers(Garbage(b"<html>", "text/html"))
    assert await streamed(client) == []


def test_the_scripted_endpoint_runs_in_a_thread() -> None:
    import openai

    with in_thread() as endpoint:
        endpoint.answers(Text("Hello"))
        with openai.OpenAI(base_url=endpoint.url, api_key="k", max_retries=0) as client:
            assert client.chat.completions.create(**ASK).choices[0].message.content == "Hello"


def test_the_scripted_endpoint_runs_in_a_process(tmp_path: Path) -> None:
    import openai

    (tmp_path / "script.json").write_text(
        '[{"refuse": 429}, {"calls": [["ping", {}]]}, {"text": "Hello"}]'
    )
    command = [sys.executable, "-m", "tests.component.models.endpoint", tmp_path / "script.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().strip()
            with openai.OpenAI(base_url=url, api_key="k", max_retries=1) as client:
                first: Any = client.chat.completions.create(**ASK).choices[0].message
                assert first.tool_calls[0].function.name == "ping"
                second = client.chat.completions.create(**ASK).choices[0].message
                assert second.content == "Hello"
        finally:
            process.terminate()
