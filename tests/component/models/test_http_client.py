"""Requests to models over HTTP."""

import anyio
import httpx2
import pytest
from anyio.abc import ByteStream, SocketAttribute

from component.config.llm import ModelChoice
from component.models.catalog import resolve
from component.models.connection import connect_model
from component.models.http_client import ModelClient
from tests.component.models.endpoint import Endpoint, Text

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


async def test_a_connection_is_used_again(endpoint: Endpoint) -> None:
    endpoint.answers(Text("One."), Text("Two."))
    body = b'{"model": "m", "messages": []}'
    async with ModelClient() as client:
        for _ in range(2):
            request = httpx2.Request("POST", f"{endpoint.url}/chat/completions", content=body)
            assert (await client.send(request)).is_success
    assert endpoint.connections == 1


@pytest.mark.parametrize(
    ("url", "authorization"),
    [
        ("http://h/v1", "Bearer k"),
        ("http://Aladdin:open%20sesame@h/v1", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
    ],
)
async def test_the_user_of_a_url_comes_before_the_key(url: str, authorization: str) -> None:
    choice = ModelChoice(provider="vllm", model="m", base_url=url, api_key="k")
    connection = connect_model(resolve(choice, "llm"))
    assert connection.headers["Authorization"] == authorization
    await connection.client.aclose()


async def test_a_request_is_sent_in_one_piece() -> None:
    received: list[bytes] = []

    async def serve(stream: ByteStream) -> None:
        async with stream:
            received.append(await stream.receive())
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
        ModelClient() as client,
    ):
        group.start_soon(listener.serve, serve)
        port = listener.extra(SocketAttribute.local_port)
        request = httpx2.Request("POST", f"http://127.0.0.1:{port}/v1", content=b"{}")
        assert (await client.send(request)).content == b"{}"
        group.cancel_scope.cancel()
    assert received[0].startswith(b"POST /v1 ")
    assert received[0].endswith(b"\r\n\r\n{}")
