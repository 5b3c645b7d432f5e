"""Times in which the database cannot be used: one place that logs them, and knows the present one.

Work that is retried would log the same reason every few seconds, each feature with words of its
own. While an outage is logged here, `log_failure` writes these lines at level debug.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from component import system
from component.store.errors import ConflictError, DiskFullError, StorageError

_log = structlog.get_logger("component.store")

_EVERY_S: Final = 60.0
"""Seconds between two lines about one outage."""


class Outage(msgspec.Struct, frozen=True):
    """Something that cannot be used: the beginning in UTC, and the last reason."""

    since: datetime
    reason: str


class Outages:
    """Learns how each operation on a database has ended.

    Args:
        has_room: whether there is space on the disk. While there is none, the outage of a full disk
            lasts, although a small write may succeed now and then.

    Attributes:
        present: the present outage; None while the database can be used.
    """

    def __init__(
        self,
        clock: Callable[[], float] = system.monotonic,
        now: Callable[[], datetime] = system.now,
        *,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._has_room = has_room
        self._is_full = False
        self.present: Outage | None = None
        self._failing: set[str] = set()
        self._clock = clock
        self._now = now
        self._next_line = 0.0
        self._began = 0.0
        self._logged = False

    def failed(self, what: str, error: Exception) -> None:
        """Operations of a kind, such as reads or writes, fail."""
        if isinstance(error, ConflictError):
            return
        clock = self._clock()
        since = self._now() if self.present is None else self.present.since
        if self.present is None:
            self._began, self._logged = clock, False
        self.present = Outage(since, str(error))
        self._failing.add(what)
        self._is_full = isinstance(error, DiskFullError)
        if isinstance(error, StorageError):
            error.is_logged = True
        if clock >= self._next_line:
            self._next_line, self._logged = clock + _EVERY_S, True
            _log.warning(
                "the database cannot be used", reason=str(error), seconds=int(clock - self._began)
            )

    def succeeded(self, what: str) -> None:
        """An operation of a kind has succeeded."""
        if what not in self._failing or (self._is_full and not self._has_room()):
            return
        self._failing.discard(what)
        if self._failing:
            return
        self.present = None
        if self._logged:
            seconds = int(self._clock() - self._began)
            _log.info("the database can be used again", seconds=seconds)


def log_failure(
    log: structlog.typing.FilteringBoundLogger, event: str, error: Exception, **values: Any
) -> None:
    """Log a warning about work that failed, and that is retried or done without; at level debug if
    an outage of the database is the reason, which is logged already.
    """
    write = log.debug if getattr(error, "is_logged", False) else log.warning
    write(event, reason=str(error), **values)
