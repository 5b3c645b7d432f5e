"""Summarises the oldest part of a conversation that is too long for the prompt.

Nothing else shortens a prompt. It happens rarely, and halves the conversation, so that the
beginning of the prompt rarely changes. A turn of many rounds is summarised while it runs; the
messages of the person in it stay word for word.
"""

from collections.abc import Collection, Sequence

import msgspec
import structlog

from component.agent import history, overflow, prompt
from component.agent.journal import turn_of
from component.agent.model_call import ModelCalls, NoInterrupts
from component.agent.prompt_builder import TokenBudget, conversation
from component.agent.run import Run
from component.budget.protocol import BudgetExceededError
from component.conversations.lines import Called, Line, Resulted, Said, Summary
from component.conversations.tail import tokens_of
from component.models.messages import text_message
from component.models.protocol import ModelError, ModelRequest

_log = structlog.get_logger("component.agent")


class Compaction:
    """Makes summaries, and stores them in the session's file.

    If the model makes no summary, the conversation continues without one as long as it fits. Then
    its oldest messages are replaced by their beginnings.
    """

    def __init__(self, model_calls: ModelCalls, token_budget: TokenBudget) -> None:
        self._model_calls = model_calls
        self._token_budget = token_budget

    async def look(self, run: Run) -> None:
        """Summarise earlier turns if they exceed their share of the prompt. Raises StorageError."""
        most, journal = self._token_budget.earlier(run.model), run.journal
        tokens = [tokens_of(line, run.model.tokens) for line in journal.lines]
        own = sum(
            each
            for each, line in zip(tokens, journal.lines, strict=True)
            if turn_of(line) in journal.ids
        )
        earlier = sum(tokens) - own
        if earlier > most:
            await self._shorten(run, most // 2 + own, listed=earlier > 2 * most)

    async def fit(self, run: Run) -> None:
        """Summarise lines, including those of the running turn, until the prompt fits.

        Raises StorageError.
        """
        blocks, most = conversation(run, self._token_budget)
        if sum(block.tokens for block in blocks) > most:
            pinned = sum(block.tokens for block in blocks if block.pinned)
            await self._shorten(run, max(0, most - pinned) // 2, listed=True, within=True)

    async def relieve(self, run: Run, tokens: int) -> None:
        """Make the prompt smaller from now on, because the model rejected one of so many tokens.

        Results of this turn are truncated further, permanently. Raises StorageError.
        """
        run.pressure += 1
        run.most = tokens // 2
        model, results = run.model, dict[str, Resulted]()
        most = self._token_budget.result(model) >> 2 * run.pressure
        for line in run.journal.own():
            if isinstance(line, Resulted) and line.task is None and not line.late:
                results[line.id] = line
        cut = []
        for line in results.values():
            keep = history.kept_characters(line.content, most, model.tokens)
            if keep is not None and (line.shown is None or keep < line.shown):
                cut.append(msgspec.structs.replace(line, shown=keep))
        await run.journal.add(cut)

    async def _shorten(self, run: Run, keep: int, *, listed: bool, within: bool = False) -> None:
        """Summarise the oldest part, so that at most `keep` tokens are left if possible.

        With `listed`, messages are replaced by their beginnings if the model makes no summary. With
        `within`, unfinished turns are summarised, too; those that wait for a task or a time read
        their lines again when they continue.
        """
        journal, count = run.journal, run.model.tokens
        tokens = [tokens_of(line, count) for line in journal.lines]
        spared, own = (set[str](), journal.ids) if within else ({*run.ask.held, *journal.ids}, ())
        at = overflow.cut(journal.lines, tokens, keep, spared, own)
        if not at:
            return
        old: list[Line] = journal.lines[:at]
        if journal.summary is not None:
            old = [journal.summary, *journal.summary.requests, *old]
        content = await self._summed_up(run, old)
        if not content:
            if not listed:
                return
            content = overflow.listed(old, overflow.SUMMARY_TOKENS, count)
        said = [overflow.NOT_READ] if journal.left_out else []
        said += [content, overflow.done(_calls_before(run, at))]
        requests = [one for one in old if _is_request(one, journal.ids)]
        context, notes = _notes(run, [*requests, *journal.lines[at:]])
        summary = Summary(
            content="\n".join(filter(None, said)),
            kept=len(journal.lines) - at,
            taints=history.in_order(history.taints_of(old)),
            requests=tuple([one for one in requests if isinstance(one, Said)]),
            context=context,
            notes=notes,
        )
        await journal.add([summary])

    async def _summed_up(self, run: Run, old: Sequence[Line]) -> str:
        """Return the model's summary of these lines; empty if it makes none."""
        model = run.model
        within = any(_is_request(line, run.journal.ids) for line in old)
        most = min(overflow.SUMMARISED_TOKENS, model.context_tokens // 2)
        text = history.truncated(overflow.told(old), most, model.tokens)
        asked = ModelRequest(
            messages=(
                text_message("system", overflow.SUMMARISE_WORK if within else overflow.SUMMARISE),
                text_message("user", run.fence.around(text, "an earlier conversation")),
            ),
            max_tokens=min(overflow.SUMMARY_TOKENS, self._token_budget.answer(model)),
        )
        tokens_in = sum(history.tokens_of(one, model.tokens) for one in asked.messages)
        try:
            completion = await self._model_calls.ask(
                model, asked, tokens_in, run.spender, NoInterrupts()
            )
        except (ModelError, BudgetExceededError) as error:
            _log.warning("a conversation cannot be summed up", turn=run.ask.id, reason=str(error))
            return ""
        return "" if completion is None else run.fence.out_of(completion.text).strip()


def _calls_before(run: Run, at: int) -> list[Called]:
    """The calls of this turn before a line of its journal."""
    kept = {line.id for line in run.journal.lines[at:] if isinstance(line, Called)}
    return [call for calls in run.journal.rounds() for call in calls if call.id not in kept]


def _is_request(line: Line, turns: Collection[str]) -> bool:
    return isinstance(line, Said) and line.role == "user" and line.turn in turns


def _notes(run: Run, kept: Sequence[Line]) -> tuple[str, str]:
    """The notes on the person for a summary, and their digest, unless later lines show them."""
    digest = prompt.notes_digest(run.ask.profile)
    if any(isinstance(line, Said) and line.notes for line in kept):
        return "", ""
    if digest == prompt.NO_NOTES:
        return "", digest
    return prompt.notes(run.ask.profile, run.fence), digest
