"""Rate-limited recording of refusals: the first one, then the number of the others."""

from collections.abc import Callable
from typing import Final

import anyio

from component.audit.protocol import AuditEvent, Recorder
from component.system import monotonic

_WINDOW_S: Final = 60.0
_MOST: Final = 1000
"""Maximum number of principals counted separately; the others are counted together."""


class Refusals:
    """Records refusals, once a minute for each principal and reason.

    Further refusals in the same minute are counted, and their number is recorded at its end. Up to
    a thousand pairs are counted separately, all others together.

    Args:
        recorder: the audit log.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = monotonic) -> None:
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
        elif len(self._counts) < _MOST:
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
            detail = f"{others} more within a minute, of principals other than the {_MOST} recorded"
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
