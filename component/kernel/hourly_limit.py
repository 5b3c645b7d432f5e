"""Limits how often something happens in an hour."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

_HOUR_S: Final = 3600.0
_MOST_COUNTED: Final = 10_000


class HourlyLimit:
    """Counts events in the last hour, for each key. A new process starts to count at zero.

    Args:
        most: the maximum of a key.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: dict[str, deque[float]] = {}

    def full(self, key: str, now: float) -> bool:
        """Return whether the maximum is reached."""
        times: Any = self._times.get(key, ())
        while times and times[0] <= now - _HOUR_S:
            times.popleft()
        return len(times) >= self._most

    def count(self, key: str, now: float) -> None:
        """Count an event."""
        if len(self._times) > _MOST_COUNTED:
            self._times = {k: v for k, v in self._times.items() if v and v[-1] > now - _HOUR_S}
        self._times.setdefault(key, deque()).append(now)
