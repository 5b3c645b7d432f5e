"""How long to wait before connecting again."""

from collections.abc import Callable

from component import system


class BackOff:
    """Exponential back-off with full jitter above a minimum.

    Full jitter keeps many components that lost the same server from coming back in step; the
    minimum keeps one from spinning. Pauses are drawn between ``min_s`` and a ceiling that starts
    at twice ``min_s`` and doubles with every pause up to ``max_s``.

    Args:
        min_s: shortest pause, in seconds.
        max_s: longest pause, in seconds.
        draw: a number in [0, 1); the tests bring their own.
    """

    def __init__(
        self, min_s: float, max_s: float, draw: Callable[[], float] = system.random
    ) -> None:
        self._min = min_s
        self._max = max(min_s, max_s)
        self._draw = draw
        self._ceiling = min_s

    def pause(self) -> float:
        """Return the next pause, in seconds."""
        self._ceiling = min(self._ceiling * 2, self._max)
        return self._min + self._draw() * (self._ceiling - self._min)

    def reset(self) -> None:
        """Start with the shortest pauses again."""
        self._ceiling = self._min
