"""Servers over HTTP: header fields, and responses that must not be read."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

import anyio
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from component.features.mcp.feature import mcp_source
from component.features.mcp.settings import McpOAuth, McpServer
from component.skills import Registry, SkillUnavailable
from component.skills.sources import SkillSources
from tests.component.features.mcp.serving import serving
from tests.component.features.mcp.web import Quiet, respond, web_server
from tests.waiting import eventually
from xep.binding.json_bounds import MOST_VALUES_OUTSIDE

pytestmark = [
    pytest.mark.anyio,
    # The HTTP client of the SDK leaves generators unfinished on trio when it is cancelled.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TOOL = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


@contextmanager
def endpoint(
    answer: Callable[[BaseHTTPRequestHandler, Any], None],
    issuer: str = "",
) -> Iterator[tuple[str, list[Any]]]:
    """A server that lists one tool; `answer` writes the response to a call of it. With an issuer
    it needs the token `fresh`.
    """
    seen: list[Any] = []

    class Handler(Quiet):
        def do_GET(self) -> None:
            if not issuer or "oauth-protected-resource" not in self.path:
                return self.send_error(405)
            resource = f"{base}/mcp"
            more = {"authorization_servers": [issuer], "scopes_supported": ["read"]}
            respond(self, json.dumps({"resource": resource, **more}))
            return None

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if issuer and self.headers["Authorization"] != "Bearer fresh":
                return self.send_error(401)
            seen.append((dict(self.headers), asked))
            match asked["method"]:
                case "initialize":
                    version = asked["params"]["protocolVersion"]
                    info = {"name": "web", "version": "1"}
                    made = {"protocolVersion": version, "serverInfo": info}
                    result = {**made, "capabilities": {"tools": {}}}
                    self.result(asked, result, Mcp_Session_Id="abc")
                case "tools/list":
                    self.result(asked, {"tools": [TOOL]})
                case "tools/call":
                    answer(self, asked)
                case method if method.startswith("notifications/"):
                    self.send_response(202)
                    self.end_headers()
                case _:
                    self.send_error(400)
            return None

        def result(self, asked: Any, result: Any, **headers: str) -> None:
            body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
            respond(self, body, **headers)

    with web_server(Handler) as base:
        yield f"{base}/mcp", seen


def echo(asked: Any, text: str) -> str:
    result = {"content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})


async def test_header_fields_are_sent() -> None:
    with endpoint(lambda handler, asked: respond(handler, echo(asked, "hello"))) as (url, seen):
        entry = McpServer(url=url, headers={"Authorization": SecretStr("Bearer abc")})
        async with serving(web=entry) as served:
            assert await served.text("web.echo") == "hello"
    assert all(headers["Authorization"] == "Bearer abc" for headers, _ in seen)


async def test_a_response_that_is_too_large() -> None:
    with endpoint(lambda handler, asked: respond(handler, echo(asked, "x" * 50_000))) as (url, _):
        async with serving(web=McpServer(url=url, max_message_bytes=10_000)) as served:
            with pytest.raises(SkillUnavailable, match="more than 10000 bytes") as caught:
                await served.text("web.echo")
            assert caught.value.begun


async def test_a_response_that_hides_its_size() -> None:
    def bomb(handler: BaseHTTPRequestHandler, asked: Any) -> None:
        respond(handler, gzip.compress(b" " * 10**7), Content_Encoding="gzip")

    with endpoint(bomb) as (url, _):
        async with serving(web=McpServer(url=url)) as served:
            with pytest.raises(SkillUnavailable, match="compressed"):
                await served.text("web.echo")


def events(handler: BaseHTTPRequestHandler, *texts: str) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    for text in texts:
        handler.wfile.write(text.encode())


def many_values(asked: Any, count: int) -> str:
    result = {"content": [], "structuredContent": {"x": [[] for _ in range(count)]}}
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})


@pytest.mark.parametrize("line_end", ["", "\n", "\r\n", "\r"])
async def test_a_response_of_many_values_is_not_decoded(line_end: str) -> None:
    def answer(handler: BaseHTTPRequestHandler, asked: Any) -> None:
        text = many_values(asked, MOST_VALUES_OUTSIDE)
        if line_end:
            events(handler, f"event: message{line_end}data: {text}{line_end}{line_end}")
        else:
            respond(handler, text)

    with endpoint(answer) as (url, _):
        async with serving(web=McpServer(url=url)) as served:
            with pytest.raises(SkillUnavailable, match="more than 100000 values"):
                await served.text("web.echo")


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_events_are_passed_on_however_they_are_cut(line_end: str) -> None:
    def answer(handler: BaseHTTPRequestHandler, asked: Any) -> None:
        text = echo(asked, "a,b," * MOST_VALUES_OUTSIDE)
        event = f"event: message{line_end}data: {text}{line_end}{line_end}"
        events(handler, f": a comment{line_end}{line_end}", event[:-2], event[-2:-1], event[-1:])

    with endpoint(answer) as (url, _):
        async with serving(web=McpServer(url=url)) as served:
            assert (await served.text("web.echo")).startswith("a,b,a,b,")


async def test_a_redirect_to_another_place_is_not_followed() -> None:
    def redirect(handler: BaseHTTPRequestHandler, asked: Any) -> None:
        handler.send_response(307)
        handler.send_header("Location", "http://169.254.169.254/latest/meta-data")
        handler.end_headers()

    with endpoint(redirect) as (url, _):
        async with serving(web=McpServer(url=url)) as served:
            with pytest.raises(SkillUnavailable, match="not followed"):
                await served.text("web.echo")


async def test_a_session_that_has_ended_is_replaced_within_the_call() -> None:
    def gone(handler: BaseHTTPRequestHandler, asked: Any) -> None:
        if len([1 for _, each in seen if each["method"] == "tools/call"]) == 1:
            handler.send_error(404)
        else:
            respond(handler, echo(asked, "again"))

    with endpoint(gone) as (url, seen):
        async with serving(web=McpServer(url=url)) as served:
            assert await served.text("web.echo") == "again"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"jsonrpc": "2.0", "answer": 1}, "not a message of JSON-RPC 2.0"),
        ({"jsonrpc": "2.0", "id": 0, "result": {"what": 1}}, "it has no content"),
    ],
)
async def test_what_is_wrong_with_an_answer_is_said_without_a_library(
    body: dict[str, Any], said: str
) -> None:
    def answer(handler: BaseHTTPRequestHandler, asked: Any) -> None:
        respond(handler, json.dumps({**body, "id": asked["id"]}))

    with endpoint(answer) as (url, _):
        async with serving(web=McpServer(url=url)) as served:
            with pytest.raises(SkillUnavailable, match=said) as caught:
                await served.text("web.echo")
    assert "pydantic" not in str(caught.value)
    assert "validation" not in str(caught.value)


async def test_structured_content_without_content_is_the_result() -> None:
    def answer(handler: BaseHTTPRequestHandler, asked: Any) -> None:
        result = {"structuredContent": {"n": 1}}
        respond(handler, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))

    with endpoint(answer) as (url, _):
        async with serving(web=McpServer(url=url)) as served:
            assert await served.text("web.echo") == '{"n":1}'


async def test_a_status_of_a_server_is_named() -> None:
    with endpoint(lambda handler, _: handler.send_error(503)) as (url, _):
        async with serving(web=McpServer(url=url)) as served:
            with pytest.raises(SkillUnavailable, match="HTTP status 503 Service Unavailable"):
                await served.text("web.echo")


async def test_a_server_that_cannot_be_reached_has_done_nothing() -> None:
    with endpoint(lambda handler, asked: respond(handler, echo(asked, "x"))) as (url, _):
        entry = McpServer(url=url, shared=True)
        stack = serving(web=entry)
        served = await stack.__aenter__()
    try:
        with pytest.raises(SkillUnavailable) as caught:
            await served.text("web.echo")
        assert not caught.value.begun
    finally:
        await stack.__aexit__(None, None, None)


@contextmanager
def authorization_server(scopes: list[str]) -> Iterator[str]:
    """An authorization server that gives the client `agent` the token `fresh`, and notes scopes."""

    class Handler(Quiet):
        def do_GET(self) -> None:
            if not self.path.startswith("/.well-known/oauth-authorization-server"):
                return self.send_error(404)
            made = {"issuer": base, "token_endpoint": f"{base}/token"}
            more = {"authorization_endpoint": f"{base}/a", "response_types_supported": ["code"]}
            respond(self, json.dumps(made | more))
            return None

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            basic = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            if (basic, form["grant_type"]) != ("agent:hidden", ["client_credentials"]):
                return self.send_error(401)
            scopes.extend(form.get("scope", [""]))
            token = {"access_token": "fresh", "token_type": "Bearer", "expires_in": 3600}
            respond(self, json.dumps(token))
            return None

    with web_server(Handler) as base:
        yield base


async def test_the_service_is_authorized_by_its_own_credentials() -> None:
    scopes: list[str] = []
    with (
        authorization_server(scopes) as issuer,
        endpoint(lambda handler, asked: respond(handler, echo(asked, "hello")), issuer) as (url, _),
    ):
        oauth = McpOAuth(issuer=issuer, client_id="agent", client_secret=SecretStr("hidden"))
        async with serving(web=McpServer(url=url, oauth=oauth)) as served:
            assert await served.success("web.echo") == "hello"
    assert set(scopes) == {"read"}


async def test_credentials_go_to_no_other_authorization_server() -> None:
    """The MCP server names another one than the settings do."""
    scopes: list[str] = []
    with (
        authorization_server(scopes) as other,
        endpoint(lambda handler, asked: respond(handler, echo(asked, "hello")), other) as (url, _),
    ):
        oauth = McpOAuth(
            issuer="https://auth.example.com", client_id="agent", client_secret=SecretStr("hidden")
        )
        source = mcp_source("web", McpServer(url=url, oauth=oauth))
        with capture_logs() as logs:
            async with anyio.create_task_group() as group:
                group.start_soon(SkillSources(Registry(), [source]).run)
                await eventually(lambda: any("issuer" in str(each) for each in logs))
                group.cancel_scope.cancel()
    assert scopes == []
