"""What of tasks goes into the record: their ends, and what people were asked and decided."""

from collections.abc import Iterable

from msgspec import DecodeError

from component.audit.protocol import Event, Recorder
from component.tasks.judging import Judged
from component.tasks.protocol import Hand
from component.tasks.request import request_of
from component.tasks.rows import Change, Row
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
            hand = _hand(row)
            recorder.record(
                Event(
                    kind="confirmation",
                    outcome="asked",
                    principal=row.principal,
                    agent=hand.agent,
                    subject=row.skill,
                    task=row.id,
                    trace=hand.trace or detail.id or "",
                    detail=f"question {detail.id}",
                )
            )
        if row.state not in TERMINAL or not row.visible:
            continue  # what nobody was told of is the record of the request
        why, hand = "", _hand(row)
        if isinstance(detail, Failure):
            why = ", ".join(one.xml.local for one in detail.conditions)
        if why == _EXPIRED:
            recorder.record(
                Event(
                    kind="confirmation",
                    outcome="expired",
                    principal=row.principal,
                    agent=hand.agent,
                    subject=row.skill,
                    task=row.id,
                    trace=hand.trace,
                )
            )
        recorder.record(
            Event(
                kind="execute",
                outcome=row.state,
                principal=row.principal,
                agent=hand.agent,
                subject=row.skill,
                task=row.id,
                trace=hand.trace,
                detail=why,
            )
        )


def record_decision(recorder: Recorder, who: JID, decision: Decision, judged: Judged) -> None:
    """Record that somebody has decided, or that it does not count and why.

    One that was there before is not recorded again.
    """
    made, error = judged.change, judged.error
    if error is not None or judged.uncertain:
        why = "may be meant for another question"
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
        hand = _hand(made.row)
        recorder.record(
            Event(
                kind="confirmation",
                outcome="approved" if decision.value == "approve" else "denied",
                principal=str(who.bare),
                agent=hand.agent,
                trace=hand.trace or decision.id,
                subject=made.row.skill,
                task=made.row.id,
                detail=f"question {decision.id}",
            )
        )


def _hand(row: Row) -> Hand:
    try:
        return request_of(row).hand
    except DecodeError:  # a request that cannot be read is told of where it is to be run
        return Hand("")
