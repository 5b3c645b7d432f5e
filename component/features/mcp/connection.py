"""One connection to an MCP server: a process, or a session over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import mcp_types as types
import msgspec
import structlog
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from component.features.mcp.calls import RunningCall
from component.features.mcp.errors import ServerFailed, reason_of
from component.features.mcp.guard import CLOSED, MessageGuard, Streams
from component.features.mcp.http import ENDED, http_streams, is_loss
from component.features.mcp.stdio import stdio_streams
from component.skills.foreign_texts import line

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from component.features.mcp.settings import McpServer

_log = structlog.get_logger("component.features.mcp")

_MOST_TOOLS: Final = 500
_MOST_PAGES: Final = 50
_LONGEST_LOG: Final = 500
_LOGS_PER_MINUTE: Final = 30
_LISTEN_AGAIN_S: Final = 30.0
_LOST_S: Final = 2.0
_CLIENT: Final = types.Implementation(name="xmpp-agent-component", version="0.1.0")


class ToolDescription(msgspec.Struct, frozen=True):
    """A tool as its server describes it. `annotations` are those of the protocol, by their names
    there; the others have the protocol's meaning.
    """

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    annotations: Mapping[str, Any]


class ServerConnection:
    """A connection to a server.

    Args:
        idle_s: seconds without a call after which the connection is closed; None for never.

    Attributes:
        changed: set when the server says that its list of tools has changed.
        last_used: when a call began or ended, on the event loop's clock.
        closed_here: whether `close` has ended it.
        ready: set when the server has answered, or the connection has ended before.
        lost: set when the server does not know the session any more.
    """

    def __init__(self, name: str, entry: McpServer, *, idle_s: float | None = None) -> None:
        self.changed = anyio.Event()
        self.last_used = 0.0
        self.closed_here = False
        self.ready = anyio.Event()
        self.lost = anyio.Event()
        self._name = name
        self._entry = entry
        self._idle_s = idle_s
        self._guard = MessageGuard(name)
        self._calls: list[RunningCall] = []
        self._client: Client | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._logged = 0
        self._logged_since = 0.0

    @property
    def server(self) -> str:
        """The name, version and protocol version that the server reports."""
        assert self._client is not None, "the connection is open"
        info = self._client.server_info
        name = f"{info.name} {info.version}" if info else "server"
        return line(f"{name}, MCP {self._client.protocol_version}", 100)

    @property
    def opened(self) -> bool:
        """Whether the server has answered."""
        return self._client is not None

    @property
    def busy(self) -> bool:
        """Whether calls are under way."""
        return bool(self._calls)

    @property
    def alive(self) -> bool:
        """Whether calls can be made."""
        ended = self._guard.ended.is_set() or self.lost.is_set()
        return self._group is not None and not ended

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Stay connected during the context, whose body begins when the server has answered. It is
        cancelled when the connection ends.

        Raises ServerFailed, with the reason, if the server cannot be reached, or the connection
        ends.
        """
        failures: list[ServerFailed] = []

        async with anyio.create_task_group() as group:

            async def keep() -> None:
                try:
                    await self._run()
                except ServerFailed as error:
                    failures.append(error)
                self.ready.set()
                group.cancel_scope.cancel()

            group.start_soon(keep)
            await self.ready.wait()
            if not failures:
                try:
                    yield
                except ServerFailed as error:
                    failures.append(error)
            group.cancel_scope.cancel()
        if failures:
            raise failures[0]

    async def _run(self) -> None:
        seconds = self._entry.start_timeout_s
        starting = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        try:
            with starting:
                async with self._guard.guarded(self._streams()) as streams:
                    await self._stay(streams, starting)
        except* Exception as errors:  # noqa: BLE001 - whatever the SDK raises costs this connection
            self._guard.end(reason_of(errors))
        finally:
            self._group = None
            late = starting.cancelled_caught
            self._guard.end(f"it does not answer within {seconds:g} seconds" if late else CLOSED)
        raise ServerFailed(self._guard.reason)

    async def _stay(self, streams: Streams, starting: anyio.CancelScope) -> None:
        client = Client(
            _given(streams),
            cache=None,
            client_info=_CLIENT,
            elicitation_callback=self._elicit,
            sampling_callback=self._sample if self._entry.sampling else None,
            logging_callback=self._write_log,
            message_handler=self._handle,
        )
        async with client, anyio.create_task_group() as group:
            starting.deadline = float("inf")
            self._client, self._group = client, group
            self.last_used = anyio.current_time()
            group.start_soon(self._close_when_idle)
            group.start_soon(self._close_when_lost)
            if client.session.discover_result is not None:
                group.start_soon(self._listen, client)
            self.ready.set()
            await self._guard.ended.wait()
            self._group = None
            group.cancel_scope.cancel()

    def _streams(self) -> AbstractAsyncContextManager[Streams]:
        if self._entry.command:
            return stdio_streams(self._name, self._entry)
        return http_streams(self._entry, self._guard.end, self.lost.set)

    def close(self) -> None:
        """End the connection, because it is not needed."""
        self.closed_here = not self._guard.ended.is_set()
        self._guard.end(CLOSED)

    async def tools(self) -> list[ToolDescription]:
        """List the server's tools. Raises ServerFailed."""
        assert self._client is not None, "the connection is open"
        found: dict[str, ToolDescription] = {}
        cursor: str | None = None
        known: set[str | None] = {None}
        try:
            with anyio.fail_after(self._entry.start_timeout_s):
                for _ in range(_MOST_PAGES):
                    page = await self._client.list_tools(cursor=cursor)
                    for tool in page.tools:
                        found.setdefault(tool.name, _described(tool))
                    cursor = page.next_cursor
                    if cursor in known or len(found) > _MOST_TOOLS:
                        break  # some servers give the cursor of the last page again, for ever
                    known.add(cursor)
        except TimeoutError:
            raise ServerFailed("it does not list its tools in time") from None
        except (MCPError, ValidationError, ValueError, RuntimeError, RecursionError) as error:
            if self._guard.ended.is_set():
                raise ServerFailed(self._guard.reason) from error
            if isinstance(error, MCPError) and is_loss(error.code, error.message):
                raise ServerFailed(ENDED) from error
            raise ServerFailed(f"its list of tools cannot be used: {reason_of(error)}") from error
        if len(known) > _MOST_PAGES or len(found) > _MOST_TOOLS:
            _log.warning(
                "an MCP server lists too many tools", server=self._name, offered=_MOST_TOOLS
            )
        return list(found.values())[:_MOST_TOOLS]

    def begin(self, tool: str, arguments: dict[str, Any]) -> RunningCall:
        """Call a tool, until `RunningCall.cancel`, whether somebody waits for it or not."""
        assert self._group is not None, "the connection is alive"
        assert self._client is not None
        call = RunningCall(tool, arguments)
        self._calls.append(call)
        self._group.start_soon(self._run_call, self._client, call)
        return call

    async def _run_call(self, client: Client, call: RunningCall) -> None:
        self.last_used = anyio.current_time()
        try:
            await call.run(client)
        finally:
            self._calls.remove(call)
            self.last_used = anyio.current_time()
            if call.move is None:
                alone = not self._calls
                call.fail(self._guard.reason, begun=not (alone and self._guard.unreached))
            elif call.move.ended:
                self.lost.set()
            if self.lost.is_set() and not self._calls:
                self._guard.end(ENDED)

    # What the server sends by itself.

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        call = self._asking()
        if call is None or not isinstance(params, types.ElicitRequestFormParams):
            return types.ElicitResult(action="decline" if call else "cancel")
        asked = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        reply = await call.ask({"kind": "elicitation", **asked})
        return types.ElicitResult.model_validate(reply)

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        call = self._asking()
        if call is None:
            return types.ErrorData(code=types.INVALID_REQUEST, message="No call is under way.")
        asked = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        reply = await call.ask({"kind": "sampling", **asked})
        if "error" in reply:
            return types.ErrorData(code=types.INTERNAL_ERROR, message=reply["error"])
        return types.CreateMessageResult.model_validate(reply)

    def _asking(self) -> RunningCall | None:
        """Return the call that a request belongs to: the newest one, as all are one person's."""
        open_calls = [call for call in self._calls if not call.asking]
        if self._entry.shared and len(self._calls) > 1:
            return None  # it could belong to another person
        return open_calls[-1] if open_calls else None

    async def _handle(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.changed.set()

    async def _write_log(self, params: types.LoggingMessageNotificationParams) -> None:
        now = anyio.current_time()
        if now - self._logged_since > 60:
            self._logged, self._logged_since = 0, now
        self._logged += 1
        if self._logged > _LOGS_PER_MINUTE:
            return
        data = params.data
        text = data if isinstance(data, str) else repr(data)[: 2 * _LONGEST_LOG]
        write = _log.debug if params.level == "debug" else _log.info
        write(
            "an MCP server writes to the log",
            server=self._name,
            level_there=params.level,
            text=line(text, _LONGEST_LOG),
        )

    async def _listen(self, client: Client) -> None:
        """Note changes of the list of tools, in the protocol of 2026."""
        capabilities = client.server_capabilities.tools
        if capabilities is None or not capabilities.list_changed:
            return
        while True:
            with suppress(MCPError, RuntimeError, ValidationError):
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.changed.set()
            await anyio.sleep(_LISTEN_AGAIN_S)

    async def _close_when_lost(self) -> None:
        """Close a lost session, when other calls had time to be refused, and so not to begin."""
        await self.lost.wait()
        if self._calls:
            await anyio.sleep(_LOST_S)
        self._guard.end(ENDED)

    async def _close_when_idle(self) -> None:
        if self._idle_s is None:
            return
        while True:
            rest = self.last_used + self._idle_s - anyio.current_time()
            if rest <= 0 and not self._calls:
                self.close()
                return
            await anyio.sleep(max(rest, 1.0))


@asynccontextmanager
async def _given(streams: Streams) -> AsyncIterator[Streams]:
    """Yield streams that are open already, as a transport of the SDK."""
    yield streams


def _described(tool: types.Tool) -> ToolDescription:
    claimed = tool.annotations
    hints = claimed.model_dump(by_alias=True, exclude_none=True) if claimed else {}
    return ToolDescription(
        name=tool.name,
        title=tool.title or (claimed.title if claimed else None) or "",
        description=tool.description or "",
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=hints,
    )
