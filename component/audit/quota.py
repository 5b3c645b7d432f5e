"""Limits the lines of each principal: beyond a number a minute, events are counted.

Of refusals the first one has a line, and then the number of the others.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import anyio

from component import system
from component.audit.protocol import AuditEvent, EventKind, Recorder

_WINDOW_S: Final = 60.0
_MOST_REFUSALS: Final = 1000
"""Maximum number of principals counted separately; the others are counted together."""
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
        count = self.counts.get(key, 0)
        if not count and len(self.counts) >= _MOST_SUBJECTS:
            key = (event.kind, event.outcome, "")
            count = self.counts.get(key, 0)
        self.counts[key] = count + 1


class Quota:
    """Decides which events have a line of their own.

    In each minute, a principal has `lines` of them. Its further events are counted by kind, outcome
    and subject, and `summaries` has one event for each.

    Args:
        lines: per minute; 0 for no limit.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, lines: int, clock: Callable[[], float] = system.monotonic) -> None:
        self._lines = lines
        self._clock = clock
        self._principals: dict[str, _Principal] = {}
        self._until = 0.0
        self._counted = False
        self._begun = anyio.Event()

    async def minute(self) -> None:
        """Wait until a minute is over in which there were events."""
        await self._begun.wait()
        await anyio.sleep(max(0.0, self._until - self._clock()))

    def admits(self, event: AuditEvent) -> bool:
        """Return whether the event has a line of its own; otherwise it is counted."""
        is_limited = event.kind in _LIMITED or (event.kind, event.outcome) in _LIMITED_OUTCOMES
        if not self._lines or not event.principal or not is_limited:
            return True
        if not self._principals:
            self._until = self._clock() + _WINDOW_S
            self._begun.set()
        found = self._principals.get(event.principal)
        if found is None:
            found = self._principals[event.principal] = _Principal()
        found.lines += 1
        if found.lines <= self._lines:
            return True
        found.count(event)
        self._counted = True
        return False

    def summaries(self) -> list[AuditEvent]:
        """Return the numbers of the events that were counted, and begin a new minute."""
        principals, self._principals = self._principals, {}
        self._begun = anyio.Event()
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


class Refusals:
    """Records refusals, once a minute for each principal and reason.

    Further refusals in the same minute are counted, and their number is recorded at its end. Up to
    a thousand pairs are counted separately, all others together.

    Args:
        recorder: the audit log.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = system.monotonic) -> None:
        self._recorder = recorder
        self._clock = clock
        self._counts: dict[tuple[str, str], int] = {}
        self._others = 0
        self._until = 0.0
        self._begun = anyio.Event()

    def refused(self, principal: str, why: str, subject: str = "") -> None:
        """Record a refusal. `why` is one of a few reasons; `subject` is the thing requested."""
        if self._clock() >= self._until:
            self.record_counts()
            self._until = self._clock() + _WINDOW_S
            self._begun.set()
        key = (principal, why)
        known = self._counts.get(key)
        if known is not None:
            self._counts[key] = known + 1
        elif len(self._counts) < _MOST_REFUSALS:
            self._counts[key] = 0
            self._recorder.record(
                AuditEvent(
                    kind="policy",
                    outcome="refused",
                    principal=principal,
                    subject=subject,
                    detail=why,
                )
            )
        else:
            self._others += 1

    def record_counts(self) -> None:
        """Record the counts."""
        counts, self._counts = self._counts, {}
        others, self._others = self._others, 0
        for (principal, why), count in counts.items():
            if count:
                detail = f"{why}; {count} more within a minute"
                self._recorder.record(
                    AuditEvent(kind="policy", outcome="refused", principal=principal, detail=detail)
                )
        if others:
            detail = (
                f"{others} more within a minute, of principals other than the {_MOST_REFUSALS}"
                " recorded"
            )
            self._recorder.record(AuditEvent(kind="policy", outcome="refused", detail=detail))

    async def run(self) -> None:
        """Record the counts at the end of each minute, until cancelled."""
        try:
            while True:
                await self._begun.wait()
                self._begun = anyio.Event()
                await anyio.sleep(max(0.0, self._until - self._clock()))
                self.record_counts()
                self._until = 0.0
        finally:
            self.record_counts()
