"""Rate-limited warnings about stanzas of strangers, so that a flood of them does not
flood the log.
"""

from collections.abc import Callable
from typing import Any, Final

import structlog

from component.system import perf_counter

_EVERY_S: Final = 10.0
_LONGEST: Final = 200
"""Characters of a value that are logged."""


class RareLog:
    """Logs the first warning of a kind at once, then one every ten seconds.

    The field ``unlogged`` of a line says how many warnings were left out since the previous line.

    Args:
        log: the logger.
        clock: returns seconds.
    """

    def __init__(
        self, log: structlog.typing.FilteringBoundLogger, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._log = log
        self._clock = clock
        self._kinds: dict[
            str, tuple[float, int]
        ] = {}  # when the next line is due, and the number of unlogged warnings

    def warning(self, kind: str, **values: Any) -> None:
        """Log a warning. ``kind`` is one of a few fixed sentences; long texts in ``values`` are
        cut.
        """
        now = self._clock()
        due, unlogged = self._kinds.get(kind, (now, 0))
        if now < due:
            self._kinds[kind] = due, unlogged + 1
            return
        self._kinds[kind] = now + _EVERY_S, 0
        cut = {
            key: value[:_LONGEST] + "…"
            if isinstance(value, str) and len(value) > _LONGEST
            else value
            for key, value in values.items()
        }
        if unlogged:
            cut["unlogged"] = unlogged
        self._log.warning(kind, **cut)
