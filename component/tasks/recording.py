"""What of tasks goes into the record: their ends, and what people were asked and decided."""

from collections.abc import Iterable

from component.audit.protocol import Event, Recorder
from component.tasks.judging import Judged
from component.tasks.rows import Change
from component.tasks.states import TERMINAL
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.task import Failure
from xep.jid import JID

_EXPIRED = "confirmation-expired"


def record_changes(recorder: Recorder, changes: Iterable[Change]) -> None:
    """Record of changes what is to be: each has just been committed here."""
    for made in changes:
        row, detail = made.row, made.detail
        if isinstance(detail, Confirm):
            recorder.record(
                Event(
                    kind="confirmation",
                    outcome="asked",
                    principal=row.principal,
                    subject=row.skill,
                    task=row.id,
                    trace=detail.id or "",
                )
            )
        if row.state not in TERMINAL or not row.visible:
            continue  # what nobody was told of is the record of the request
        why = ""
        if isinstance(detail, Failure):
            why = ", ".join(one.xml.local for one in detail.conditions)
        if why == _EXPIRED:
            recorder.record(
                Event(
                    kind="confirmation",
                    outcome="expired",
                    principal=row.principal,
                    subject=row.skill,
                    task=row.id,
                )
            )
        recorder.record(
            Event(
                kind="execute",
                outcome=row.state,
                principal=row.principal,
                subject=row.skill,
                task=row.id,
                detail=why,
            )
        )


def record_decision(recorder: Recorder, who: JID, decision: Decision, judged: Judged) -> None:
    """Record that somebody has decided, or that it does not count and why.

    One that was there before is not recorded again.
    """
    made, error = judged.change, judged.error
    if error is not None:
        why = error.application[0].xml.local if error.application else error.condition
        recorder.record(
            Event(
                kind="confirmation",
                outcome="refused",
                principal=str(who.bare),
                trace=decision.id,
                detail=why,
            )
        )
    elif made is not None:
        recorder.record(
            Event(
                kind="confirmation",
                outcome="approved" if decision.value == "approve" else "denied",
                principal=str(who.bare),
                trace=decision.id,
                subject=made.row.skill,
                task=made.row.id,
            )
        )
