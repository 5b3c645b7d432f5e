"""The tools of a turn, and its calls of them.

A call is stored before it is made, and is queried until it has a result.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import anyio
import msgspec
import structlog

from component.agent import history, sentences
from component.agent.prompt import TokenBudget
from component.agent.protocol import Caller, ToolResult, Tools, Waiting
from component.agent.run import Run, called, resulted
from component.agent.untrusted_text import InjectionCheck
from component.conversations.lines import Called, Line, Note, Resulted
from component.models.answer_limits import ARGUMENTS_DEPTH, JSON_VALUES, too_complex
from component.models.messages import ToolCall, with_distinct_ids
from component.models.observer import Observer
from component.models.protocol import Completion, Tool
from component.store.errors import StorageError
from component.system import monotonic, time
from component.zones import exact_time
from xep.jid import JID

_log = structlog.get_logger("component.agent")

_NAMES_SHOWN: Final = 20


_QUOTED: Final = 500
"""Characters of a request that a note repeats."""
_LONG_S: Final = 600.0
"""Seconds after which a turn gets the current time again."""


class Offered(msgspec.Struct, frozen=True):
    """The tools that a turn is offered, and their names."""

    tools: tuple[Tool, ...]
    names: frozenset[str]


class Parked(msgspec.Struct, frozen=True):
    """The turn waits for tasks.

    `question` says that somebody was asked about one of them, `round` is the number of the round of
    calls, `new` says whether the turn waits for the first time. `room` is the room that all
    questions were put to, if there is one.
    """

    tasks: tuple[str, ...]
    question: bool
    round: int
    new: bool
    room: JID | None = None


class ToolCalls:
    """Makes the calls of turns."""

    def __init__(
        self,
        tools: Tools,
        injection_check: InjectionCheck,
        token_budget: TokenBudget,
        observer: Observer,
    ) -> None:
        self._tools = tools
        self._injection_check = injection_check
        self._token_budget = token_budget
        self._observer = observer

    def offer(self, run: Run) -> Offered:
        """Return the tools that a turn is offered, which are collected once, and again when a
        search has found more.
        """
        if run.offered is None:
            tools = tuple(self._tools.offered(run.caller()))
            run.offered = Offered(tools, frozenset([tool.name for tool in tools]))
        return run.offered

    async def _round(
        self, run: Run, caller: Caller, calls: Sequence[ToolCall], *, again: bool = False
    ) -> list[ToolResult | Waiting]:
        """Call the tools of one answer; the results are in the order of the calls.

        Calls that the person must confirm are asked about in one question. Of the others, those
        without effects run in parallel. Calls with effects are made in order, each after the end of
        the previous one, and none after one that raised.

        `again` says that these calls were made before; then their outcomes are queried even if the
        tools are not offered any more. Raises StorageError.
        """
        results: list[ToolResult | Waiting | StorageError | None] = [None] * len(calls)
        offered = self.offer(run)
        together = await self._confirm_together(offered, caller, calls, again)

        async def one(at: int) -> None:
            results[at] = await self._one(offered, caller, calls[at], again)

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
                elif self._together(offered, caller, call, again):
                    group.start_soon(one, at)
                else:
                    effects.append(at)
            await in_order(effects)
        for result in results:
            if isinstance(result, StorageError):
                raise result
        return [one for one in results if isinstance(one, ToolResult | Waiting)]

    async def _confirm_together(
        self, offered: Offered, caller: Caller, calls: Sequence[ToolCall], again: bool
    ) -> Mapping[str, ToolResult | Waiting]:
        possible = [call for call in calls if again or not _wrong(offered, call)]
        if len(possible) < 2:
            return {}
        return await self._tools.confirm_together(caller, possible, again=again)

    def _together(self, offered: Offered, caller: Caller, call: ToolCall, again: bool) -> bool:
        if call.name not in offered.names:
            return not again  # a call of an unknown tool is an immediate error
        return self._tools.together(caller, call.name)

    async def _one(
        self, offered: Offered, caller: Caller, call: ToolCall, again: bool
    ) -> ToolResult | Waiting | StorageError:
        wrong = "" if again else _wrong(offered, call)
        if wrong:
            self._tools.refused(caller, call.name)
            outcome = "malformed" if call.name in offered.names else "unknown"
            self._observer.tool_call(call.name, outcome, 0.0)
            return ToolResult(wrong, is_error=True, not_made=True)
        began, outcome = monotonic(), "broke"
        arguments = call.arguments if call.arguments.strip() else "{}"
        try:
            with self._observer.span("execute_tool", tool=call.name, call=call.id):
                result = await self._tools.call(caller, call.id, call.name, arguments)
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

    def only_reads(self, run: Run, call: ToolCall | Called) -> bool:
        """Whether a call has no effects, or was not made because there is no such tool."""
        if call.name not in self.offer(run).names:
            return isinstance(call, ToolCall)
        return self._tools.only_reads(run.caller(), call.name)

    def _acts(
        self, run: Run, calls: Iterable[ToolCall | Called], results: Iterable[ToolResult | Waiting]
    ) -> bool:
        """Whether one of these calls has had an effect, as the record of a task says."""
        return run.ask.lines is not None and any(
            isinstance(result, ToolResult) and not (result.not_made or self.only_reads(run, call))
            for call, result in zip(calls, results, strict=True)
        )

    # 5 and 6: the tools, and the guard.

    async def call(
        self, run: Run, completion: Completion, wanted: Sequence[ToolCall]
    ) -> Parked | None:
        """Make the calls that a model requests, and store their results.

        Raises StorageError.
        """
        calls = with_distinct_ids(
            wanted, {one.id for round_ in run.journal.rounds() for one in round_}
        )
        # The calls are stored before they are made, so that after a crash these are continued, and
        # the model does not make others instead; after a power failure, those with effects.
        acts = not all(self.only_reads(run, one) for one in calls)
        await run.journal.add(called(run.ask.id, run.rounds, completion, calls), sync=acts)
        run.rounds += 1
        run.discard_retry()
        results = await self._round(run, run.caller(), calls)
        lines: list[Line] = [
            await self._line(run, call.id, result, calls=len(calls))
            for call, result in zip(calls, results, strict=True)
        ]
        warning = run.guard.judge(
            calls, [one.content if isinstance(one, ToolResult) else None for one in results]
        )
        if warning:
            lines.append(Note(content=warning, turn=run.ask.id))
        parked = _parked(results, run.rounds)
        await self._add(run, lines, parked, acts=self._acts(run, calls, results))
        return parked

    async def unfinished(self, run: Run) -> Parked | None:
        """Get the results of calls that were made before. Raises StorageError."""
        waiting = run.journal.open_calls() if run.ask.resumed else []
        if not waiting:
            return None
        # It is not known what the prompt had when these were called, so all taints count.
        run.taints |= run.journal.taints()
        caller = run.caller()
        fresh = [call for call, task in waiting if task is None]
        results: dict[str, ToolResult | Waiting] = {}
        if fresh:
            calls = [_tool_call(one) for one in fresh]
            found = await self._round(run, caller, calls, again=True)
            results.update(zip((one.id for one in calls), found, strict=True))
        for call, task in waiting:
            if task is not None:
                results[call.id] = await self._tools.outcome(caller, _tool_call(call), task)
        return await self._resulted(run, [call for call, _ in waiting], results)

    async def retract(self, run: Run, calls: Sequence[Called]) -> bool:
        """Withdraw calls for which a person was asked, or which continue as tasks, because the
        message is corrected; False, and nothing is changed, if one of them has done something.

        Raises StorageError.
        """
        known = {call.id: task for call, task in run.journal.open_calls()}
        tasks = [task for call in calls if (task := known.get(call.id)) is not None]
        if len(tasks) < len(calls):  # one of them has no task, so it may have done something
            return False
        if tasks and not await self._tools.retract(run.caller(), tasks):
            return False
        result = ToolResult(sentences.CORRECTED_CALL, is_error=True, not_made=True)
        lines = [resulted(run.ask.id, call.id, result) for call in calls]
        await run.journal.add(lines, sync=True)
        return True

    async def give_up(self, run: Run) -> tuple[list[Line], int]:
        """Give up the calls that have no result yet.

        Returns the lines to store, and how many tasks were given up. Raises StorageError.
        """
        waiting = run.journal.open_calls()
        given_up = 0
        lines: list[Line] = []
        for call, task in waiting:
            await self._tools.give_up(run.caller(), _tool_call(call), task)
            given_up += task is not None
            stopped = ToolResult(sentences.STOPPED_CALL, is_error=True)
            lines.append(resulted(run.ask.id, call.id, stopped))
        return lines, given_up

    async def _resulted(
        self, run: Run, waiting: Sequence[Called], results: dict[str, ToolResult | Waiting]
    ) -> Parked | None:
        known = {call.id: task for call, task in run.journal.open_calls()}
        interleaved = run.journal.interleaved()
        lines: list[Line] = []
        for call in waiting:
            result = results[call.id]
            if not (isinstance(result, Waiting) and known.get(call.id) == result.task):
                late = call.name if interleaved and isinstance(result, ToolResult) else ""
                lines.append(await self._line(run, call.id, result, late=late))
        parked = _parked(results.values(), run.rounds, new=bool(lines))
        note = "" if parked is not None else _resumed(run, waiting, interleaved)
        if note:
            lines.append(Note(content=note, turn=run.ask.id))
        acts = self._acts(run, waiting, [results[call.id] for call in waiting])
        await self._add(run, lines, parked, acts=acts)
        return parked

    async def _add(
        self, run: Run, lines: Sequence[Line], parked: Parked | None, *, acts: bool
    ) -> None:
        await run.journal.add(lines, sync=parked is not None, acts=acts)
        if any(isinstance(line, Resulted) and line.found for line in lines):
            run.offered = None
            self.offer(run)

    async def _line(
        self,
        run: Run,
        call: str,
        result: ToolResult | Waiting,
        *,
        calls: int = 1,
        late: str = "",
    ) -> Resulted:
        if isinstance(result, Waiting):
            return resulted(run.ask.id, call, result)
        finding = ""
        if result.taint is not None:
            finding = await self._injection_check.scan(run, result.content, result.taint)
        most = self._token_budget.result(run.model, calls)
        shown = history.kept_characters(result.content, most, run.model.tokens)
        return resulted(run.ask.id, call, result, shown=shown, finding=finding, late=late)


def _wrong(offered: Offered, call: ToolCall) -> str:
    if call.name not in offered.names:
        names = sorted(offered.names)
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


def _resumed(run: Run, waiting: Sequence[Called], interleaved: bool) -> str:
    """Return the note for the model when the tasks of a turn have ended; empty if none is
    needed.
    """
    seconds, asked_at = time(), run.journal.asked_at()
    now = exact_time(datetime.fromtimestamp(seconds, UTC), run.ask.profile.zone)
    if not interleaved:
        is_long = asked_at is not None and seconds - asked_at > _LONG_S
        return sentences.RESUMED.format(now=now) if is_long else ""
    names = ", ".join(sorted({call.name for call in waiting}))
    # A note is a system message, so it must not quote other agents.
    asked = [
        _quoted(one.text) if one.taint in (None, "person") else "another agent's"
        for one in run.ask.messages
    ]
    about = f"request was {asked[0]}" if len(asked) == 1 else f"requests were {' and '.join(asked)}"
    return sentences.LATE.format(names=names, requests=about, now=now)


def _tool_call(call: Called) -> ToolCall:
    return ToolCall(call.id, call.name, call.arguments)


def _parked(
    results: Iterable[ToolResult | Waiting], number: int, *, new: bool = True
) -> Parked | None:
    waiting = [one for one in results if isinstance(one, Waiting)]
    if not waiting:
        return None
    questions = [one for one in waiting if one.question]
    rooms = {one.room for one in questions}
    room = rooms.pop() if len(rooms) == 1 else None
    return Parked(tuple(one.task for one in waiting), bool(questions), number, new, room)


def _quoted(text: str) -> str:
    line = " ".join(text[:_QUOTED].split())
    return f'"{line}…"' if len(text) > _QUOTED else f'"{line}"'
