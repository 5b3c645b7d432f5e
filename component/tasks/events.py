"""What others learn of tasks: events for callers, records in the audit log, and metrics.

Events are sent in order. One that must not be lost is sent until it was written to the stream.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

import anyio
import msgspec
import structlog
from msgspec import DecodeError
from msgspec.structs import replace

from component.audit.protocol import AuditEvent, EventKind, NoRecord, Recorder
from component.audit.quota import Refusals
from component.link.messages.delivery import Delivery, nothing_to_send
from component.metrics.counters import BOUNDS_S, Counters
from component.store.database import Database, pairs_of
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.store.storage import Storage
from component.store.told import ToldMessage
from component.store.told import add as add_told
from component.tasks import question_rows, rows
from component.tasks.changes import Change
from component.tasks.protocol import AGENT_WORK, Listener, Notice, Question
from component.tasks.question_rows import question_with
from component.tasks.questions import Judgement
from component.tasks.request import THE_CALLER, Request
from component.tasks.rows import TERMINAL, Detail, Row, request_of
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.execute import Result
from xep.fluux_agent.task import Failure
from xep.jid import JID


def notice_of(change: Change) -> Notice:
    """Return the notice of a committed change, for the listener."""
    row = change.row
    request = rows.request_of(row)
    return Notice(
        task=rows.event_of(row, change.detail),
        request=request,
        thread=request.thread or row.id,
        final=row.state in TERMINAL,
        question=change.question,
    )


_PAGE: Final = 200

_log = structlog.get_logger("component.tasks")

_GATHER_S: Final = 0.1
"""Seconds for which sent events are collected before they are recorded in one write."""
_LAST_WORDS_S: Final = 2.0
"""Seconds that the server has to receive the last messages when this instance stops."""
UNSENT: Final = "unsent_revision"
"""The channel on which an instance without a stream announces that there are unsent events."""

_Revision: TypeAlias = tuple[str, int]


class _Sent(msgspec.Struct, frozen=True):
    notice: Notice | None
    delivery: Delivery
    question: Question | None
    told: ToldMessage | None


class EventSender:
    """Sends the events of tasks, and records on disk which of them were sent.

    A revision that must be sent stays marked in its row until its message has been written. If the
    message was dropped, the next `send_unsent` sends it again.
    """

    def __init__(self, storage: Storage, listener: Listener) -> None:
        self._storage = storage
        self._listener = listener
        self._outgoing: list[Change] = []
        self._work = anyio.Event()
        self._sent: dict[_Revision, _Sent] = {}  # sent, and still marked in its row
        self._any_sent = anyio.Event()
        self._for_others = anyio.Event()
        self._sending = anyio.Lock()

    def send(self, changes: Sequence[Change]) -> None:
        """Send changes soon, after the answer to the request that made them (EVT-008)."""
        if changes:
            self._outgoing += changes
            self._work.set()

    async def run(self) -> None:
        """Send events until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._clear)
            group.start_soon(self._ask_others)
            while True:
                await self._work.wait()
                self._work = anyio.Event()
                # Changes that were committed together are processed in any order: wait until all
                # have arrived.
                for _ in range(2):
                    await anyio.lowlevel.checkpoint()
                self._send_now()

    def _send_now(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        for made in sorted(outgoing, key=lambda one: one.row.revision):
            if not self._send(made) and made.row.unsent_revision == made.row.revision:
                self._for_others.set()

    def _send(self, made: Change) -> bool:
        row = made.row
        if not row.promoted:
            return True
        notice, told = None, None
        try:
            notice = notice_of(made)
            told = self._listener.told(notice) if row.unsent_revision == row.revision else None
        except Exception:  # noqa: BLE001 - the other events must still be sent
            _log.exception("cannot send an event", task=row.id)
        delivery = nothing_to_send() if notice is None else self._listener.changed(notice)
        if delivery is None:
            return False
        if row.unsent_revision == row.revision:
            question = made.question
            asks = question is not None and not question.lapsed
            sent = _Sent(notice, delivery, question if asks else None, told)
            self._sent[row.id, row.revision] = sent
            self._any_sent.set()
        return True

    async def _clear(self) -> None:
        while True:
            await self._any_sent.wait()
            self._any_sent = anyio.Event()
            await anyio.sleep(_GATHER_S)
            sent = dict(self._sent)
            for one in sent.values():
                await one.delivery.settled()
            # An event without stanzas cannot be lost, also if there is no connection.
            silent = {one: what for one, what in sent.items() if not what.delivery.has_stanzas}
            is_handled = len(silent) == len(sent) or await self._listener.handled()
            await self._write(sent if is_handled else silent, keep_trying=True)
            if is_handled:
                continue
            # The connection was lost, and some of it may be lost with it. There may be a new one.
            self._forget(sent)
            try:
                await self.send_unsent()
            except StorageError as error:
                log_failure(_log, "events are sent again at the next connect", error)

    async def _ask_others(self) -> None:
        """Announce unsent events, in case another instance has a stream."""
        while True:
            await self._for_others.wait()
            self._for_others = anyio.Event()
            await self._storage.write(lambda database: database.notify(UNSENT), keep_trying=True)
            await anyio.sleep(_GATHER_S)

    def questions_to(self, who: JID) -> frozenset[str]:
        """Return the ids of questions just written to `who`: their rows may not say so yet."""
        return frozenset(
            sent.question.id
            for sent in self._sent.values()
            if sent.question is not None
            and sent.delivery.is_sent
            and who.bare not in sent.delivery.withheld
        )

    async def _write(self, sent: Mapping[_Revision, _Sent], *, keep_trying: bool) -> None:
        """Clear the mark of revisions that were written; dropped ones stay marked."""
        written = sorted(one for one, what in sent.items() if what.delivery.is_sent)

        def op(database: Database) -> None:
            pairs, value = pairs_of(database, dict(written))
            database.execute(
                f"UPDATE tasks SET unsent_revision = NULL FROM {pairs} AS sent"  # noqa: S608
                " WHERE tasks.id = sent.key AND unsent_revision = CAST(sent.value AS BIGINT)",
                (value,),
            )
            for one in written:
                what = sent[one]
                if what.question is not None:
                    question_rows.written(database, what.question.id, what.delivery.withheld)
                if what.notice is not None and what.told is not None:
                    request = what.notice.request
                    add_told(database, request.target, request.principal, what.told)

        if written:
            tasks = [task for task, _ in written]
            await self._storage.write(op, keep_trying=keep_trying, tasks=tasks)
        self._forget(sent)

    def _forget(self, sent: Mapping[_Revision, _Sent]) -> None:
        """Forget deliveries that are settled: events that are still marked are sent again."""
        for one, what in sent.items():
            if what.delivery.state != "queued" and self._sent.get(one) is what:
                del self._sent[one]

    async def flush(self) -> None:
        """Send all waiting events, and record those received in time. Raises StorageError."""
        self._send_now()
        sent = dict(self._sent)
        if self._for_others.is_set():
            await self._storage.write(lambda database: database.notify(UNSENT))
        handled = False
        with anyio.move_on_after(_LAST_WORDS_S):
            for one in sent.values():
                await one.delivery.settled()
        with anyio.move_on_after(_LAST_WORDS_S):
            handled = await self._listener.handled()
        if handled:
            await self._write(sent, keep_trying=False)

    async def send_unsent(self) -> None:
        """Send every marked event, the oldest first. Raises StorageError."""
        async with self._sending:  # otherwise two callers would send the same event
            self._send_now()
            after = (-1, "")
            while True:
                # An event that is being sent is not sent again, even if that is recorded meanwhile.
                before = self._on_its_way()
                page = await self._storage.read(partial(_unsent, after=after))
                for made in page:
                    one = (made.row.id, made.row.revision)
                    sent = one in before or one in self._on_its_way()
                    if not sent and not self._send(made):
                        return
                if len(page) < _PAGE:
                    return
                last = page[-1].row
                after = (last.updated, last.id)

    def _on_its_way(self) -> set[_Revision]:
        return {one for one, what in self._sent.items() if what.delivery.state != "dropped"}


def _unsent(database: Database, after: tuple[int, str]) -> list[Change]:
    """Return the next events that must be sent and were not, by `updated` and `id`."""
    page: list[Change] = []
    rest = (
        "WHERE unsent_revision IS NOT NULL AND (updated > ? OR (updated = ? AND id > ?))"
        f" ORDER BY updated, id LIMIT {_PAGE:d}"
    )
    for row in rows.select(database, rest, (after[0], after[0], after[1])):
        assert row.unsent_revision is not None
        revision = row.unsent_revision
        event = next(rows.events_of(database, row, revision, revision), None)
        if event is None:
            continue
        question = question_with(database, row) if row.revision == revision else None
        if question is not None and not question.lapsed:
            # An event of a vote may follow the messages of the question.
            question = question_rows.still_to_write(database, question)
        then, detail = event
        page.append(Change(replace(then, updated=row.updated), detail, question=question))
    return page


# The audit log, and metrics.

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
        """Record that a request was accepted as a task, ended within its time, or was refused.

        What is said of delegated work is all that is left of it if it did not become a task.
        """
        self._executes.add(seconds, request.skill, outcome)
        delegation, agent, trace = request.delegation, "", ""
        if delegation is not None:
            agent, trace = request.caller_context.agent, delegation.trace_id
            detail = f"for {delegation.origin}" + (f": {detail}" if detail else "")
        self._record(
            AuditEvent(
                kind="execute",
                outcome=outcome,
                principal=str(request.principal),
                agent=agent,
                trace=trace,
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
            if isinstance(detail, Confirm) and made.question is not None:
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
            if row.skill == AGENT_WORK:
                self._record(_end_of_sub_agent(row, made.detail))

    def decided(self, who: JID, decision: Decision, judged: Judgement) -> None:
        """Record a decision, unless it repeats an earlier one, or why it does not count."""
        made, error = judged.change, judged.error
        if error is not None or judged.doubt is not None:
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
            if judged.missing:
                about += f", of which {judged.missing} more approvals are needed"
            if decision.standing:
                about += ", also as a standing approval"
            if judged.ended:
                about += f", which ends the standing approval {', '.join(judged.ended)}"
            event = _event_of(made.row, "confirmation", outcome, about, decision.id)
            self._record(replace(event, principal=str(who.bare)))

    def recorded(self, events: Iterable[AuditEvent]) -> None:
        """Record what this instance has just committed besides changes."""
        for event in events:
            self._record(event)

    def withdrawn(self, who: JID, question: str, judged: Judgement) -> None:
        """Record that a person has withdrawn an approval."""
        if judged.change is not None:
            about = f"question {question}"
            event = _event_of(judged.change.row, "confirmation", "withdrawn", about, question)
            self._record(replace(event, principal=str(who.bare)))


class _Named(msgspec.Struct, frozen=True):
    agent: str


class _SubAgent(msgspec.Struct, frozen=True):
    """The name of a sub-agent in the parameters of its task."""

    work: _Named


def _end_of_sub_agent(row: Row, detail: Detail | None) -> AuditEvent:
    """Return the audit event of the end of a sub-agent."""
    is_done = isinstance(detail, Result) and not detail.is_error
    outcome = "killed" if row.state == "cancelled" else "ended" if is_done else "failed"
    event = _event_of(row, "agent", outcome)
    with suppress(DecodeError):
        params = msgspec.json.decode(request_of(row).json, type=_SubAgent)
        event = replace(event, subject=params.work.agent)
    return event


def _event_of(
    row: Row, kind: EventKind, outcome: str, detail: str = "", trace: str = ""
) -> AuditEvent:
    """Return the audit event of a task. `trace` is used for a task that is part of no turn, and
    that no other agent has delegated.
    """
    context = THE_CALLER
    try:
        request = request_of(row)
    except DecodeError:  # a request that cannot be decoded is reported when the task is run
        pass
    else:
        context = request.caller_context
        if request.delegation is not None:
            trace = request.delegation.trace_id or trace
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
