"""MCP servers over streamable HTTP (MCP 2025-11-25, Transports): the client, and lost sessions.

The SDK's transport bounds the size of events, but neither that of other responses nor the number of
JSON values, which this client does before anything is decoded. The transport follows no redirect to
another origin.

A server that does not know a session any more, as after a restart, answers 404 by the protocol.
Servers also answer 400, and others, with the JSON-RPC error or the text of their library.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio
import httpx2
import msgspec
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    UNSUPPORTED_PROTOCOL_VERSION,
)

from component.features.mcp.errors import ServerFailed, reason_of
from component.features.mcp.guard import MOST_DEPTH
from component.http.targets import is_loopback
from xep.binding.json_bounds import MOST_VALUES_OUTSIDE, checked_json, may_have_values

if TYPE_CHECKING:
    from component.features.mcp.guard import Streams
    from component.features.mcp.settings import McpOAuth, McpServer

SESSION_LOST: Final = -31_404
"""The code of the error that takes the place of such a refusal. No protocol uses it."""
ENDED: Final = "it has ended the session"
"""What is said of a server that has lost a session."""

_SESSION: Final = re.compile(
    r"\b(no|not|invalid|missing|unknown|unrecogni[sz]ed|expired|stale)\b.{0,20}\bsession"
    r"|session.{0,40}\b(not|no longer|unknown|invalid|expired|missing|required|terminated|closed"
    r"|ended|lost|gone)\b"
    r"|\bnot (been )?initiali[sz]ed",
    re.IGNORECASE | re.DOTALL,
)
_OF_THE_REQUEST: Final = frozenset(
    {
        METHOD_NOT_FOUND,
        INVALID_PARAMS,
        PARSE_ERROR,
        HEADER_MISMATCH,
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        UNSUPPORTED_PROTOCOL_VERSION,
    }
)
"""Codes of errors about one request, which another session would not change."""
_GONE: Final = (404, 410)
_HANDSHAKES: Final = ("initialize", "server/discover")
_LONGEST_READ: Final = 10_000

Loss = Literal["refused", "perhaps"]
"""How a request met the loss of its session: it was refused, so nothing has begun, or the server
does not say so."""


class Sent(msgspec.Struct, frozen=True):
    """A message of JSON-RPC that was sent, as far as it is needed here."""

    method: str = ""
    id: str | int | None = None


class _Error(msgspec.Struct, frozen=True):
    code: int
    message: str = ""


class _Answer(msgspec.Struct, frozen=True):
    error: _Error
    id: str | int | None = None
    jsonrpc: str = "2.0"


_sent: Final = msgspec.json.Decoder(Sent)
_answer: Final = msgspec.json.Decoder(_Answer)


def sent_in(content: bytes) -> Sent:
    """Return the message in the body of a request; an empty one if there is none."""
    try:
        return _sent.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return Sent()


def error_in(number: str | int | None, code: int, text: str) -> bytes:
    """Return the body of a response with an error of JSON-RPC."""
    return msgspec.json.encode(_Answer(_Error(code, text), number))


def is_error(body: bytes) -> bool:
    """Return whether the body of a response has an error of JSON-RPC."""
    return _error_in(body) is not None


def _error_in(body: bytes) -> _Error | None:
    try:
        return _answer.decode(body).error
    except (msgspec.DecodeError, RecursionError):
        return None


def loss_in(status: int, body: bytes, sent: Sent, *, in_session: bool) -> Loss | None:
    """Return whether the response to a message, or to a request for events, says that the session
    is lost.

    Args:
        status: the HTTP status of the response, 400 or above.
        sent: the message; an empty one for a request for events.
        in_session: whether the request named a session.
    """
    if status >= 500 or sent.method in _HANDSHAKES or not (in_session or sent.method):
        return None
    error = _error_in(body)
    text = error.message if error else body[:_LONGEST_READ].decode(errors="replace")
    if in_session and status in _GONE:
        return None if error and error.code == METHOD_NOT_FOUND else "refused"
    if error and error.code in _OF_THE_REQUEST:
        return None
    if _speaks_of_session(text):
        return "refused"
    if not in_session or status != 400 or error is None:
        return None
    if error.code in (INVALID_REQUEST, REQUEST_TIMEOUT):  # the latter is "not found" in the SDKs
        return "refused"
    return None if error.code == INTERNAL_ERROR else "perhaps"


def is_loss(code: int, text: str) -> bool:
    """Return whether an error in a response with success says that the session is lost."""
    return code == SESSION_LOST or (
        code in (INVALID_REQUEST, REQUEST_TIMEOUT, CONNECTION_CLOSED) and _speaks_of_session(text)
    )


def _speaks_of_session(text: str) -> bool:
    return _SESSION.search(text) is not None


_CONNECT_S: Final = 15.0
_DELETE_S: Final = 5.0
_SESSION_FIELD: Final = "mcp-session-id"
_JSON_BODY: Final = {"content-type": "application/json"}
_END_OF_EVENT: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n")
_DATA: Final = re.compile(rb"^data:([^\n]*)", re.MULTILINE)


Failed: TypeAlias = Callable[[str, bool], None]
"""Is called with the reason, if a message cannot be sent or an answer not be read, and whether the
server was not even reached."""


@asynccontextmanager
async def http_streams(
    entry: McpServer, failed: Failed, lost: Callable[[], None]
) -> AsyncIterator[Streams]:
    """Yield the streams of a server's messages. `lost` is called when the server does not know the
    session any more.

    A message that cannot be sent ends the streams. Requests go through the proxy that the
    environment names, as those to models do.

    Raises ServerFailed if the proxy cannot be used.
    """
    try:
        reached = httpx2.AsyncClient(
            trust_env=not is_loopback(entry.url), follow_redirects=False, timeout=None
        )
    except (ImportError, ValueError) as error:
        raise ServerFailed(
            "the proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) cannot be"
            " used: give it as http://HOST:PORT"
        ) from error
    headers = {name: value.get_secret_value() for name, value in entry.headers.items()}
    client = httpx2.AsyncClient(
        transport=_Bounded(reached, entry.max_message_bytes, failed, lost),
        headers={**headers, "Accept-Encoding": "identity"},
        auth=None if entry.oauth is None else client_credentials(entry.url, entry.oauth),
        timeout=httpx2.Timeout(_CONNECT_S, read=None),
    )
    async with (
        client,
        streamable_http_client(
            entry.url, http_client=client, max_sse_event_size=entry.max_message_bytes
        ) as streams,
    ):
        yield streams


def client_credentials(url: str, entry: McpOAuth) -> httpx2.Auth:
    """Return what authorizes requests to the server at `url`: OAuth 2.1 with client credentials
    (RFC 6749 §4.4).

    Tokens are kept in memory, for each connection; nobody has to agree in a browser.

    The credentials are only sent to the authorization server `entry.issuer`, whatever the MCP
    server says. The scopes are those that the MCP server names (MCP 2025-11-25, Authorization).
    """
    return ClientCredentialsOAuthProvider(
        server_url=url,
        storage=_Tokens(),
        client_id=entry.client_id,
        client_secret=entry.client_secret.get_secret_value(),
        issuer=entry.issuer,
    )


class _Tokens:
    """Implements the SDK's `TokenStorage` in memory."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class _Bounded(httpx2.AsyncBaseTransport):
    """Refuses responses that are too large, or compressed, which could hide their size; and says
    when the server has lost the session.

    Args:
        inner: sends the requests. It is a client, since only a client chooses between proxies.
        longest: maximum size of a message in bytes.
        failed: is called if a message cannot be sent or an answer not be read.
        lost: is called when the server does not know the session any more.
    """

    def __init__(
        self, inner: httpx2.AsyncClient, longest: int, failed: Failed, lost: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._longest = longest
        self._failed = failed
        self._lost = lost
        self._has_events = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            if request.method == "DELETE":  # a session that ends; nobody needs the answer
                with anyio.fail_after(_DELETE_S):
                    response = await self._inner.send(request, stream=True)
            else:
                response = await self._inner.send(request, stream=True)
        except httpx2.TransportError as error:
            unreached = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            if request.method == "POST":
                what = "it cannot be reached" if unreached else "the request failed"
                why = reason_of(error) if str(error) else "the connection was lost"
                self._failed(f"{what}: {why}", unreached)
            elif unreached and self._has_events:
                self._lost()
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "").lower()
        if response.headers.pop("content-encoding", "identity").lower() != "identity":
            response.stream = _Body(response.stream, 0, "the response is compressed")
        elif kind.startswith("text/event-stream"):
            self._has_events = self._has_events or request.method == "GET"
            response.stream = _Events(response.stream, self._longest, self._failed)
        else:
            why = f"the response has more than {self._longest} bytes"
            response.stream = _Body(response.stream, self._longest, why)
        if response.is_error and request.method != "DELETE":
            return await self._refusal(request, response)
        return response

    async def _refusal(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return what the SDK reads in place of a refusal: an error that names the loss of the
        session, or what the server did wrong.
        """
        body = await response.aread()
        await response.aclose()
        sent = sent_in(request.content) if request.method == "POST" else Sent()
        in_session = _SESSION_FIELD in request.headers
        loss = loss_in(response.status_code, body, sent, in_session=in_session)
        if request.method == "GET":
            if loss and self._has_events:
                self._lost()
        elif loss == "perhaps":
            reason = f"{ENDED}, with HTTP status {response.status_code}"
            self._failed(reason, False)
            raise httpx2.StreamError(reason)
        elif loss:
            self._lost()
            body = error_in(sent.id, SESSION_LOST, ENDED)
            return httpx2.Response(404, headers=_JSON_BODY, content=body, request=request)
        headers = response.headers.copy()
        for name in ("content-length", "transfer-encoding"):
            headers.pop(name, None)
        if sent.id is not None and not is_error(body):
            code = METHOD_NOT_FOUND if response.status_code == 404 else INTERNAL_ERROR
            status = f"HTTP status {response.status_code} {response.reason_phrase}".rstrip()
            body = error_in(sent.id, code, status)
            headers.update(_JSON_BODY)
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Body(httpx2.AsyncByteStream):
    """A whole response, which is passed on when it is complete and within the limits."""

    def __init__(self, inner: httpx2.AsyncByteStream, longest: int, why: str) -> None:
        self._inner = inner
        self._longest = longest
        self._why = why

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for chunk in self._inner:
            body += chunk
            if len(body) > self._longest:
                raise httpx2.StreamError(self._why)
        _check(bytes(body))
        yield bytes(body)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Events(httpx2.AsyncByteStream):
    """Server-sent events, each of which is passed on when it is complete and within the limits."""

    def __init__(self, inner: httpx2.AsyncByteStream, longest: int, failed: Failed) -> None:
        self._inner = inner
        self._longest = longest
        self._failed = failed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async with aclosing(self._checked()) as events:
                async for event in events:
                    yield event
        except httpx2.StreamError as error:
            self._failed(str(error), False)
            raise

    async def _checked(self) -> AsyncGenerator[bytes]:
        rest = bytearray()
        async for chunk in self._inner:
            begin = max(0, len(rest) - 3)
            rest += chunk
            while (end := _END_OF_EVENT.search(rest, begin)) is not None:
                event = bytes(rest[: end.end()])
                del rest[: end.end()]
                begin = 0
                _check(event)
                yield event
            if len(rest) > self._longest:
                raise httpx2.StreamError(f"an event has more than {self._longest} bytes")
        if rest:
            _check(bytes(rest))
            yield bytes(rest)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _check(text: bytes) -> None:
    """Raise StreamError if a body or an event has more JSON values than the SDK is to decode."""
    if not may_have_values(text, MOST_VALUES_OUTSIDE):
        return
    data = b"\n".join(_DATA.findall(text.replace(b"\r", b"\n"))) or text
    try:
        checked_json(data, MOST_VALUES_OUTSIDE, MOST_DEPTH)
    except ValueError as error:
        most = f"{MOST_VALUES_OUTSIDE} values"
        raise httpx2.StreamError(f"the server sent a message of more than {most}") from error
