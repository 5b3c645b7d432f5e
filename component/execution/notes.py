"""The audit events and metrics of requests to execute a skill.

Every short request passes through this code, so its constant parts are built once.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from cachebox import LRUCache

from component.audit.protocol import AuditEvent, Recorder
from component.audit.quota import Refusals
from component.metrics.counters import BOUNDS_S, Counters
from xep.jid import JID

_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 512
_SHORTEST_S: Final = BOUNDS_S[0]
_LONGEST_NAME: Final = 64
"""Characters of a skill's name that are recorded if the skill does not exist."""


class Notes(Protocol):
    """Records the outcomes of requests. Its methods neither wait nor raise."""

    def ran(self, principal: JID, skill: str, outcome: str, seconds: float) -> None:
        """Record that a skill ran and ended at once: it succeeded or failed."""

    def went_on(
        self, principal: JID, skill: str, outcome: str, seconds: float, task: str, detail: str
    ) -> None:
        """Record that a request was accepted as a task, ended within its time, or was refused."""

    def refused(self, principal: JID, skill: str, why: str) -> None:
        """Record that a request was refused by a rule; `why` is one of a few fixed texts."""


class NoNotes:
    """Discards everything."""

    def ran(self, principal: JID, skill: str, outcome: str, seconds: float) -> None:
        """Do nothing."""

    def went_on(
        self, principal: JID, skill: str, outcome: str, seconds: float, task: str, detail: str
    ) -> None:
        """Do nothing."""

    def refused(self, principal: JID, skill: str, why: str) -> None:
        """Do nothing."""


_Key: TypeAlias = tuple[JID, str, str]
_Known: TypeAlias = tuple[AuditEvent, list[int], list[float]]


class RecordedNotes:
    """Writes audit events, and counts requests.

    Args:
        recorder: the audit log.
        refusals: records refusals, of which there may be a flood.
        counters: the metrics.
    """

    def __init__(self, recorder: Recorder, refusals: Refusals, counters: Counters) -> None:
        self._record = recorder.record
        self._refusals = refusals
        self._executes = counters.executes
        self._refused = counters.refusals.add
        self._known: LRUCache[_Key, _Known] = LRUCache(_REMEMBERED)
        """The audit event and the counter of requests that are alike, by principal, skill and
        outcome.
        """
        # The library's types do not say that `get` returns None for a missing key.
        self._find: Callable[[_Key], _Known | None] = self._known.get

    def ran(self, principal: JID, skill: str, outcome: str, seconds: float) -> None:
        """See `Notes`."""
        key = principal, skill, outcome
        event, counts, total = self._find(key) or self._remember(key)
        counts[0 if seconds <= _SHORTEST_S else bisect_left(BOUNDS_S, seconds)] += 1
        total[0] += seconds
        record = self._record
        record(event)

    def _remember(self, key: _Key) -> _Known:
        principal, skill, outcome = key
        text = str(principal)
        event = AuditEvent(kind="execute", outcome=outcome, principal=text, subject=skill)
        known = (event, *self._executes.cell((skill, outcome)))
        if len(text) + len(skill) <= _LONGEST_REMEMBERED:
            self._known[key] = known
        return known

    def went_on(
        self, principal: JID, skill: str, outcome: str, seconds: float, task: str, detail: str
    ) -> None:
        """See `Notes`."""
        self._executes.add(seconds, skill, outcome)
        self._record(
            AuditEvent(
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
