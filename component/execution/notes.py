"""What is recorded and counted of each request to execute a skill.

This is on the road of every short request, so what is always the same is made once.
"""

from functools import lru_cache
from typing import Final, Protocol

from component.audit.protocol import Event, Recorder
from component.audit.refusals import Refusals
from component.metrics.counters import Counters
from xep.jid import JID

_REMEMBERED: Final = 4096
_LONGEST_NAME: Final = 64
"""Characters of a skill's name that are recorded where no skill has it."""


class Notes(Protocol):
    """Is told what became of requests. Nothing here waits or raises."""

    def ran(self, principal: JID, skill: str, outcome: str, seconds: float) -> None:
        """A skill ran and ended at once: done or failed."""

    def went_on(
        self, principal: JID, skill: str, outcome: str, seconds: float, task: str, detail: str
    ) -> None:
        """A request was accepted as a task, or it ended within its time, or it was refused."""

    def refused(self, principal: JID, skill: str, why: str) -> None:
        """A request was refused by a rule; `why` is one of few."""


class NoNotes:
    """Nobody listens."""

    def ran(self, principal: JID, skill: str, outcome: str, seconds: float) -> None:
        """Nothing is noted."""

    def went_on(
        self, principal: JID, skill: str, outcome: str, seconds: float, task: str, detail: str
    ) -> None:
        """Nothing is noted."""

    def refused(self, principal: JID, skill: str, why: str) -> None:
        """Nothing is noted."""


class RecordedNotes:
    """Writes them into the record, and counts them.

    Args:
        recorder: the record.
        refusals: of whom there may be a flood.
        counters: the figures.
    """

    def __init__(self, recorder: Recorder, refusals: Refusals, counters: Counters) -> None:
        self._record = recorder.record
        self._refusals = refusals
        self._took = counters.executes.add
        self._refused = counters.refusals.add
        self._event = lru_cache(_REMEMBERED)(_event)

    def ran(self, principal: JID, skill: str, outcome: str, seconds: float) -> None:
        """See `Notes`."""
        self._took(seconds, skill, outcome)
        self._record(self._event(principal, skill, outcome))

    def went_on(
        self, principal: JID, skill: str, outcome: str, seconds: float, task: str, detail: str
    ) -> None:
        """See `Notes`."""
        self._took(seconds, skill, outcome)
        self._record(
            Event(
                kind="execute",
                outcome=outcome,
                principal=str(principal),
                subject=skill,
                task=task,
                detail=detail,
            )
        )

    def refused(self, principal: JID, skill: str, why: str) -> None:
        """See `Notes`."""
        self._refused(why)
        self._refusals.refused(str(principal), why, skill[:_LONGEST_NAME])


def _event(principal: JID, skill: str, outcome: str) -> Event:
    return Event(kind="execute", outcome=outcome, principal=str(principal), subject=skill)
