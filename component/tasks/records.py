"""The audit events and metrics of requests to run skills, and of the tasks that they become.

Every short request passes through `ran`, so its constant parts are built once.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import DecodeError
from msgspec.structs import replace

from component.audit.protocol import AuditEvent, EventKind, NoRecord, Recorder
from component.audit.quota import Refusals
from component.metrics.counters import BOUNDS_S, Counters
from component.tasks.changes import Change
from component.tasks.questions import Judgement
from component.tasks.request import THE_CALLER, CallerContext, Request
from component.tasks.rows import TERMINAL, Row, request_of
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.task import Failure
from xep.jid import JID

_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 512
_SHORTEST_S: Final = BOUNDS_S[0]
_LONGEST_NAME: Final = 64
"""Characters of a skill's name that are recorded if the skill does not exist."""
_EXPIRED: Final = "confirmation-expired"

_Key: TypeAlias = tuple[JID, str, str]
_Known: TypeAlias = tuple[AuditEvent, list[int], list[float]]


class TaskRecords:
    """Writes audit events, and counts requests. Its methods neither wait nor raise.

    The outcomes of requests of models are not recorded here: their caller records them.

    Args:
        recorder: the audit log; None discards its events.
        refusals: records refusals, of which there may be a flood; None discards them.
        counters: the metrics.
    """

    def __init__(
        self,
        recorder: Recorder | None = None,
        refusals: Refusals | None = None,
        counters: Counters | None = None,
    ) -> None:
        counters = counters or Counters()
        self._record = (recorder or NoRecord()).record
        self._refusals = refusals
        self._executes = counters.executes
        self._refused = counters.refusals.add
        self._known: dict[_Key, _Known] = {}
        """The audit event and the counter of requests that are alike, by principal, skill and
        outcome.
        """

    # Requests.

    def ran(self, principal: JID, skill: str, outcome: str, seconds: float) -> None:
        """Record that a skill ran and ended at once: it succeeded or failed."""
        key = principal, skill, outcome
        event, counts, total = self._known.get(key) or self._remember(key)
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
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = known
        return known

    def answered(
        self, request: Request, outcome: str, seconds: float, task: str = "", detail: str = ""
    ) -> None:
        """Record that a request was accepted as a task, ended within its time, or was refused."""
        self._executes.add(seconds, request.skill, outcome)
        self._record(
            AuditEvent(
                kind="execute",
                outcome=outcome,
                principal=str(request.principal),
                subject=request.skill,
                task=task,
                detail=detail,
            )
        )

    def refused(self, request: Request, why: str) -> None:
        """Record that a request was refused by a rule; `why` is one of a few fixed texts."""
        self._refused(why)
        if self._refusals is not None:
            self._refusals.refused(str(request.principal), why, request.skill[:_LONGEST_NAME])

    # Tasks.

    def changed(self, changes: Iterable[Change]) -> None:
        """Record changes that this instance has just committed."""
        for made in changes:
            row, detail = made.row, made.detail
            if isinstance(detail, Confirm):
                about = f"question {detail.id}"
                self._record(_event_of(row, "confirmation", "asked", about, detail.id or ""))
            if row.state not in TERMINAL or not row.promoted:
                continue  # an invisible task is covered by the audit event of the request
            why = ""
            if isinstance(detail, Failure):
                why = ", ".join(one.xml.local for one in detail.conditions)
            if why == _EXPIRED:
                self._record(_event_of(row, "confirmation", "expired"))
            self._record(_event_of(row, "execute", row.state, why))

    def decided(self, who: JID, decision: Decision, judged: Judgement) -> None:
        """Record a decision, or why it does not count.

        A decision that repeats an earlier one is not recorded again.
        """
        made, error = judged.change, judged.error
        if error is not None or judged.uncertain:
            why = "may be meant for another question"
            if error is not None:
                why = error.application[0].xml.local if error.application else error.condition
            self._record(
                AuditEvent(
                    kind="confirmation",
                    outcome="refused",
                    principal=str(who.bare),
                    trace=decision.id,
                    detail=why,
                )
            )
        elif made is not None:
            outcome = "approved" if decision.value == "approve" else "denied"
            about = f"question {decision.id}"
            event = _event_of(made.row, "confirmation", outcome, about, decision.id)
            self._record(replace(event, principal=str(who.bare)))


def _event_of(
    row: Row, kind: EventKind, outcome: str, detail: str = "", trace: str = ""
) -> AuditEvent:
    """Return the audit event of a task; `trace` is used for a task that is part of no turn."""
    context = _caller_context(row)
    return AuditEvent(
        kind=kind,
        outcome=outcome,
        principal=row.principal,
        agent=context.agent,
        trace=context.trace or trace,
        subject=row.skill,
        task=row.id,
        detail=detail,
    )


def _caller_context(row: Row) -> CallerContext:
    try:
        return request_of(row).caller_context
    except DecodeError:  # a request that cannot be decoded is reported when the task is run
        return THE_CALLER
