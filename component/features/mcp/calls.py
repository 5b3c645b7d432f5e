"""Calls of tools, and the skills that make them.

A call lives in its connection. The skill follows it from move to move: the server answers, or asks
something first (elicitation, sampling). While a person is asked, the skill does not run, but the
call goes on; the skill that runs again finds it by the idempotency key of the execution. Each move
is a step of the skill, so nothing is sent twice.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import anyio
import mcp_types as types
import msgspec
import structlog
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from component.features.mcp.contents import result_of
from component.features.mcp.errors import plain, reason_of
from component.features.mcp.http import ENDED, is_loss
from component.features.mcp.questions import (
    ANSWER,
    answer_of,
    prompt_of,
    question_of,
    reply_of,
    schema_of,
    tokens_of,
)
from component.features.mcp.tools import schema_mismatch
from component.skills.errors import Denied, SkillError, SkillUnavailable, UsageError
from component.skills.foreign_texts import line

if TYPE_CHECKING:
    from mcp.client.client import Client

    from component.features.mcp.connection import ToolDescription
    from component.features.mcp.serving import Pool
    from component.features.mcp.settings import McpServer
    from component.skills.context import Context
    from component.skills.outputs import SkillResult
    from component.skills.spec import Annotations

_log = structlog.get_logger("component.features.mcp")

_ASK_S: Final = 900.0
"""Seconds for which a question of a server is open; the server waits as long."""
_NOT_WAITING: Final = (
    "its question was answered after the service was started again, or too late, so the call was"
    " not continued"
)
_SWEEP_S: Final = 30.0
_MOST_WAITING: Final = 32
_LONGEST_TEXT: Final = 300
_MOST_ROUNDS: Final = 16
_SAID_BY_THE_SDK: Final = (types.PARSE_ERROR, types.INVALID_REQUEST)
_NOT_BEGUN: Final = (types.METHOD_NOT_FOUND, types.INVALID_PARAMS)

_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)

Report = Callable[[float, str], Awaitable[None]]


class Move(msgspec.Struct, frozen=True):
    """What comes next in a call: its result, a request of the server, or a failure.

    Attributes:
        result: the result, in the JSON of the protocol.
        request: the parameters of the server's request, and its `kind`: elicitation or sampling.
        failed: why the server failed, as one sentence.
        unavailable: why no call was made, as a whole sentence.
        begun: whether the tool may have had an effect.
        refused: why the server refuses the call, for the caller.
        ended: whether the session has ended with the call, so that another one may answer it.
    """

    result: dict[str, Any] | None = None
    request: dict[str, Any] | None = None
    failed: str | None = None
    unavailable: str | None = None
    begun: bool = True
    refused: str | None = None
    ended: bool = False


class RunningCall:
    """One call of a tool.

    Attributes:
        move: its last move; None while nothing has happened.
        asking: whether it waits for the answer to a request of the server.
    """

    def __init__(self, tool: str, arguments: dict[str, Any]) -> None:
        self.move: Move | None = None
        self.asking = False
        self._tool = tool
        self._arguments = arguments
        self._scope = anyio.CancelScope()
        self._changed = anyio.Event()
        self._replied = anyio.Event()
        self._reply: dict[str, Any] = {}
        self._progress: tuple[float, str] | None = None
        self._rounds = 0

    async def run(self, client: Client) -> None:
        """Call the tool. Called by the connection, which cancels it when it ends."""
        with self._scope:
            self._set(await self._outcome(client))

    async def _outcome(self, client: Client) -> Move:
        params = types.CallToolRequestParams(name=self._tool, arguments=self._arguments)
        try:
            while True:
                # `Client.call_tool` checks results with Python's regular expressions, for which
                # a server can write a schema that takes for ever.
                result = await client.session.send_request(
                    types.CallToolRequest(params=params),
                    _RESULT,
                    progress_callback=self._note_progress,
                )
                if isinstance(result, types.CallToolResult):
                    dumped = result.model_dump(by_alias=True, mode="json", exclude_none=True)
                    return Move(result=dumped)
                self._rounds += 1
                if self._rounds > _MOST_ROUNDS:
                    return Move(failed="it asks again and again")
                params = types.CallToolRequestParams(
                    name=self._tool,
                    arguments=self._arguments,
                    input_responses=await _responses(client, result),
                    request_state=result.request_state,
                )
        except MCPError as error:
            return self._error(error)
        except (ValidationError, ValueError, RuntimeError, RecursionError) as error:
            return Move(failed=f"its answer cannot be used: {reason_of(error)}")

    def _error(self, error: MCPError) -> Move:
        said = error.error.message
        code, text = error.error.code, line(plain(said), _LONGEST_TEXT)
        if is_loss(code, text):
            return Move(failed=ENDED, begun=False, ended=True)
        if code == types.CONNECTION_CLOSED:
            return Move(failed=text) if text != "Connection closed" else _CLOSED
        if plain(said) != said and code in _SAID_BY_THE_SDK:
            return Move(failed=text)
        if code in _NOT_BEGUN:
            return Move(refused=text or "The server refuses these parameters.", begun=False)
        return Move(failed=f"it reports an error: {text}")

    def fail(self, reason: str, *, begun: bool) -> None:
        """Record that the connection has ended."""
        self._set(Move(failed=reason, begun=begun, ended=True))

    def cancel(self) -> None:
        """Cancel the call; the server is told."""
        self._scope.cancel()

    # The server's requests.

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Pass a request of the server on to the skill, and return the reply."""
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            return {"action": "cancel", "error": "Too many requests."}
        self.asking = True
        self._replied = anyio.Event()
        self._set(Move(request=request))
        await self._replied.wait()
        return self._reply

    def reply(self, reply: dict[str, Any]) -> None:
        """Give the reply to the server's request, and wait for the next move."""
        self.asking = False
        self.move = None
        self._reply = reply
        self._replied.set()

    async def next(self, report: Report) -> Move:
        """Wait for the next move. Meanwhile, progress is reported."""
        while True:
            if self.move is not None and self.move is not _CLOSED:
                return self.move
            await self._changed.wait()
            self._changed = anyio.Event()
            progress, self._progress = self._progress, None
            if progress is not None:
                await report(*progress)

    async def _note_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        fraction = progress / total if total and total > 0 else 0.0
        fraction = min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else 0.0
        self._progress = (fraction, line(message or "", _LONGEST_TEXT))
        self._changed.set()

    def _set(self, move: Move) -> None:
        if move is not _CLOSED:
            self.move = move
            self._changed.set()


