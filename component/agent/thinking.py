"""One call of a model: paid for, recorded, measured, and dropped when it is not wanted any more."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import Final, Protocol

import anyio
import structlog

from component.agent.observer import Observer
from component.agent.protocol import Incoming
from component.audit.protocol import Event, Recorder
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
)

_log = structlog.get_logger("component.agent")

_NOTHING: Final = Amount()


class Attention(Protocol):
    """How a turn hears that more has been said while it is under way."""

    def thinking(self) -> AbstractContextManager[anyio.CancelScope]:
        """A scope for a call of the model; it is cancelled when more has been said."""

    def more(self) -> bool:
        """Whether there are messages that this turn can answer too."""

    async def take(self) -> Sequence[Incoming]:
        """Take them: they are answered by this turn from now on. Raises StorageError."""


class Undivided:
    """Nobody says more: the turn of a sub-agent."""

    def thinking(self) -> AbstractContextManager[anyio.CancelScope]:
        """A scope that nobody cancels."""
        return anyio.CancelScope()

    def more(self) -> bool:
        """There is nothing."""
        return False

    async def take(self) -> Sequence[Incoming]:
        """There is nothing."""
        return ()


class Thinking:
    """Calls models, on somebody's account."""

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
        attention: Attention,
    ) -> Completion | None:
        """Ask a model. None if more has been said meanwhile and the call was dropped.

        `tokens_in` is an estimate of the question. What a call has cost that broke off is
        estimated. Raises BudgetExceededError, and what `Model.complete` raises.
        """
        price_in, price_out = model.usd_per_token_in, model.usd_per_token_out

        def amount(tokens_out: int) -> Amount:
            return Amount(tokens_in + tokens_out, tokens_in * price_in + tokens_out * price_out)

        try:
            reservation = self._budgets.reserve(spender, amount(request.max_tokens))
        except BudgetExceededError:
            self._tell(model.name, "stopped", spender)
            raise
        pieces: list[str] = []
        completion: Completion | None = None
        outcome, began, spent = "dropped", monotonic(), None
        try:
            with (
                self._observer.span("chat", model=model.name) as span,
                attention.thinking() as scope,
            ):
                if scope.cancel_called:
                    spent = _NOTHING  # more was said before it was asked
                    return None
                completion = await model.complete(request, pieces.append)
                outcome, usage = "done", completion.usage
                span.tell(
                    answered_by=completion.model or model.name,
                    tokens_in=usage.tokens_in,
                    tokens_out=usage.tokens_out,
                )
        except ContextOverflowError:
            outcome, spent = "overflow", _NOTHING
            raise
        except ModelRefusedError:
            outcome, spent = "refused", _NOTHING
            raise
        except ModelUnavailableError as error:
            outcome = "unavailable"
            # What it had begun to say was paid for, be it of use or not; what it never began was
            # not.
            begun = pieces or isinstance(error, UnusableAnswerError)
            spent = None if begun else _NOTHING
            raise
        except Exception:
            outcome = "broke"
            raise
        finally:
            usage = Usage() if completion is None else completion.usage
            if completion is not None:
                spent = Amount(usage.tokens_in + usage.tokens_out, usage.cost_usd)
            elif spent is None:
                spent = amount(model.tokens("".join(pieces)) if pieces else 0)
            name = model.name if completion is None else completion.model or model.name
            try:
                self._budgets.settle(reservation, spent)
                self._observer.model_call(name, outcome, monotonic() - began, usage)
                self._tell(name, outcome, spender)
            except Exception:  # noqa: BLE001 - an answer is not lost for a fault in accounting
                _log.exception("a call of a model is not accounted for", model=name)
        return completion

    def _tell(self, model: str, outcome: str, spender: Spender) -> None:
        self._record.record(
            Event(
                kind="model",
                outcome=outcome,
                principal=str(spender.principal),
                agent=spender.agents[0],
                trace=spender.task,
                subject=model,
            )
        )
