"""Bounds how often something happens."""


class Rate:
    """A token bucket that holds one minute's worth."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._tokens = float(per_minute)
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take a token at a time in seconds, which only goes forward. Returns 0, or the seconds
        after which there will be one.
        """
        if self._at is not None:
            passed = max(0.0, now - self._at)
            self._tokens = min(self._per_minute, self._tokens + passed * self._per_minute / 60)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0
        return (1 - self._tokens) * 60 / self._per_minute

    def give_back(self) -> None:
        """Return a token: what it was taken for has not happened."""
        self._tokens = min(self._per_minute, self._tokens + 1)
