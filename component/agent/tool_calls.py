"""The tool calls of turns: stores each before it is made, and queries it until it has a result."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from component.agent import history, journal, prompt, sentences
from component.agent.injection_check import InjectionCheck
from component.agent.observer import Observer
from component.agent.prompt_builder import TokenBudget
from component.agent.protocol import ToolResult, Tools, Waiting
from component.agent.run import Run
from component.memory.lines import Called, Line, Note, Resulted
from component.models.call_ids import distinct
from component.models.messages import ToolCall
from component.models.protocol import Completion
from component.system import time

_QUOTED: Final = 500
"""Characters of a request that a note repeats."""
_LONG_S: Final = 600.0
"""Seconds after which a turn gets the current time again."""


class Parked(msgspec.Struct, frozen=True):
    """The turn waits for tasks.

    `question` says that a person was asked about one of them, `round` is the number of the round of
    calls, `new` says whether the turn waits for the first time.
    """

    tasks: tuple[str, ...]
    question: bool
    round: int
    new: bool


class ToolCalls:
    """Makes the calls of turns.

    Args:
        tools: the skills.
        builtin: tools of the loop itself, such as the one for sub-agents.
        injection_check: scans results for instructions.
        token_budget: limits how much of a result is shown.
        observer: measures the calls.
    """

    def __init__(
        self,
        tools: Tools,
        builtin: Sequence[Tools],
        injection_check: InjectionCheck,
        token_budget: TokenBudget,
        observer: Observer,
    ) -> None:
        self._tools = tools
        self._builtin = list(builtin)
        self._injection_check = injection_check
        self._token_budget = token_budget
        self._observer = observer

    def add(self, builtin: Tools) -> None:
        """Offer more tools of the loop itself."""
        self._builtin.append(builtin)

    def offer(self, run: Run) -> None:
        """Collect the tools that a turn is offered."""
        run.open_toolbox(self._tools, self._builtin, self._observer)

    # 5 and 6: the tools, and the guard.

    async def call(
        self, run: Run, completion: Completion, wanted: Sequence[ToolCall]
    ) -> Parked | None:
        """Make the calls that a model requests, and store their results.

        Raises StorageError.
        """
        calls = distinct(wanted, {one.id for round_ in run.journal.rounds() for one in round_})
        # The calls are stored before they are made, so that after a crash these are continued, and
        # the model does not make others instead.
        await run.journal.add(journal.called(run.ask.id, run.rounds, completion, calls))
        run.rounds += 1
        run.discard_retry()
        results = await run.toolbox.round(run.caller(), calls)
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
        await run.journal.add(lines, sync=parked is not None)
        return parked

    async def unfinished(self, run: Run) -> Parked | None:
        """Get the results of calls that were made before. Raises StorageError."""
        waiting = run.journal.open_calls() if run.ask.resumed else []
        if not waiting:
            return None
        # It is not known what the prompt had when these were called, so all taints count.
        run.taints |= run.journal.taints()
        self.offer(run)
        caller = run.caller()
        fresh = [call for call, task in waiting if task is None]
        results: dict[str, ToolResult | Waiting] = {}
        if fresh:
            calls = [_tool_call(one) for one in fresh]
            found = await run.toolbox.round(caller, calls, again=True)
            results.update(zip((one.id for one in calls), found, strict=True))
        for call, task in waiting:
            if task is not None:
                source = run.toolbox.source(call.name)
                results[call.id] = await source.outcome(caller, _tool_call(call), task)
        return await self._resulted(run, [call for call, _ in waiting], results)

    async def give_up(self, run: Run) -> tuple[list[Line], int]:
        """Give up the calls that have no result yet.

        Returns the lines to store, and how many tasks were given up. Raises StorageError.
        """
        waiting = run.journal.open_calls()
        if waiting:
            self.offer(run)
        given_up = 0
        lines: list[Line] = []
        for call, task in waiting:
            source = run.toolbox.source(call.name)
            await source.give_up(run.caller(), _tool_call(call), task)
            given_up += task is not None
            stopped = ToolResult(sentences.STOPPED_CALL, is_error=True)
            lines.append(journal.resulted(run.ask.id, call.id, stopped))
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
        await run.journal.add(lines, sync=parked is not None)
        return parked

    async def _line(
        self,
        run: Run,
        call: str,
        result: ToolResult | Waiting,
        *,
        calls: int = 1,
        late: str = "",
    ) -> Resulted:
        """Make the line of a result, which is one of `calls` results."""
        if isinstance(result, Waiting):
            return journal.resulted(run.ask.id, call, result)
        finding = ""
        if result.taint is not None:
            finding = await self._injection_check.scan(run, result.content, result.taint)
        most = self._token_budget.result(run.model, calls)
        shown = history.kept_characters(result.content, most, run.model.tokens)
        return journal.resulted(run.ask.id, call, result, shown=shown, finding=finding, late=late)


def _resumed(run: Run, waiting: Sequence[Called], interleaved: bool) -> str:
    """Return the note for the model when the tasks of a turn have ended; empty if none is
    needed.
    """
    seconds, asked_at = time(), run.journal.asked_at()
    now = prompt.spoken_time(datetime.fromtimestamp(seconds, UTC), run.ask.profile.zone)
    if not interleaved:
        is_long = asked_at is not None and seconds - asked_at > _LONG_S
        return sentences.RESUMED.format(now=now) if is_long else ""
    names = ", ".join(sorted({call.name for call in waiting}))
    asked = run.ask.messages[0]
    # A note is a system message, so it must not quote other agents.
    about = _quoted(asked.text) if asked.taint in (None, "person") else "another agent's"
    return sentences.LATE.format(names=names, request=about, now=now)


def _tool_call(call: Called) -> ToolCall:
    return ToolCall(call.id, call.name, call.arguments)


def _parked(
    results: Iterable[ToolResult | Waiting], number: int, *, new: bool = True
) -> Parked | None:
    waiting = [one for one in results if isinstance(one, Waiting)]
    if not waiting:
        return None
    question = any(one.question for one in waiting)
    return Parked(tuple(one.task for one in waiting), question, number, new)


def _quoted(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text[:_QUOTED].split())
    return f'"{line}…"' if len(text) > _QUOTED else f'"{line}"'
