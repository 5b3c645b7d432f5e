"""Sessions with servers over HTTP that are restarted, and processes that end: they begin anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.mcp import serving as serving_module
from component.features.mcp.http import SESSION_LOST, Sent, is_loss, loss_in, sent_in
from component.features.mcp.settings import McpServer
from component.skills import SkillUnavailable
from tests.component.features.mcp.serving import scripted, serving
from tests.component.features.mcp.web import Quiet, respond, web_server

pytestmark = [
    # The HTTP client of the SDK leaves generators unfinished on trio when it is cancelled.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CALL = Sent("tools/call", 4)
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def error(code: int, message: str) -> str:
    body = {"jsonrpc": "2.0", "error": {"code": code, "message": message}, "id": None}
    return json.dumps(body)


REFUSALS = {
    "python": (404, error(-32600, "Session not found")),
    "typescript": (404, error(-32001, "Session not found")),
    "example": (400, error(-32000, "Bad Request: No valid session ID provided")),
    "older": (400, "Bad Request: No valid session ID provided"),
    "invalid": (400, error(-32600, "Ungültige Anfrage")),
    "coded": (400, error(-32001, "?")),
    "rust": (401, "Unauthorized: Session not found"),
    "empty": (404, ""),
    "gone": (410, ""),
    "uninitialized": (400, error(-32000, "Bad Request: Server not initialized")),
    "in a response": (200, error(-32001, "Session not found")),
}
"""How servers and their libraries refuse a session that they do not know."""


class Web:
    """A server over HTTP with sessions, which forgets them when it is restarted."""

    def __init__(self, refusal: tuple[int, str]) -> None:
        self.refusal = refusal
        self.url = ""
        self.tools = ["echo"]
        self.sessions: set[str] = set()
        self.begun = 0
        self.called: list[str] = []
        self.proxied: list[str] = []

    def restart(self, *tools: str) -> None:
        self.sessions.clear()
        self.tools = list(tools) or self.tools

    def answer(self, handler: BaseHTTPRequestHandler, asked: Any) -> None:
        method = asked["method"]
        if method == "server/discover":
            return send(handler, 400, "Bad Request: Missing session ID")
        if method == "initialize":
            self.begun += 1
            self.sessions.add(str(self.begun))
            version = asked["params"]["protocolVersion"]
            made = {"protocolVersion": version, "serverInfo": {"name": "web", "version": "1"}}
            result = {**made, "capabilities": {"tools": {}}}
            return self.result(handler, asked, result, Mcp_Session_Id=str(self.begun))
        if handler.headers["Mcp-Session-Id"] not in self.sessions:
            status, body = self.refusal
            if status == 200:
                body = json.dumps({**json.loads(body), "id": asked.get("id")})
            return send(handler, status, body)
        if method == "tools/list":
            return self.result(
                handler,
                asked,
                {"tools": [{"name": name, "inputSchema": SCHEMA} for name in self.tools]},
            )
        if method == "tools/call":
            self.called.append(asked["params"]["arguments"].get("text", ""))
            block = {"type": "text", "text": handler.headers["Mcp-Session-Id"]}
            return self.result(handler, asked, {"content": [block]})
        return send(handler, 202, "")

    def result(self, handler: BaseHTTPRequestHandler, asked: Any, result: Any, **more: str) -> None:
        respond(
            handler, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), **more
        )


def send(handler: BaseHTTPRequestHandler, status: int, body: str) -> None:
    handler.send_response(status)
    kind = "application/json" if body.startswith("{") else "text/plain"
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body.encode())))
    handler.end_headers()
    handler.wfile.write(body.encode())


@contextmanager
def restartable(refusal: str = "python") -> Iterator[Web]:
    """A server without a stream of events, so that nothing but requests can notice a restart."""
    web = Web(REFUSALS[refusal])

    class Handler(Quiet):
        def do_GET(self) -> None:
            self.send_error(405)

        def do_DELETE(self) -> None:
            self.send_error(405)

        def do_POST(self) -> None:
            web.proxied.append(self.path)
            web.answer(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    with web_server(Handler) as url:
        web.url = f"{url}/mcp"
        yield web


@pytest.mark.anyio
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_the_next_call_begins_a_session_that_a_restarted_server_forgot(
    refusal: str, shared: bool
) -> None:
    with restartable(refusal) as web:
        async with serving(web=McpServer(url=web.url, shared=shared)) as served:
            before = await served.text("web.echo", "first")
            web.restart()
            assert await served.text("web.echo", "second") != before
            assert await served.text("web.echo", "third") != before
    assert web.called == ["first", "second", "third"], "each ran once"


@pytest.mark.anyio
async def test_an_unclear_refusal_ends_the_session_and_the_call_is_not_repeated() -> None:
    refusal = (400, error(-32000, "Something went wrong"))
    with restartable() as web:
        web.refusal = refusal
        entry = McpServer(url=web.url, read_only=("peek",))
        web.tools = ["echo", "peek"]
        async with serving(web=entry) as served:
            await served.text("web.echo")
            web.restart()
            with pytest.raises(SkillUnavailable, match="ended the session") as caught:
                await served.text("web.echo")
            assert caught.value.begun, "it may have had an effect"
            await served.text("web.echo")
            web.restart()
            await served.text("web.peek")  # it changes nothing, so it is repeated


@pytest.mark.anyio
async def test_the_tools_of_a_restarted_server_are_listed_anew() -> None:
    with restartable() as web:
        async with serving(web=McpServer(url=web.url)) as served:
            await served.text("web.echo")
            web.restart("echo", "added")
            await served.text("web.echo")
            await served.until(lambda: "web.added" in served.registry.names())


@pytest.mark.anyio
async def test_a_restart_that_no_call_meets_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "_CHECK_S", 0.05)
    with restartable() as web:
        async with serving(web=McpServer(url=web.url)) as served:
            web.restart("echo", "added")
            await served.until(lambda: "web.added" in served.registry.names())


@pytest.mark.anyio
async def test_a_shared_process_that_ended_is_started_by_the_next_call() -> None:
    async with serving(s=scripted(shared=True)) as served:
        before = await served.text("s.pid")
        with pytest.raises(SkillUnavailable, match="SIGKILL") as caught:
            await served.call("s.die")
        assert caught.value.begun
        assert await served.text("s.pid") != before


@pytest.mark.anyio
async def test_requests_go_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with restartable() as web:
        proxy = web.url.removesuffix("/mcp")
        monkeypatch.setenv("HTTP_PROXY", proxy)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with serving(web=McpServer(url="http://mcp.invalid/mcp")) as served:
            await served.text("web.echo", "there")
    assert web.called == ["there"]
    assert set(web.proxied) == {"http://mcp.invalid/mcp"}


@pytest.mark.anyio
async def test_a_server_on_this_machine_is_reached_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with restartable() as web:
        async with serving(web=McpServer(url=web.url)) as served:
            await served.text("web.echo", "here")
    assert web.called == ["here"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, error(-32602, "Missing required argument: session")),
        (404, error(-32601, "Method not found")),
        (400, error(-32603, "Internal error")),
        (503, "no session can be opened: not available"),
        (403, "Forbidden"),
    ],
)
def test_an_error_about_one_request_does_not_end_the_session(status: int, body: str) -> None:
    assert loss_in(status, body.encode(), CALL, in_session=True) is None


def test_a_handshake_cannot_lose_a_session() -> None:
    for method in ("initialize", "server/discover"):
        body = b"Bad Request: No valid session ID"
        assert loss_in(400, body, Sent(method, 1), in_session=False) is None


@given(st.integers(400, 599), st.binary(max_size=50), st.booleans(), st.binary(max_size=50))
def test_any_refusal_can_be_read(status: int, body: bytes, in_session: bool, sent: bytes) -> None:
    loss = loss_in(status, body, sent_in(sent), in_session=in_session)
    assert loss in (None, "refused", "perhaps")
    assert not (status == 404 and in_session and body == b"" and loss is None)


def test_errors_in_responses_are_lost_sessions_only_if_they_say_so() -> None:
    assert is_loss(SESSION_LOST, "")
    assert is_loss(-32600, "Session terminated")
    assert not is_loss(-32600, "Invalid request")
    assert not is_loss(-32603, "The session was not found in the calendar")
