"""The timeouts of one answer: until the first token, between two tokens, and in all."""

import anyio

_COARSE_S = 0.05
"""Deadlines are moved when they change by at least this share of a timeout: there may be thousands
of events in a second."""


class Patience:
    """Cancels `scope` when an answer takes too long.

    Reasoning that keeps arriving extends the wait for the first token; silence does not.

    Args:
        first_s: seconds until the first token of the text or of a tool call.
        between_s: seconds between two tokens.
        total_s: seconds for the whole answer.
    """

    def __init__(self, first_s: float, between_s: float, total_s: float) -> None:
        self.scope = anyio.CancelScope()
        self._between_s = between_s
        now = anyio.current_time()
        self._first = now + first_s
        self._last = now + total_s
        self._visible = False
        self._set(self._first)

    def heard(self, *, visible: bool) -> None:
        """Note that a token has arrived; `visible` says whether a text or a call has begun."""
        self._visible = visible
        deadline = anyio.current_time() + self._between_s
        if not visible:
            deadline = max(self._first, deadline)
        if abs(deadline - self.scope.deadline) > _COARSE_S * self._between_s:
            self._set(deadline)

    def _set(self, deadline: float) -> None:
        self.scope.deadline = min(deadline, self._last)

    @property
    def exceeded(self) -> str:
        """The setting whose timeout is the next one to pass, or has passed."""
        if self.scope.deadline >= self._last:
            return "timeout_s"
        return "token_timeout_s" if self._visible else "first_token_timeout_s"
