"""Calls models: charges a budget, records and measures the call, and cancels it on interrupts."""

import re
from collections.abc import Awaitable, Callable
from functools import reduce
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from component.agent import history
from component.agent.drafts import Draft
from component.audit.protocol import AuditEvent, Recorder
from component.budget.book import BudgetBook
from component.budget.protocol import Amount, BudgetExceededError, Spender
from component.models.building import only
from component.models.messages import ModelMessage, text_message
from component.models.observer import Observer
from component.models.protocol import (
    Completion,
    ContextOverflowError,
    Model,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    UnusableAnswerError,
    Usage,
    Void,
)
from component.skills.errors import printable
from component.skills.operations import ModelFailed, ModelQuestion
from component.system import monotonic
from xep.jid import JID

if TYPE_CHECKING:
    from component.agent.conversation import Conversation

_log = structlog.get_logger("component.agent")

_NOTHING: Final = Amount()


class _ArrivingText:
    """The text of an answer while it arrives: the cost of a call that breaks off is estimated from
    it, and drafts show it.

    Attributes:
        broken_off: the tokens of answers that broke off, and that another one has followed; they
            are charged, too.
    """

    def __init__(self, model: Model, draft: Draft | None) -> None:
        self.broken_off: list[int] = []
        self._model = model
        self._draft = draft
        self._pieces: list[str] = []

    def take(self, piece: str | Void) -> None:
        """Take a piece, or the news that those so far are void (`OnText`)."""
        if self._draft is not None:
            self._draft.wrote(piece)
        if isinstance(piece, str):
            self._pieces.append(piece)
        elif piece is Void.BROKEN_OFF:
            self.broken_off.append(self._model.tokens("".join(self._pieces)))
            self._pieces.clear()

    @property
    def tokens(self) -> int:
        """The number of tokens so far."""
        return self._model.tokens("".join(self._pieces)) if self._pieces else 0


class ModelCalls:
    """Calls models, and charges the budgets of the spender."""

    def __init__(self, budgets: BudgetBook, recorder: Recorder, observer: Observer) -> None:
        self.recorder = recorder
        self.observer = observer
        self._budgets = budgets

    def ended(self, turn: str) -> None:
        """A turn has ended: forget what it has spent of its own budget."""
        self._budgets.ended(turn)

    async def ask(
        self,
        model: Model,
        request: ModelRequest,
        tokens_in: int,
        spender: Spender,
        interrupts: "Conversation | None" = None,
    ) -> Completion | None:
        """Ask a model. Returns None if the call was cancelled, because a message arrived or was
        corrected.

        `tokens_in` is an estimate for the question. The cost of a call that broke off is estimated.
        Raises BudgetExceededError, StorageError, and all errors of `Model.complete`.
        """
        price_in, price_out = model.usd_per_token_in, model.usd_per_token_out

        def amount(tokens_out: int) -> Amount:
            usd = tokens_in * price_in + tokens_out * price_out
            return Amount(tokens_in + tokens_out, usd, output=tokens_out)

        try:
            reservation = await self._budgets.acquire(spender, amount(request.max_tokens))
        except BudgetExceededError:
            self._tell(model.name, "stopped", spender)
            raise
        text = _ArrivingText(model, None if interrupts is None else interrupts.draft)
        completion: Completion | None = None
        outcome, began, spent = "dropped", monotonic(), None
        try:
            with (
                self.observer.span("chat", model=model.name) as span,
                anyio.CancelScope() if interrupts is None else interrupts.interruptible() as scope,
            ):
                if scope.cancel_called:
                    spent = _NOTHING  # a message arrived before the model was asked
                    return None
                completion = await model.complete(request, text.take)
                outcome, usage = "done", completion.usage
                span.set_attributes(
                    answered_by=completion.model or model.name,
                    tokens_in=usage.tokens_in,
                    tokens_out=usage.tokens_out,
                    cache_read=usage.cache_read,
                    cache_write=usage.cache_write,
                    reasoning=usage.reasoning,
                )
        except ContextOverflowError:
            outcome, spent = "overflow", _NOTHING
            raise
        except ModelRefusedError:
            outcome, spent = "refused", _NOTHING
            raise
        except ModelUnavailableError as error:
            outcome = "unavailable"
            # Providers charge for an answer that has started, even if it cannot be used, and not
            # for one that never started.
            begun = text.tokens or isinstance(error, UnusableAnswerError)
            spent = None if begun else _NOTHING
            raise
        except Exception:
            outcome = "broke"
            raise
        finally:
            usage = Usage() if completion is None else completion.usage
            if completion is not None:
                spent = Amount(
                    usage.tokens_in + usage.tokens_out,
                    usage.cost_usd,
                    usage.cache_read,
                    usage.reasoning,
                    usage.tokens_out,
                )
            elif spent is None:
                spent = amount(text.tokens)
            name = model.name if completion is None else completion.model or model.name
            try:
                self._budgets.settle(
                    reservation, reduce(Amount.plus, map(amount, text.broken_off), spent)
                )
                self.observer.model_call(name, outcome, monotonic() - began, usage)
                self._tell(name, outcome, spender, _described(usage))
            except Exception:  # noqa: BLE001 - a fault in accounting must not lose an answer
                _log.exception("the cost of a call of a model is not recorded", model=name)
        return completion

    def _tell(self, model: str, outcome: str, spender: Spender, detail: str = "") -> None:
        self.recorder.record(
            AuditEvent(
                kind="model",
                outcome=outcome,
                principal=str(spender.principal),
                agent=spender.agents[0],
                trace=spender.task,
                subject=model,
                detail=detail,
            )
        )


