"""Requests to models over HTTP."""

import httpx2
import pytest

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
