"""Calls models: charges a budget, records and measures the call, and cancels it on interrupts."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import anyio
import structlog

from component.agent.observer import Observer
from component.agent.requests import TurnRequest
from component.audit.protocol import AuditEvent, Recorder
from component.budget.protocol import Amount, BudgetExceededError, Budgets, Spender
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
from component.system import monotonic

_log = structlog.get_logger("component.agent")

_NOTHING: Final = Amount()


class InterruptSource(Protocol):
    """Reports messages that arrive while a turn is running."""

    def interruptible(self) -> AbstractContextManager[anyio.CancelScope]:
        """A scope for a call of the model; it is cancelled when a message arrives."""

    def more(self) -> bool:
        """Whether there are messages that can join this turn."""

    async def take(self) -> Sequence[TurnRequest]:
        """Add these messages to the turn, which then answers them. Raises StorageError."""


class NoInterrupts:
    """An interrupt source without interrupts, such as for the turn of a sub-agent."""

    def interruptible(self) -> AbstractContextManager[anyio.CancelScope]:
        """A scope that is never cancelled."""
        return anyio.CancelScope()

    def more(self) -> bool:
        """Return False."""
        return False

    async def take(self) -> Sequence[TurnRequest]:
        """Return no messages."""
        return ()


class ModelCalls:
    """Calls models, and charges the budgets of the spender."""

    def __init__(self, budgets: Budgets, record: Recorder, observer: Observer) -> None:
        self._budgets = budgets
        self._record = record
        self._observer = observer

    async def ask(
        self,
        model: Model,
        request: ModelRequest,
        tokens_in: int,
        spender: Spender,
        interrupts: InterruptSource,
    ) -> Completion | None:
        """Ask a model. Returns None if a message arrived and the call was cancelled.

        `tokens_in` is an estimate for the question. The cost of a call that broke off is estimated.
        Raises BudgetExceededError, StorageError, and all errors of `Model.complete`.
        """
        price_in, price_out = model.usd_per_token_in, model.usd_per_token_out

        def amount(tokens_out: int) -> Amount:
            return Amount(tokens_in + tokens_out, tokens_in * price_in + tokens_out * price_out)

        try:
            reservation = await self._budgets.acquire(spender, amount(request.max_tokens))
        except BudgetExceededError:
            self._tell(model.name, "stopped", spender)
            raise
        pieces: list[str] = []
        broken_off: list[Amount] = []

        def on_text(piece: str | Void) -> None:
            if isinstance(piece, str):
                pieces.append(piece)
                return
            if piece is Void.BROKEN_OFF:  # it is charged, and so is the next one
                broken_off.append(amount(model.tokens("".join(pieces))))
                pieces.clear()

        completion: Completion | None = None
        outcome, began, spent = "dropped", monotonic(), None
        try:
            with (
                self._observer.span("chat", model=model.name) as span,
                interrupts.interruptible() as scope,
            ):
                if scope.cancel_called:
                    spent = _NOTHING  # a message arrived before the model was asked
                    return None
                completion = await model.complete(request, on_text)
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
            begun = pieces or isinstance(error, UnusableAnswerError)
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
                )
            elif spent is None:
                spent = amount(model.tokens("".join(pieces)) if pieces else 0)
            name = model.name if completion is None else completion.model or model.name
            try:
                self._budgets.settle(reservation, _sum((spent, *broken_off)))
                self._observer.model_call(name, outcome, monotonic() - began, usage)
                self._tell(name, outcome, spender, _described(usage))
            except Exception:  # noqa: BLE001 - a fault in accounting must not lose an answer
                _log.exception("the cost of a call of a model is not recorded", model=name)
        return completion

    def _tell(self, model: str, outcome: str, spender: Spender, detail: str = "") -> None:
        self._record.record(
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


def _sum(amounts: Sequence[Amount]) -> Amount:
    return Amount(
        sum(one.tokens for one in amounts),
        sum(one.usd for one in amounts),
        sum(one.cached for one in amounts),
        sum(one.reasoning for one in amounts),
    )


def _described(usage: Usage) -> str:
    """The usage of a call for the audit log; empty if there is none."""
    if usage == Usage():
        return ""
    asked, said = f"{usage.tokens_in:,} tokens in", f"{usage.tokens_out:,} out"
    if usage.cache_read or usage.cache_write:
        asked += f" ({usage.cache_read:,} cache read, {usage.cache_write:,} cache write)"
    if usage.reasoning:
        said += f" ({usage.reasoning:,} reasoning)"
    return f"{asked}, {said}, {usage.cost_usd:.6f} USD"
