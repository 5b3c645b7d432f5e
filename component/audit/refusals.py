"""Refusals of strangers, of whom there may be a flood: the first one, and then how many."""

from collections.abc import Callable
from time import monotonic
from typing import Final

import anyio

from component.audit.protocol import Event, Recorder

_WINDOW_S: Final = 60.0
_MOST: Final = 1000
"""Principals that are told apart at a time; the others are counted together."""


class Refusals:
    """Records who was refused altogether, once a minute for each and what for.

    What follows in the same minute is counted, and recorded when it is over. A thousand are told
    apart; of more only the number is recorded.

    Args:
        recorder: the record.
        clock: seconds that only go forward.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = monotonic) -> None:
        self._recorder = recorder
        self._clock = clock
        self._counts: dict[tuple[str, str], int] = {}
        self._others = 0
        self._until = 0.0
        self._begun = anyio.Event()

    def refused(self, principal: str, why: str, subject: str = "") -> None:
        """Somebody was refused for a reason, which is one of few; `subject` is what for."""
        if self._clock() >= self._until:
            self.tell()
            self._until = self._clock() + _WINDOW_S
            self._begun.set()
        key = (principal, why)
        known = self._counts.get(key)
        if known is not None:
            self._counts[key] = known + 1
        elif len(self._counts) < _MOST:
            self._counts[key] = 0
            self._recorder.record(
                Event(
                    kind="policy",
                    outcome="refused",
                    principal=principal,
                    subject=subject,
                    detail=why,
                )
            )
        else:
            self._others += 1

    def tell(self) -> None:
        """Record what was only counted."""
        counts, self._counts = self._counts, {}
        others, self._others = self._others, 0
        for (principal, why), count in counts.items():
            if count:
                detail = f"{why}; {count} more within a minute"
                self._recorder.record(
                    Event(kind="policy", outcome="refused", principal=principal, detail=detail)
                )
        if others:
            detail = f"{others} more within a minute, of others than the {_MOST} that are named"
            self._recorder.record(Event(kind="policy", outcome="refused", detail=detail))

    async def run(self) -> None:
        """Record counts when their minute is over, until cancelled."""
        try:
            while True:
                await self._begun.wait()
                self._begun = anyio.Event()
                await anyio.sleep(max(0.0, self._until - self._clock()))
                self.tell()
                self._until = 0.0
        finally:
            self.tell()
