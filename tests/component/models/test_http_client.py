"""A request is what the SDK's own client makes, but for headers that nobody asked for."""

import httpx2
import openai
import pytest

from component.models.http_client import ModelClient

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

URL = "https://api.example/v1/chat/completions"


async def test_bytes_with_headers() -> None:
    what = {
        "headers": [("Content-Type", "application/json"), ("Authorization", "Bearer x")],
        "content": b"{}",
        "timeout": httpx2.Timeout(5, connect=2),
        "params": None,
        "files": None,
    }
    async with ModelClient() as client, openai.DefaultAsyncHttpxClient() as other:
        ours = client.build_request("POST", URL, **what)
        theirs = other.build_request("POST", URL, **what)
    assert (ours.method, ours.url, ours.content) == (theirs.method, theirs.url, theirs.content)
    assert ours.extensions == theirs.extensions
    merged = {"accept", "accept-encoding", "connection", "user-agent"}
    wanted = {name: value for name, value in theirs.headers.items() if name not in merged}
    assert dict(ours.headers) == wanted


@pytest.mark.parametrize(
    "more", [{"params": {"a": "b"}}, {"json": {}}, {"data": {"a": "b"}}, {"cookies": {"a": "b"}}]
)
async def test_other_requests_are_made_by_the_base_class(more: dict[str, object]) -> None:
    async with ModelClient() as client, openai.DefaultAsyncHttpxClient() as other:
        ours = client.build_request("POST", URL, timeout=httpx2.Timeout(5), **more)
        theirs = other.build_request("POST", URL, timeout=httpx2.Timeout(5), **more)
    assert (ours.url, ours.content) == (theirs.url, theirs.content)
    asked_for = {"accept-encoding": "identity"}  # what comes packed could unpack to gigabytes
    assert dict(ours.headers) == dict(theirs.headers) | asked_for
