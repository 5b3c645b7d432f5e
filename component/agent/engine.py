"""One message in, one answer out: the eight stages of a turn.

Nothing of a turn is kept but in its session's file. Whoever runs one again, after the process was
killed at whatever point, gets the answer that is written already, or goes on with what is missing.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import anyio
import msgspec
import structlog

from component.agent import finishes, history, sentences
from component.agent.asking import Room, request
from component.agent.calling import Calling, Parked
from component.agent.compaction import Compaction
from component.agent.journal import Sessions
from component.agent.observer import NoObserver, Observer
from component.agent.profile import Profile
from component.agent.protocol import Recall, Scanner, Tools
from component.agent.run import Ask, Run
from component.agent.suspicion import Suspicion
from component.agent.thinking import Thinking
from component.agent.witness import Witness
from component.audit.protocol import Recorder
from component.budget.protocol import BudgetExceededError, Budgets
from component.memory.lines import Note, Resulted, Said
from component.models.protocol import (
    Completion,
    ContextOverflowError,
    Model,
    ModelRefusedError,
    ModelUnavailableError,
    Usage,
)
from component.policy.taint import Taint
from component.settings.agents import Loop
from component.storage.errors import StorageError

_log = structlog.get_logger("component.agent")

Models: TypeAlias = Callable[[Profile], Model]

_SHORT_WAIT_S: Final = 20.0
"""Seconds for which a turn waits for a model that says when it can be had; once."""
_SHORTENED: Final = 3
"""How often a prompt is made shorter because the model says it is too long."""


class Answered(msgspec.Struct, frozen=True):
    """The turn is over, and its answer is on disk. `text` may hold directives.

    `excused` says that it is a sentence of ours, since the model gave none. `taints` are those of
    everything that the model was shown.
    """

    text: str
    excused: bool = False
    taints: tuple[Taint, ...] = ()


class Engine:
    """Runs turns.

    Args:
        models: the model that an agent uses.
        tools: the skills.
        builtin: tools of the loop itself, such as those for sub-agents.
        sessions: the conversations on disk.
        recall: finds memories; None without.
        scanner: looks for orders in data.
        budgets: gives leave to spend.
        record: takes what is to be recorded.
        loop: the settings that bound a turn.
        history_tokens: see session.history_tokens.
        max_tokens: most tokens of an answer.
        recalled: most memories shown with a message.
    """

    def __init__(
        self,
        *,
        models: Models,
        tools: Tools,
        sessions: Sessions,
        scanner: Scanner,
        budgets: Budgets,
        record: Recorder,
        loop: Loop,
        builtin: Sequence[Tools] = (),
        recall: Recall | None = None,
        history_tokens: int = 8192,
        max_tokens: int = 4096,
        recalled: int = 5,
        observer: Observer | None = None,
    ) -> None:
        self.sessions = sessions
        self.observer: Observer = observer or NoObserver()
        self._models = models
        self._recall = recall
        self._suspicion = Suspicion(scanner)
        self._witness = Witness(record)
        self._loop = loop
        self._room = Room(history_tokens, max_tokens, loop.tool_result_tokens)
        self._recalled = recalled
        self._thinking = Thinking(budgets, record, self.observer)
        self._calling = Calling(tools, builtin, self._suspicion, self._witness, self.observer)
        self._compaction = Compaction(self._thinking, self._room)

    def add(self, builtin: Tools) -> None:
        """Offer more tools of the loop itself: those that need the engine."""
        self._calling.add(builtin)

    async def turn(self, ask: Ask) -> Answered | Parked:
        """Run a turn, or what is left of it.

        To be cancelled at will: what was recorded stays, and the turn can be run again. Raises
        StorageError, after which it can be run again as well.
        """
        run = self._run(ask)
        with self.observer.span("invoke_agent", agent=ask.profile.agent, turn=ask.id):
            await self._session(run)
            written = run.journal.answer()
            if written is not None:
                return Answered(written.content, taints=written.taints)
            try:
                return await self._stages(run)
            except BudgetExceededError as stopped:
                excuse = str(stopped)
            except ContextOverflowError:
                excuse = sentences.TOO_LONG
            except ModelUnavailableError as error:
                _log.warning("no model can be had", turn=ask.id, reason=str(error))
                excuse = sentences.NO_MODEL
            except ModelRefusedError as error:
                _log.error("the model refuses", turn=ask.id, reason=str(error))
                excuse = sentences.REFUSED
            return await self.excuse(run, excuse)

    async def _stages(self, run: Run) -> Answered | Parked:
        parked = await self._calling.unfinished(run)
        if parked is not None:
            return parked
        await self._remember(run)
        await self._compaction.look(run)
        while True:
            await self._listen(run)
            completion = await self._think(run)
            if completion is None:
                run.begin_again()  # something was said meanwhile
                continue
            completion = msgspec.structs.replace(completion, text=run.fence.out_of(completion.text))
            weighed = finishes.weigh(
                completion, partial=run.partial, retried=run.retried, tools=not run.closing
            )
            if weighed.again:
                run.ask_again(weighed)
            elif weighed.calls:
                parked = await self._calling.call(run, completion, weighed.calls)
                if parked is not None:
                    return parked
            else:
                return await self._persist(run, weighed.answer, completion.usage)

    # 1: the session.

    def _run(self, ask: Ask) -> Run:
        model = self._models(ask.profile)
        return Run(ask, model, self.sessions, self._suspicion, self._loop)

    async def _session(self, run: Run) -> None:
        ask = run.ask
        await run.journal.open(
            self._room.read_tokens,
            run.model.tokens,
            may_archive=ask.may_archive and not ask.resumed,
            resumed=[one.id for one in ask.messages] if ask.resumed else (),
        )
        await run.journal.heard(ask.messages)
        await self._suspicion.look(
            [
                line.content
                for line in run.journal.lines
                if isinstance(line, Resulted) and line.taint is not None
            ]
        )
        self._witness.heard(run, ask.messages)
        run.count_rounds()

    # 2: what is remembered.

    async def _remember(self, run: Run) -> None:
        self._calling.offer(run)
        self._witness.notes(run)
        if self._recall is None or not self._recalled:
            return
        incoming = run.ask.messages[-1]
        try:
            run.recalled = await self._recall.recall(
                *(run.ask.profile.agent, incoming.principal, incoming.body, self._recalled),
                trace=run.ask.id,
            )
        except StorageError as error:
            _log.warning("nothing can be recalled", turn=run.ask.id, reason=str(error))
        for one in run.recalled:
            self._witness.suspect(run, one.body, one.taint)
            if one.taint is not None:
                run.taints.add(one.taint)

    # 3 and 4: the prompt, and the model.

    async def _listen(self, run: Run) -> None:
        """Take in what was said since."""
        attention = run.ask.attention
        if attention.more():
            messages = await attention.take()
            self._witness.heard(run, messages)
            await run.journal.heard(messages)

    async def _think(self, run: Run) -> Completion | None:
        waited = False
        while True:
            if run.guard.last:
                run.closing = True
            asked = request(run, self._room)
            try:
                completion = await self._thinking.ask(
                    run.model, asked.request, asked.tokens, run.spender, run.ask.attention
                )
            except ContextOverflowError:
                if run.pressure == _SHORTENED:
                    raise
                run.pressure += 1
                run.tell(sentences.SHORTENED)
                await self._compaction.shrink(run, asked.tokens // 2)
            except ModelUnavailableError as error:
                if waited or error.retry_after_s is None or error.retry_after_s > _SHORT_WAIT_S:
                    raise
                waited = True
                await anyio.sleep(error.retry_after_s)
            else:
                run.guard.asked += completion is not None
                return completion

    # 5 and 6 are in `calling`.
    # 7 and 8: the answer, on disk.

    async def _persist(
        self, run: Run, answer: str, usage: Usage, *, excused: bool = False
    ) -> Answered:
        line = Said(
            role="assistant",
            content=answer,
            turn=run.ask.id,
            final=True,
            taints=history.in_order(run.taints),
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            cost_usd=usage.cost_usd,
        )
        await run.journal.add([line], sync=True)
        return Answered(answer, excused, line.taints)

    async def excuse(self, run: Run, sentence: str) -> Answered:
        """End a turn with a sentence of ours. Raises StorageError."""
        return await self._persist(run, sentence, Usage(), excused=True)

    async def broke(self, ask: Ask, sentence: str) -> Answered:
        """End a turn that cannot be run because of a mistake of ours. Raises StorageError."""
        run = self._run(ask)
        await self._session(run)
        written = run.journal.answer()
        return await self.excuse(run, sentence) if written is None else Answered(written.content)

    async def stop(self, ask: Ask) -> int:
        """End a turn that nobody wants any more: give up its tasks, and leave a note.

        Returns how many tasks were given up. Raises StorageError.
        """
        ask = msgspec.structs.replace(ask, resumed=True)
        run = self._run(ask)
        await self._session(run)
        if run.journal.answer() is not None:
            return 0
        lines, given_up = await self._calling.give_up(run)
        lines.append(Note(content=sentences.STOPPED_NOTE, turn=ask.id))
        await run.journal.add(lines, sync=True)
        return given_up
