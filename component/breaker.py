"""A circuit breaker stops calling a service for some time after several failures in a row.

closed → open: `failures` in a row, or the service said when to retry
open → half-open: the time has passed; one call is permitted
half-open → closed: the call succeeded
half-open → open: the call failed
"""

from typing import Final, Literal, TypeAlias

State: TypeAlias = Literal["closed", "open", "half-open"]

_LONGEST_S: Final = 300.0
"""A service may ask for longer, and be wrong: after this, one call tries again."""
_PROBE_S: Final = 1.0


class Breaker:
    """The states, without a clock: `now` is a monotonic time in seconds.

    Args:
        failures: number of failures in a row that open it.
        pause_s: seconds for which it then stays open.
    """

    def __init__(self, failures: int, pause_s: float) -> None:
        self._most = failures
        self._pause_s = pause_s
        self.state: State = "closed"
        self._failed, self._until, self._probing = 0, 0.0, False

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
        """Note that the service has answered, also with a refusal."""
        self.state = "closed"
        self._failed, self._until, self._probing = 0, 0.0, False

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """Note that the service was unavailable; it is not asked for `retry_after_s` seconds."""
        self._failed += 1
        pause = 0.0 if retry_after_s is None else min(retry_after_s, _LONGEST_S)
        if self.state != "closed" or self._failed >= self._most:
            pause = max(pause, self._pause_s)
        self._probing = False
        if pause > 0:
            self.state = "open"
            self._until = max(self._until, now + pause)

    def abandoned(self) -> None:
        """Note that the call was cancelled, so another one may test the service."""
        self._probing = False
