"""Leaves a model alone for a while that has failed several times in a row.

closed → open: `failures` in a row, or the provider said when to come back
open → half-open: the time is over; one call is let through
half-open → closed: it was answered
half-open → open: it failed as well
"""

import time
from collections.abc import Callable
from typing import Literal

import structlog

from component.models.protocol import (
    Completion,
    ContextOverflowError,
    Model,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    OnText,
)

_log = structlog.get_logger("component.models")
_LONGEST_S = 3600.0
_PROBE_S = 1.0

State = Literal["closed", "open", "half-open"]


class Breaker:
    """The states, without a clock: `now` is any time in seconds that only grows.

    Args:
        failures: how many in a row open it.
        pause_s: how long it stays open then.
    """

    def __init__(self, failures: int, pause_s: float) -> None:
        self.state: State = "closed"
        self._most = failures
        self._pause_s = pause_s
        self._failed = 0
        self._until = 0.0
        self._probing = False

    def enter(self, now: float) -> float | None:
        """Let a call through (None), or say for how many more seconds none is.

        Each call that was let through ends with one of the other methods.
        """
        if self.state == "closed":
            return None
        if now < self._until:
            return self._until - now
        if self._probing:
            return _PROBE_S
        self.state = "half-open"
        self._probing = True
        return None

    def succeeded(self) -> None:
        """The model has answered, be it that the question is too long for it."""
        self.state = "closed"
        self._failed = 0
        self._until = 0.0
        self._probing = False

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """The model was not to be had; until `retry_after_s` it is not worth asking."""
        self._failed += 1
        pause = 0.0 if retry_after_s is None else min(retry_after_s, _LONGEST_S)
        if self.state != "closed" or self._failed >= self._most:
            pause = max(pause, self._pause_s)
        self._probing = False
        if pause > 0:
            self.state = "open"
            self._until = max(self._until, now + pause)

    def abandoned(self) -> None:
        """The call was cancelled: nothing is known of the model, and another one may try."""
        self._probing = False


class Guarded:
    """A model with a breaker. Attributes and methods are those of Model, and `aclose`.

    A refusal says nothing about whether the model is up, and is no failure here.
    """

    def __init__(
        self,
        model: Model,
        breaker: Breaker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = model.name
        self.context_tokens = model.context_tokens
        self.usd_per_token_in = model.usd_per_token_in
        self.usd_per_token_out = model.usd_per_token_out
        self._model = model
        self._breaker = breaker
        self._clock = clock

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model; see Model.complete. While it is left alone: ModelUnavailableError."""
        left = self._breaker.enter(self._clock())
        if left is not None:
            raise ModelUnavailableError(
                f"{self.name} has failed and is left alone for {left:.0f} more seconds", left
            )
        try:
            completion = await self._model.complete(request, on_text)
        except ModelUnavailableError as error:
            self._breaker.failed(self._clock(), error.retry_after_s)
            if self._breaker.state == "open":
                _log.warning("a model is left alone", model=self.name, reason=str(error))
            raise
        except (ContextOverflowError, ModelRefusedError):
            self._breaker.succeeded()
            raise
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return completion

    def tokens(self, text: str) -> int:
        """See Model.tokens."""
        return self._model.tokens(text)
