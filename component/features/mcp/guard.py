"""Bounds what a server may send, before the SDK handles it.

The SDK starts a task for each notification and each request of the server. So a server may send
`_BURST` messages at once and `_RATE` a second after that. Further messages wait in its own
connection, and if it goes on for `_FLOOD_S` seconds, the connection is closed. Notifications that
nobody here needs are dropped, and at most `_MOST_REQUESTS` of its requests are open at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias

import anyio
import structlog
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from component.features.mcp.contents import cleaned, readable
from component.features.mcp.errors import ServerFailed, reason_of
from component.skills.foreign_texts import line

_log = structlog.get_logger("component.features.mcp")

MOST_DEPTH: Final = 200
"""The depth of JSON that the decoder of the protocol accepts."""
CLOSED: Final = "the connection was closed"
_RATE: Final = 200.0
_BURST: Final = 1000.0
_FLOOD_S: Final = 20.0
_END_S: Final = 3.0
_LONGEST_NAME: Final = 100
_MOST_REQUESTS: Final = 16
_OF_RESULTS: Final = frozenset(("content", "structuredContent", "isError"))
"""Members that only results of tools have, of what is asked of a server here."""
_NEEDED: Final = frozenset(
    (
        "notifications/cancelled",
        "notifications/message",
        "notifications/progress",
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    )
)


Streams: TypeAlias = tuple[Any, Any]
"""A stream of received messages (or exceptions), and one of messages to send, as in the SDK."""


class MessageGuard:
    """Passes on the messages of one connection.

    Attributes:
        ended: set when there are no more messages.
        reason: why not, as one sentence.
        unreached: whether the last message never reached the server.
    """

    def __init__(self, server: str) -> None:
        self.ended = anyio.Event()
        self.reason = CLOSED
        self.unreached = False
        self._server = server
        self._units = _BURST
        self._at = 0.0
        self._flooding: float | None = None
        self._requests: set[RequestId] = set()

    @asynccontextmanager
    async def guarded(
        self, streams: AbstractAsyncContextManager[Streams]
    ) -> AsyncIterator[Streams]:
        """Yield the streams for the SDK, in place of those of the transport."""
        self._at = anyio.current_time()
        async with streams as (receive, send):
            received, passed = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            outgoing, written = anyio.create_memory_object_stream[SessionMessage](0)
            async with anyio.create_task_group() as group:
                group.start_soon(self._receive, receive, received, send)
                group.start_soon(self._send, written, send)
                try:
                    yield passed, outgoing
                finally:
                    group.cancel_scope.cancel()
                    for stream in (received, passed, outgoing, written):
                        stream.close()

    def end(self, reason: str, unreached: bool = False) -> None:
        """Record that the connection ends. The first reason counts."""
        if not self.ended.is_set():
            self.reason = reason
            self.unreached = unreached
            self.ended.set()

    async def _receive(self, receive: Any, received: Any, send: Any) -> None:
        try:
            async for item in receive:
                if isinstance(item, ServerFailed):
                    self.end(str(item))
                    break
                await self._allow()
                if await self._passes(item, send):
                    await received.send(item)
        except ServerFailed as error:
            self.end(str(error))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        self.end(CLOSED)
        received.close()

    async def _allow(self) -> None:
        """Wait until the server may send another message. Raises ServerFailed."""
        now = anyio.current_time()
        self._units = min(_BURST, self._units + (now - self._at) * _RATE) - 1
        self._at = now
        if self._units > 0:
            if self._units > _BURST / 2:
                self._flooding = None
            return
        if self._flooding is None:
            self._flooding = now
            _log.warning("an MCP server sends too many messages", server=self._server)
        elif now - self._flooding > _FLOOD_S:
            raise ServerFailed(f"it sent too many messages for {_FLOOD_S:g} seconds")
        await anyio.sleep(1 / _RATE)

    async def _passes(self, item: SessionMessage | Exception, send: Any) -> bool:
        if isinstance(item, Exception):
            _log.warning(
                "an MCP server sent an invalid message", server=self._server, error=reason_of(item)
            )
            return False
        message = item.message
        if isinstance(message, JSONRPCNotification):
            return message.method in _NEEDED
        if isinstance(message, JSONRPCResponse):
            tools = message.result.get("tools")
            if isinstance(tools, list):
                message.result["tools"] = cleaned(tools, self._leave_out)
            elif not _OF_RESULTS.isdisjoint(message.result):
                message.result = readable(message.result)
            return True
        if isinstance(message, JSONRPCRequest):
            if len(self._requests) >= _MOST_REQUESTS or message.id in self._requests:
                error = ErrorData(code=INVALID_REQUEST, message="Too many requests are open.")
                refusal = JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
                await send.send(SessionMessage(refusal))
                return False
            self._requests.add(message.id)
        return True

    async def _send(self, written: Any, send: Any) -> None:
        try:
            async for item in written:
                if isinstance(item.message, JSONRPCResponse | JSONRPCError):
                    self._requests.discard(item.message.id)
                await send.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # If the server has ended, the reader knows the reason better.
            await anyio.sleep(_END_S)
            self.end("it does not read messages any more")
        written.close()

    def _leave_out(self, tool: str, reason: str) -> None:
        _log.warning(
            "a tool of an MCP server is left out",
            server=self._server,
            tool=line(tool, _LONGEST_NAME),
            reason=reason,
        )
