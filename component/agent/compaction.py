"""Sums up the oldest part of a conversation that has outgrown what the model may be shown."""

import structlog

from component.agent import history, overflow
from component.agent.asking import Room
from component.agent.run import Run
from component.agent.thinking import Thinking, Undivided
from component.budget.protocol import BudgetExceededError
from component.memory.lines import Summary
from component.memory.tail import tokens_of
from component.models.protocol import ChatMessage, ModelError, ModelRequest

_log = structlog.get_logger("component.agent")


class Compaction:
    """Makes summaries, which stand in the session's file from then on.

    If the model does not make one, the conversation is shown without its oldest part, and the next
    turn tries again.
    """

    def __init__(self, thinking: Thinking, room: Room) -> None:
        self._thinking = thinking
        self._room = room

    async def look(self, run: Run) -> None:
        """Sum up what is more than may be shown, before it has to be left out."""
        most = self._room.earlier(run.model)
        if run.journal.tokens <= most:
            return
        lines = [line for line in run.journal.lines if _turn(line) not in run.journal.ids]
        if sum(tokens_of(line, run.model.tokens) for line in lines) > most:
            await self.shrink(run, most // 2)

    async def shrink(self, run: Run, keep: int) -> None:
        """Sum up the oldest part, so that at most `keep` tokens are left where that is possible.

        Raises StorageError.
        """
        journal, model = run.journal, run.model
        tokens = [tokens_of(line, model.tokens) for line in journal.lines]
        at = overflow.cut(journal.lines, tokens, keep, {*journal.ids, *run.ask.held})
        if not at:
            return
        old = journal.lines[:at]
        before = [journal.summary] if journal.summary is not None else []
        most = min(overflow.SUMMARISED_TOKENS, model.context_tokens // 2)
        text = history.truncated(overflow.told([*before, *old]), most, model.tokens)
        asked = ModelRequest(
            messages=(
                ChatMessage("system", overflow.SUMMARISE),
                ChatMessage("user", run.fence.around(text, "an earlier conversation")),
            ),
            max_tokens=min(overflow.SUMMARY_TOKENS, self._room.answer(model)),
        )
        tokens_in = sum(history.tokens_of(one, model.tokens) for one in asked.messages)
        try:
            completion = await self._thinking.ask(model, asked, tokens_in, run.spender, Undivided())
        except (ModelError, BudgetExceededError) as error:
            _log.warning("a conversation cannot be summed up", turn=run.ask.id, reason=str(error))
            return
        if completion is None or not completion.text.strip():
            return
        await journal.add(
            [
                Summary(
                    content=completion.text.strip(),
                    kept=len(journal.lines) - at,
                    taints=history.in_order(history.taints_of([*before, *old])),
                )
            ]
        )


def _turn(line: object) -> str | None:
    return getattr(line, "turn", None)