_CLOSED: Final = Move(failed="Connection closed")
"""The connection knows why it has ended, and says so by `RunningCall.fail`."""


async def _responses(client: Client, result: types.InputRequiredResult) -> Any:
    """Return the replies to the requests in a result (MCP 2026-07-28), one after the other."""
    replies: dict[str, Any] = {}
    for key, request in (result.input_requests or {}).items():
        context = ClientRequestContext(session=client.session, request_id=key)
        reply = await client.session.dispatch_input_request(context, request)
        if isinstance(reply, types.ErrorData):
            raise MCPError.from_error_data(reply)
        replies[key] = reply
    return replies or None


class Runner:
    """Runs the tools of a server."""

    def __init__(self, name: str, entry: McpServer, pool: Pool) -> None:
        self._name = name
        self._entry = entry
        self._pool = pool
        self._waiting: dict[str, tuple[RunningCall, float]] = {}
        """Calls whose server waits for an answer, by idempotency key, and until when."""

    async def invoke(
        self,
        tool: ToolDescription,
        annotations: Annotations,
        arguments: dict[str, Any],
        context: Context,
    ) -> SkillResult:
        """Call a tool, which has these effects, for the principal of a context.

        Raises SkillError if the server refuses the call, and SkillUnavailable if it fails.
        """
        repeatable = annotations.repeatable

        async def begin(_key: str) -> Move:
            move = await self._begin(tool, arguments, context)
            if move.ended and (repeatable or not move.begun):
                move = await self._begin(tool, arguments, context)  # in a new session
            return move

        move = await context.step("call", begin, Move)
        while move.request is not None:
            reply = await self._reply(move.request, context)
            move = await self._go_on(reply, context)
        if move.refused is not None:
            raise SkillError(move.refused)
        if move.unavailable is not None:
            raise SkillUnavailable(move.unavailable, begun=move.begun)
        if move.result is None:
            raise SkillUnavailable(
                f"The MCP server {self._name} failed: {move.failed}.", begun=move.begun
            )
        result = move.result
        if (why := schema_mismatch(tool.output_schema, result)) is not None:
            # The content, which is meant for a model, can still be used.
            result = {name: value for name, value in result.items() if name != "structuredContent"}
            if not result.get("content"):
                raise SkillUnavailable(
                    f"The result of {tool.name} does not fit the schema that the MCP server"
                    f" {self._name} declares: {why}"
                )
            _log.warning(
                "a result of a tool does not fit its schema: only its content is used",
                server=self._name,
                tool=tool.name,
                reason=why,
            )
        return result_of(result)

    async def sweep(self) -> None:
        """Cancel calls whose questions nobody has answered in time, until cancelled."""
        while True:
            await anyio.sleep(_SWEEP_S)
            now = anyio.current_time()
            for key, (call, until) in list(self._waiting.items()):
                if now > until:
                    del self._waiting[key]
                    call.cancel()

    async def _begin(
        self, tool: ToolDescription, arguments: dict[str, Any], context: Context
    ) -> Move:
        try:
            connection = await self._pool.get(context.principal)
        except SkillUnavailable as error:
            return Move(unavailable=str(error), begun=error.begun)
        return await self._follow(connection.begin(tool.name, arguments), context)

    async def _go_on(self, reply: dict[str, Any], context: Context) -> Move:
        async def go_on(_key: str) -> Move:
            call, _ = self._waiting.pop(context.key, (None, 0.0))
            if call is None:  # of an earlier run of the service, or too late
                return Move(failed=_NOT_WAITING)
            if not call.asking or (call.move is not None and call.move.request is None):
                return call.move or Move(failed="it has not waited for the answer")
            call.reply(reply)
            return await self._follow(call, context)

        return await context.step("reply", go_on, Move)

    async def _follow(self, call: RunningCall, context: Context) -> Move:
        """Wait for the next move of a call; cancel it if nobody waits for it any more."""
        seconds = self._entry.timeout_s
        try:
            with anyio.fail_after(seconds):
                move = await call.next(context.progress)
        except TimeoutError:
            call.cancel()
            return Move(failed=f"it did not answer within {seconds:g} seconds")
        except BaseException:
            call.cancel()
            raise
        if move.request is not None:
            self._waiting[context.key] = (call, anyio.current_time() + _ASK_S)
        return move

    async def _reply(self, request: dict[str, Any], context: Context) -> dict[str, Any]:
        """Return the reply to a request of the server, in the JSON of the protocol."""
        if request["kind"] == "sampling":
            return await self._sample(request, context)
        if len(self._waiting) > _MOST_WAITING:
            return {"action": "cancel"}
        try:
            schema = schema_of(request)
        except (ValueError, TypeError, RecursionError) as error:
            _log.warning(
                "a question of an MCP server cannot be shown", server=self._name, reason=str(error)
            )
            return {"action": "decline"}
        try:
            answer = await context.ask(question_of(self._name, request), schema, expires_s=_ASK_S)
        except Denied:
            return {"action": "decline"}
        except UsageError:  # there is nobody who can be asked
            return {"action": "cancel"}
        return answer_of(schema, answer)

    async def _sample(self, request: dict[str, Any], context: Context) -> dict[str, Any]:
        try:
            answer = await context.llm(prompt_of(request), ANSWER, max_tokens=tokens_of(request))
        except (SkillError, UsageError, ValueError) as error:
            return {"error": str(error)}
        return reply_of(answer["text"])
