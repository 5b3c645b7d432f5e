"""Runs the tools of a server as skills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import structlog

from component.features.mcp.calls import Move, ToolCall
from component.features.mcp.contents import result_of
from component.features.mcp.elicitation import answer_of, question_of, schema_of
from component.features.mcp.sampling import ANSWER, prompt_of, reply_of, tokens_of
from component.features.mcp.tools import misfit
from component.skills.errors import Denied, SkillError, SkillUnavailable, UsageError

if TYPE_CHECKING:
    from component.features.mcp.connection import ToolDescription
    from component.features.mcp.pool import Pool
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


class Runner:
    """Runs the tools of a server.

    Args:
        name: the name of the server.
        entry: its settings.
        pool: its connections.
    """

    def __init__(self, name: str, entry: McpServer, pool: Pool) -> None:
        self._name = name
        self._entry = entry
        self._pool = pool
        self._waiting: dict[str, tuple[ToolCall, float]] = {}
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
        if (why := misfit(tool.output_schema, result)) is not None:
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

    async def _follow(self, call: ToolCall, context: Context) -> Move:
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
