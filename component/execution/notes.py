"""What is recorded and counted of each request to execute a skill.

This is on the road of every short request, so what is always the same is made once.
"""

from bisect import bisect_left
from typing import Final, Protocol

from component.audit.protocol import Event, Recorder
from component.audit.refusals import Refusals
from component.metrics.counters import BOUNDS_S, Counters, Durations
from xep.jid import JID

_REMEMBERED: Final = 4096
_SHORTEST_S: Final = BOUNDS_S[0]
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


class _Known(dict[tuple[JID, str, str], tuple[Event, list[int], list[float]]]):
    """By principal, skill and outcome the event of requests that differ in nothing, and where they
    are counted.
    """

    def __init__(self, executes: Durations) -> None:
        self._executes = executes

    def __missing__(self, key: tuple[JID, str, str]) -> tuple[Event, list[int], list[float]]:
        if len(self) >= _REMEMBERED:
            self.clear()
        principal, skill, outcome = key
        event = Event(kind="execute", outcome=outcome, principal=str(principal), subject=skill)
        self[key] = known = (event, *self._executes.cell((skill, outcome)))
        return known


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
        self._executes = counters.executes
        self._refused = counters.refusals.add
        self._known = _Known(counters.executes)

    def ran(self, principal: JID, skill: str, outcome: str, seconds: float) -> None:
        """See `Notes`."""
        event, counts, total = self._known[principal, skill, outcome]
        counts[0 if seconds <= _SHORTEST_S else bisect_left(BOUNDS_S, seconds)] += 1
        total[0] += seconds
        record = self._record
        record(event)

    def went_on(
        self, principal: JID, skill: str, outcome: str, seconds: float, task: str, detail: str
    ) -> None:
        """See `Notes`."""
        self._executes.add(seconds, skill, outcome)
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
