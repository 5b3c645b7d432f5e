"""Limits the lines of each principal: beyond a number a minute, events are counted."""

from collections.abc import Callable
from typing import Final, TypeAlias

from component.audit.protocol import AuditEvent, EventKind
from component.system import monotonic

_WINDOW_S: Final = 60.0
_MOST_SUBJECTS: Final = 100
"""Pairs of outcomes and subjects that are counted separately for each principal."""
_LIMITED: Final[frozenset[EventKind]] = frozenset(
    ("execute", "tool-call", "memory", "model", "budget", "taint", "injection")
)
"""What somebody can cause at any rate. Decisions of people and admins always have lines."""
_LIMITED_OUTCOMES: Final[frozenset[tuple[EventKind, str]]] = frozenset(
    (
        *(("capability", "allowed"), ("capability", "refused")),
        *(("agent", "spawned"), ("agent", "ended"), ("agent", "failed"), ("agent", "refused")),
    )
)
"""The same, of kinds that decisions have as well: comparisons before calls, and sub-agents."""

_Key: TypeAlias = tuple[EventKind, str, str]


class _Principal:
    """The events of a principal within the current minute."""

    __slots__ = ("counts", "lines")

    def __init__(self) -> None:
        self.lines = 0
        self.counts: dict[_Key, int] = {}

    def count(self, event: AuditEvent) -> None:
        key: _Key = (event.kind, event.outcome, event.subject)
        if key not in self.counts and len(self.counts) >= _MOST_SUBJECTS:
            key = (event.kind, event.outcome, "")
        self.counts[key] = self.counts.get(key, 0) + 1


class Quota:
    """Decides which events have a line of their own.

    In each minute, a principal has `lines` of them. Its further events are counted by kind, outcome
    and subject, and `summaries` has one event for each.

    Args:
        lines: per minute; 0 for no limit.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, lines: int, clock: Callable[[], float] = monotonic) -> None:
        self._lines = lines
        self._clock = clock
        self._principals: dict[str, _Principal] = {}
        self._until = 0.0
        self._counted = False

    def admits(self, event: AuditEvent) -> bool:
        """Return whether the event has a line of its own; otherwise it is counted."""
        is_limited = event.kind in _LIMITED or (event.kind, event.outcome) in _LIMITED_OUTCOMES
        if not self._lines or not event.principal or not is_limited:
            return True
        if not self._principals:
            self._until = self._clock() + _WINDOW_S
        found = self._principals.get(event.principal)
        if found is None:
            found = self._principals[event.principal] = _Principal()
        found.lines += 1
        if found.lines <= self._lines:
            return True
        found.count(event)
        self._counted = True
        return False

    @property
    def is_due(self) -> bool:
        """Whether the minute is over."""
        return bool(self._principals) and self._clock() >= self._until

    def summaries(self) -> list[AuditEvent]:
        """Return the numbers of the events that were counted, and begin a new minute."""
        principals, self._principals = self._principals, {}
        if not self._counted:
            return []
        self._counted = False
        return [
            AuditEvent(
                kind=kind,
                outcome=outcome,
                principal=principal,
                subject=subject,
                detail=f"{count} more within a minute",
            )
            for principal, found in principals.items()
            for (kind, outcome, subject), count in found.counts.items()
        ]