def _described(usage: Usage) -> str:
    if usage == Usage():
        return ""
    asked, said = f"{usage.tokens_in:,} tokens in", f"{usage.tokens_out:,} out"
    if usage.cache_read or usage.cache_write:
        asked += f" ({usage.cache_read:,} cache read, {usage.cache_write:,} cache write)"
    if usage.reasoning:
        said += f" ({usage.reasoning:,} reasoning)"
    return f"{asked}, {said}, {usage.cost_usd:.6f} USD"


_INSTRUCTIONS: Final = "Answer with JSON that fits the schema you are given, and with nothing else."
_AGAIN: Final = "That does not fit the schema: {reason}. Answer again, with fitting JSON only."
_ATTEMPTS: Final = 2
_LONGEST_REASON: Final = 300
_MARKED: Final = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)
"""JSON in a block of Markdown, as models without constrained output write it."""


class SkillModel:
    """Asks the models of agents for skills.

    Args:
        model: returns the model that an agent uses for a principal. Raises StorageError.
    """

    def __init__(self, model: Callable[[str, JID], Awaitable[Model]], calls: ModelCalls) -> None:
        self._model = model
        self._calls = calls

    async def ask(self, spender: Spender, question: ModelQuestion) -> str:
        """Ask the model of the topmost agent of the spender, and return an answer that the check
        of the question accepts.

        If the check rejects the answer, the model is asked once more. Raises ModelFailed and
        StorageError.
        """
        model = await self._model(spender.agents[-1].partition("/")[0], spender.principal)
        if question.model:
            wanted = only(model, question.model)
            if wanted is None:
                raise ModelFailed(
                    "refused",
                    f"The skill may ask the model {question.model} only, and the agent uses"
                    f" {model.name}.",
                )
            model = wanted
        messages = [
            text_message("system", _INSTRUCTIONS),
            text_message("user", question.prompt),
        ]
        reason = ""
        for _ in range(_ATTEMPTS):
            text = await self._asked(model, spender, question, messages)
            marked = _MARKED.fullmatch(text)
            answer = marked[1] if marked else text
            try:
                question.check(answer)
            except (ValueError, RecursionError) as error:
                reason = printable(str(error), _LONGEST_REASON)
            else:
                return answer
            messages += [
                text_message("assistant", text or "{}"),
                text_message("user", _AGAIN.format(reason=reason)),
            ]
        raise ModelFailed("invalid", f"The model's answer does not fit the schema: {reason}")

    async def _asked(
        self,
        model: Model,
        spender: Spender,
        question: ModelQuestion,
        messages: list[ModelMessage],
    ) -> str:
        request = ModelRequest(
            messages=tuple(messages),
            max_tokens=min(question.max_tokens, max(1, model.context_tokens // 2)),
            schema=question.schema,
        )
        tokens_in = sum(history.tokens_of(one, model.tokens) for one in messages)
        try:
            completion = await self._calls.ask(model, request, tokens_in, spender)
        except BudgetExceededError as error:
            raise ModelFailed("budget", str(error), later=error.scope != "task") from None
        except ModelUnavailableError as error:
            _log.warning("no model is available for a skill", reason=str(error))
            raise ModelFailed("unavailable", "No language model is available now.") from None
        except ContextOverflowError:
            raise ModelFailed("refused", "The question is too long for the model.") from None
        except ModelRefusedError as error:
            _log.error("the model refuses what a skill asks", reason=str(error))
            raise ModelFailed("refused", "The language model rejects the request.") from None
        return "" if completion is None else completion.text
