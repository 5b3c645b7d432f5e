"""Writes audit events of tasks: how they ended, and what people were asked and decided."""

from collections.abc import Iterable

from msgspec import DecodeError

from component.audit.protocol import AuditEvent, Recorder
from component.tasks.inputs import Judgement
from component.tasks.protocol import CallerContext
from component.tasks.request import request_of
from component.tasks.rows import Change, Row
from component.tasks.states import TERMINAL
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.task import Failure
from xep.jid import JID

_EXPIRED = "confirmation-expired"


def record_changes(recorder: Recorder, changes: Iterable[Change]) -> None:
    """Write the audit events of changes that this instance has just committed."""
    for made in changes:
        row, detail = made.row, made.detail
        if isinstance(detail, Confirm):
            caller_context = _caller_context(row)
            recorder.record(
                AuditEvent(
                    kind="confirmation",
                    outcome="asked",
                    principal=row.principal,
                    agent=caller_context.agent,
                    subject=row.skill,
                    task=row.id,
                    trace=caller_context.trace or detail.id or "",
                    detail=f"question {detail.id}",
                )
            )
        if row.state not in TERMINAL or not row.visible:
            continue  # an invisible task is covered by the audit event of the request
        why, caller_context = "", _caller_context(row)
        if isinstance(detail, Failure):
            why = ", ".join(one.xml.local for one in detail.conditions)
        if why == _EXPIRED:
            recorder.record(
                AuditEvent(
                    kind="confirmation",
                    outcome="expired",
                    principal=row.principal,
                    agent=caller_context.agent,
                    subject=row.skill,
                    task=row.id,
                    trace=caller_context.trace,
                )
            )
        recorder.record(
            AuditEvent(
                kind="execute",
                outcome=row.state,
                principal=row.principal,
                agent=caller_context.agent,
                subject=row.skill,
                task=row.id,
                trace=caller_context.trace,
                detail=why,
            )
        )


def record_decision(recorder: Recorder, who: JID, decision: Decision, judged: Judgement) -> None:
    """Write the audit event of a decision, or why it does not count.

    A decision that repeats an earlier one is not recorded again.
    """
    made, error = judged.change, judged.error
    if error is not None or judged.uncertain:
        why = "may be meant for another question"
        if error is not None:
            why = error.application[0].xml.local if error.application else error.condition
        recorder.record(
            AuditEvent(
                kind="confirmation",
                outcome="refused",
                principal=str(who.bare),
                trace=decision.id,
                detail=why,
            )
        )
    elif made is not None:
        caller_context = _caller_context(made.row)
        recorder.record(
            AuditEvent(
                kind="confirmation",
                outcome="approved" if decision.value == "approve" else "denied",
                principal=str(who.bare),
                agent=caller_context.agent,
                trace=caller_context.trace or decision.id,
                subject=made.row.skill,
                task=made.row.id,
                detail=f"question {decision.id}",
            )
        )


def _caller_context(row: Row) -> CallerContext:
    try:
        return request_of(row).caller_context
    except DecodeError:  # a request that cannot be decoded is reported when the task is run
        return CallerContext("")
