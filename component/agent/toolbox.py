"""The tools of a turn: the skills and the built-in tools of the loop."""

from collections.abc import Mapping, Sequence
from typing import Final

import anyio
import msgspec
import structlog

from component.agent.observer import Observer
from component.agent.protocol import Caller, ToolResult, Tools, Waiting
from component.models.answer_limits import ARGUMENTS_DEPTH, JSON_VALUES, too_complex
from component.models.messages import ToolCall
from component.models.protocol import Tool
from component.storage.errors import StorageError
from component.system import monotonic

_log = structlog.get_logger("component.agent")

_NAMES_SHOWN: Final = 20


class Toolbox:
    """The tools that one caller is offered.

    A built-in tool of the loop comes before a skill of the same name.
    """

    def __init__(
        self, skills: Tools, builtin: Sequence[Tools], caller: Caller, observer: Observer
    ) -> None:
        self.tools: tuple[Tool, ...]
        self._skills = skills
        self._observer = observer
        self._sources: dict[str, Tools] = {}
        tools: dict[str, Tool] = {}
        for source in (*builtin, skills):
            for tool in source.offered(caller):
                if tool.name not in tools:
                    tools[tool.name] = tool
                    self._sources[tool.name] = source
        self.tools = tuple(tools.values())

    def source(self, name: str) -> Tools:
        """Who knows a tool. What is not offered any more is the skills' to tell about."""
        return self._sources.get(name, self._skills)

    async def round(
        self, caller: Caller, calls: Sequence[ToolCall], *, again: bool = False
    ) -> list[ToolResult | Waiting]:
        """Call the tools of one answer; the results are in the order of the calls.

        Calls that the person must confirm are asked about in one question. Of the others, those
        without effects run in parallel. Calls with effects are made in order, each after the end of
        the previous one, and none after one that raised.

        `again` says that these calls were made before; then their outcomes are queried even if the
        tools are not offered any more. Raises StorageError.
        """
        results: list[ToolResult | Waiting | StorageError | None] = [None] * len(calls)
        together = await self._confirm_together(caller, calls, again)

        async def one(at: int) -> None:
            results[at] = await self._one(caller, calls[at], again)

        async def in_order(places: Sequence[int]) -> None:
            for at in places:
                await one(at)
                if isinstance(results[at], StorageError):
                    return

        effects = []
        async with anyio.create_task_group() as group:
            for at, call in enumerate(calls):
                if call.id in together:
                    results[at] = together[call.id]
                elif self._together(caller, call, again):
                    group.start_soon(one, at)
                else:
                    effects.append(at)
            await in_order(effects)
        for result in results:
            if isinstance(result, StorageError):
                raise result
        return [one for one in results if isinstance(one, ToolResult | Waiting)]

    async def _confirm_together(
        self, caller: Caller, calls: Sequence[ToolCall], again: bool
    ) -> Mapping[str, ToolResult | Waiting]:
        skills = [
            call
            for call in calls
            if self.source(call.name) is self._skills and (again or not self._wrong(call))
        ]
        if len(skills) < 2:
            return {}
        return await self._skills.confirm_together(caller, skills, again=again)

    def _together(self, caller: Caller, call: ToolCall, again: bool) -> bool:
        source = self._sources.get(call.name)
        if source is None:
            return not again  # a call of an unknown tool is an immediate error
        return source.together(caller, call.name)

    async def _one(
        self, caller: Caller, call: ToolCall, again: bool
    ) -> ToolResult | Waiting | StorageError:
        if not again:
            wrong = self._wrong(call)
            if wrong:
                self.source(call.name).refused(caller, call.name)
                self._observer.tool_call(
                    call.name, "unknown" if call.name not in self._sources else "malformed", 0.0
                )
                return ToolResult(wrong, is_error=True)
        began, outcome = monotonic(), "broke"
        arguments = call.arguments if call.arguments.strip() else "{}"
        try:
            with self._observer.span("execute_tool", tool=call.name, call=call.id):
                result = await self.source(call.name).call(caller, call.id, call.name, arguments)
        except StorageError as error:
            outcome = "storage"
            return error
        except Exception:  # noqa: BLE001 - a broken tool is a result for the model, like any failure
            _log.exception("a tool failed", tool=call.name, turn=caller.turn)
            return ToolResult("The tool is broken; this was written down.", is_error=True)
        else:
            if isinstance(result, Waiting):
                outcome = "waits"
            else:
                outcome = "failed" if result.is_error else "done"
            return result
        finally:
            self._observer.tool_call(call.name, outcome, monotonic() - began)

    def _wrong(self, call: ToolCall) -> str:
        if call.name not in self._sources:
            names = sorted(self._sources)
            more = "" if len(names) <= _NAMES_SHOWN else f" and {len(names) - _NAMES_SHOWN} more"
            known = ", ".join(names[:_NAMES_SHOWN]) + more
            return f"There is no tool of this name. There are: {known or 'none'}."
        if not call.arguments.strip():
            return ""
        if too_complex(call.arguments):
            return (
                f"The arguments are nested deeper than {ARGUMENTS_DEPTH}, or have more than"
                f" {JSON_VALUES:,} objects and arrays. Nothing was called."
            )
        try:
            msgspec.json.decode(call.arguments, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            return f"The arguments are not a JSON object ({error}). Nothing was called."
        return ""
