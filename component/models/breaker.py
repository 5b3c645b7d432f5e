"""A circuit breaker: stops calling a model for some time after several failures in a row.

closed → open: `failures` in a row, or the provider said when to retry
open → half-open: the time has passed; one call is permitted
half-open → closed: the call succeeded
half-open → open: the call failed
"""

from collections.abc import Callable
from typing import Literal

import structlog

from component import system
from component.models.protocol import (
    Completion,
    ContextOverflowError,
    Model,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    OnText,
)
from component.models.wrapped import Wrapped

_log = structlog.get_logger("component.models")
_LONGEST_S = 300.0
"""A provider may ask for longer, and be wrong: after this, one call tries again."""
_PROBE_S = 1.0

State = Literal["closed", "open", "half-open"]


class Breaker:
    """The states, without a clock: `now` is a monotonic time in seconds.

    Args:
        failures: number of failures in a row that open it.
        pause_s: seconds for which it then stays open.
    """

    def __init__(self, failures: int, pause_s: float) -> None:
        self.state: State = "closed"
        self._most = failures
        self._pause_s = pause_s
        self._failed = 0
        self._until = 0.0
        self._probing = False

    def enter(self, now: float) -> float | None:
        """Permit a call (None), or return for how many more seconds none is permitted.

        Each permitted call must end with one of the other methods.
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
        """Note that the model has answered, also with a refusal."""
        self.state = "closed"
        self._failed = 0
        self._until = 0.0
        self._probing = False

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """Note that the model was unavailable; it is not asked for `retry_after_s` seconds."""
        self._failed += 1
        pause = 0.0 if retry_after_s is None else min(retry_after_s, _LONGEST_S)
        if self.state != "closed" or self._failed >= self._most:
            pause = max(pause, self._pause_s)
        self._probing = False
        if pause > 0:
            self.state = "open"
            self._until = max(self._until, now + pause)

    def abandoned(self) -> None:
        """Note that the call was cancelled, so another one may test the model."""
        self._probing = False


class Guarded(Wrapped):
    """A model with a breaker. Attributes and methods are those of Model, and `aclose`.

    A refusal does not count as a failure, because the model is available.
    """

    def __init__(
        self,
        model: Model,
        breaker: Breaker,
        clock: Callable[[], float] = system.monotonic,
    ) -> None:
        super().__init__(model)
        self._breaker = breaker
        self._clock = clock

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model; see Model.complete. Raises ModelUnavailableError while the breaker is
        open.
        """
        left = self._breaker.enter(self._clock())
        if left is not None:
            raise ModelUnavailableError(
                f"{self.name} has failed and is not used for {left:.0f} more seconds", left
            )
        try:
            completion = await self._model.complete(request, on_text)
        except ModelUnavailableError as error:
            self._breaker.failed(self._clock(), error.retry_after_s)
            if self._breaker.state == "open":
                _log.warning(
                    "a failing model is not used for a while", model=self.name, reason=str(error)
                )
            raise
        except (ContextOverflowError, ModelRefusedError):
            self._breaker.succeeded()
            raise
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return completion
