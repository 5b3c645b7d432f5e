"""A turn's calls of tools: on record before they are made, asked about until their results are."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from component.agent import journal, sentences
from component.agent.observer import Observer
from component.agent.protocol import ToolResult, Tools, Waiting
from component.agent.run import Run
from component.agent.suspicion import Suspicion
from component.agent.witness import Witness
from component.memory.lines import Called, Line, Note
from component.models.call_ids import distinct
from component.models.protocol import Completion, ToolCall

_QUOTED: Final = 500
"""Characters of a request that a note repeats."""


class Parked(msgspec.Struct, frozen=True):
    """The turn waits for tasks.

    `question` says that a person has been asked about one of them, `round` which round of calls it
    is, `new` whether that has just begun.
    """

    tasks: tuple[str, ...]
    question: bool
    round: int
    new: bool


class Calling:
    """Makes the calls of turns.

    Args:
        tools: the skills.
        builtin: tools of the loop itself, such as those for sub-agents.
        suspicion: looks for orders in results.
        witness: records what is found there.
        observer: measures the calls.
    """

    def __init__(
        self,
        tools: Tools,
        builtin: Sequence[Tools],
        suspicion: Suspicion,
        witness: Witness,
        observer: Observer,
    ) -> None:
        self._tools = tools
        self._builtin = list(builtin)
        self._suspicion = suspicion
        self._witness = witness
        self._observer = observer

    def add(self, builtin: Tools) -> None:
        """Offer more tools of the loop itself."""
        self._builtin.append(builtin)

    def offer(self, run: Run) -> None:
        """See which tools a turn is offered."""
        run.open_toolbox(self._tools, self._builtin, self._observer)

    # 5 and 6: the tools, and the guard.

    async def call(
        self, run: Run, completion: Completion, wanted: Sequence[ToolCall]
    ) -> Parked | None:
        """Make the calls that a model wants, and put their results on record.

        Raises StorageError.
        """
        calls = distinct(wanted, {one.id for round_ in run.journal.rounds() for one in round_})
        lines = journal.called(run.ask.id, run.rounds, completion, calls)
        run.rounds += 1
        judged = run.guard.judge(calls)
        if judged.verdict == "tell":
            note = sentences.LOOP.format(pattern=judged.pattern)
            lines.append(Note(content=note, turn=run.ask.id))
        elif judged.verdict == "end":
            run.closing = True
        # They are on record before they are made, so that after a crash it is these that are
        # asked about, and not others that the model may think of.
        await run.journal.add(lines)
        run.begin_again()
        results = await run.toolbox.round(run.caller(), calls)
        await self._look(results)
        for result in results:
            self._suspect_result(run, result)
        parked = _parked(results, run.rounds)
        await run.journal.add(
            [
                journal.resulted(run.ask.id, call.id, result)
                for call, result in zip(calls, results, strict=True)
            ],
            sync=parked is not None,
        )
        return parked

    async def unfinished(self, run: Run) -> Parked | None:
        """Find out what became of calls that were made before. Raises StorageError."""
        waiting = run.journal.open_calls() if run.ask.resumed else []
        if not waiting:
            return None
        # What was shown when these were called is shown no more: take all there is for it.
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
        await self._look(results.values())
        return await self._resulted(run, [call for call, _ in waiting], results)

    async def give_up(self, run: Run) -> tuple[list[Line], int]:
        """Give up the calls that have no result yet.

        Returns what is to be put on record, and how many tasks were given up. Raises StorageError.
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
        lines: list[Line] = []
        for call in waiting:
            result = results[call.id]
            if not (isinstance(result, Waiting) and known.get(call.id) == result.task):
                lines.append(journal.resulted(run.ask.id, call.id, result))
            self._suspect_result(run, result)
        parked = _parked(results.values(), run.rounds, new=bool(lines))
        if parked is None and run.journal.interleaved():
            names = ", ".join(sorted({call.name for call in waiting}))
            asked = run.ask.messages[0]
            # A note is a system message: what another agent wrote has no place in it.
            about = _quoted(asked.body) if asked.taint in (None, "person") else "another agent's"
            lines.append(
                Note(content=sentences.LATE.format(names=names, request=about), turn=run.ask.id)
            )
        await run.journal.add(lines, sync=parked is not None)
        return parked

    async def _look(self, results: Iterable[ToolResult | Waiting]) -> None:
        """Look at long results beside the event loop."""
        await self._suspicion.look(
            [
                result.content
                for result in results
                if isinstance(result, ToolResult) and result.taint is not None
            ]
        )

    def _suspect_result(self, run: Run, result: ToolResult | Waiting) -> None:
        if isinstance(result, ToolResult):
            self._witness.suspect(run, result.content, result.taint)


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
    """The beginning of a text, on one line."""
    line = " ".join(text[:_QUOTED].split())
    return f'"{line}…"' if len(text) > _QUOTED else f'"{line}"'
