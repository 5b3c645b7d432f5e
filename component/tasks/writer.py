"""Writes the changes of one execution: one commit at a time, fenced by the token of the
task's row.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import msgspec

from component.storage import waiters
from component.tasks import admit, idempotency, instances, journal
from component.tasks.admit import TaskLimits
from component.tasks.confirmation import lapses
from component.tasks.idempotency import RecordedAnswer
from component.tasks.journal import (
    Recorded,
    StepId,
    begin_step,
    end_step,
    forget_begun,
    forget_failed,
    succeeded,
)
from component.tasks.outputs import Parts
from component.tasks.protocol import Call
from component.tasks.questions import ask_input
from component.tasks.replay_cache import Flight
from component.tasks.rows import Change, Row, change, is_late, load_owned, next_due, put, update
from component.tasks.states import TERMINAL
from component.tasks.store import TaskStore, Transaction
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Output, Result, State
from xep.fluux_agent.task import Progress
from xep.stanza_error import StanzaError

_PROGRESS_S: Final = 1.0
"""Progress that is reported more often than this is combined (EVT-013)."""


class AlreadyError(Exception):
    """The request already has a replay record: another execution serves it."""

    def __init__(self, found: idempotency.ReplayRecord) -> None:
        self.found = found
        super().__init__("the request has a replay record already")


class CancellingError(Exception):
    """The task is being cancelled, so it can no longer wait for a person."""


class SettledError(Exception):
    """The task ended with this commit, because its deadline had passed."""


class TaskWriter:
    """Gives an execution its task row when it needs one, and writes everything that it does.

    Every method but `show` requires the lock, so that commits follow one another. Methods raise
    LostError if the execution no longer owns the task, SettledError if the commit ended it, and
    StorageError only where documented: other writes are retried until they succeed.

    Args:
        store: runs transactions on the rows.
        limits: the limits of durable work.
        instance: returns the name of this instance.
        call: the request.
        task: the id of the task, used once it has a row.
        execution: passed on with each commit, as the source of its changes.
        flight: the request that waits for an answer, if one does.
        row: the row of the task, if it has one; it is running here.
        parts: the artifacts that earlier executions have published.

    Attributes:
        row: the row as last committed; None until there is one.
        lock: held while writing.
    """

    def __init__(
        self,
        store: TaskStore,
        limits: TaskLimits,
        instance: Callable[[], str],
        call: Call,
        task: str,
        execution: object,
        *,
        flight: Flight | None,
        row: Row | None,
        parts: Sequence[Output],
    ) -> None:
        self._store = store
        self._limits = limits
        self._instance = instance
        self._call = call
        self._task = task
        self._execution = execution
        self._flight = flight
        self.row = row
        self.parts = Parts(parts, limits.result_bytes)
        self.repeatable = call.skill.annotations.repeatable
        self.atomic = not self.repeatable and not call.skill.durable
        self.lock = anyio.Lock()
        self._progress: Progress | None = None
        self._progress_due = -_PROGRESS_S

    # Rows.

    async def promote(
        self,
        done: dict[str, Recorded],
        *,
        announced: bool,
        step: StepId | None = None,
        keep_trying: bool = True,
    ) -> bool:
        """Give the execution a task row, or announce the task that it has; return whether it is
        new.

        `announced` answers the request with the task, so that its caller learns of it. A new task
        gets the steps that are `done`, and begins `step` in the same commit.

        Raises AlreadyError; StanzaError, if the task cannot be created; and StorageError, unless
        `keep_trying`.
        """
        mine = self.row
        op: Callable[[Transaction], tuple[Row, Accepted]]
        if mine is None:
            request = admit.request_row(self._call, self._limits)
            op = partial(self._become_task, request, done, step, announced)
        else:
            op = partial(self._announce, mine)
        row, accepted = await self._store.commit(
            op,
            tasks=() if mine is None else (mine.id,),
            keep_trying=keep_trying,
            by=self._execution,
        )
        self.row = row
        if mine is None:
            self._progress = None
        if announced:
            self._land(accepted)
        return mine is None

    def _become_task(
        self,
        request: str,
        done: dict[str, Recorded],
        step: StepId | None,
        announced: bool,
        tx: Transaction,
    ) -> tuple[Row, Accepted]:
        call, limits, owner = self._call, self._limits, self._instance()
        if self.repeatable:
            admit.refuse_crowd(tx, str(call.principal), limits, request)
        row = admit.new_row(tx, self._task, call, request, limits, visible=announced)
        accepted = admit.accepted_as(row, "accepted", limits)
        tx.publish(admit.begin(tx, row, owner, atomic=self.atomic, new=True))
        tx.publish(*admit.catch_up(tx, row, done, self.parts.all, self._progress))
        if step is not None and row.state == "running":
            begin_step(tx, row.id, row.token, step)
        answer = accepted if announced else None
        flight = self._flight
        if not self.repeatable:
            idempotency.answer_record(tx, call.key, self._recorded, answer, task=row.id)
        elif flight is not None and flight.left_s > 0:
            found = idempotency.record(
                *(tx, call.key),
                principal=row.principal,
                expires=flight.expires(tx.steady),
                owner=owner,
                task=row.id,
                answer=answer,
            )
            if found is not None:
                raise AlreadyError(found)
            self._store.records.check(tx, row.principal)
        return row, accepted

    def _announce(self, row: Row, tx: Transaction) -> tuple[Row, Accepted]:
        mine = load_owned(tx, row.id, row.token)
        accepted = admit.accepted_as(mine, "accepted", self._limits)
        tx.publish(*admit.reveal(tx, mine))
        idempotency.accept_record(tx, mine.id, accepted)
        return mine, accepted

    # Steps.

    async def begin(self, step: StepId) -> None:
        """Commit that a step with effects begins."""

        def op(tx: Transaction, row: Row) -> None:
            if is_late(tx, row):
                late = errors.deadline_expired()
                tx.publish(
                    idempotency.end(tx, row, "failed", late, retention_ms=self._limits.retention_ms)
                )
            elif row.state != "cancelling":
                begin_step(tx, row.id, row.token, step)

        await self._change(op)

    async def finish(self, step: StepId, recorded: Recorded) -> None:
        """Commit how a step ended."""

        def op(tx: Transaction, row: Row) -> None:
            end_step(tx, row.id, row.token, step.name, recorded)
            if row.attempts > 1:  # this execution got further than those that were interrupted
                row.attempts = 1
                tx.execute("UPDATE tasks SET attempts = 1 WHERE id = ?", (row.id,))

        await self._change(op)

    # Questions.

    async def ask(self, step: StepId, text: str, schema: msgspec.Raw, seconds: float) -> None:
        """Commit a question, whose answer is the result of `step`, and release the task.

        Raises CancellingError.
        """
        input_id = instances.new_instance()

        def op(tx: Transaction, row: Row) -> None:
            if row.state == "cancelling":
                raise CancellingError
            expires = lapses(tx.now, seconds, row.deadline)
            tx.publish(ask_input(tx, row, step.name, text, schema, id=input_id, expires=expires))

        await self._change(op)

    # Sleeping, and other tasks.

    async def sleep(self, step: StepId, seconds: float) -> None:
        """Commit that the task continues after a time, when `step` is done, and release it.

        Raises CancellingError.
        """

        def op(tx: Transaction, row: Row) -> None:
            self._give_up(row)
            row.not_before = tx.steady + round(seconds * 1000)
            recorded = Recorded(succeeded(row.not_before), step.input)
            end_step(tx, row.id, row.token, step.name, recorded)
            row.due = next_due(tx, row)
            update(tx, row)
            tx.queued(row)

        await self._change(op)

    async def start(self, step: StepId, call: Call, delay_s: float) -> Recorded:
        """Commit a child task, whose id is the result of `step`.

        Raises StanzaError: it cannot be created.
        """
        task, request = instances.new_instance(), admit.request_row(call, self._limits)
        recorded = Recorded(succeeded(task), step.input)

        def op(tx: Transaction, row: Row) -> None:
            admit.refuse_crowd(tx, row.principal, self._limits, request)
            child = admit.new_row(tx, task, call, request, self._limits, visible=True)
            child.parent = row.id
            child.deadline = row.deadline
            if delay_s > 0:
                child.not_before = tx.steady + round(delay_s * 1000)
            child.due = next_due(tx, child)
            put(tx, child)
            row.children += 1
            update(tx, row)
            end_step(tx, row.id, row.token, step.name, recorded)
            tx.queued(child)

        await self._change(op)
        return recorded

    async def wait(self, tasks: Sequence[str], *, eager: bool) -> None:
        """Commit that the task waits for others, and release it. Raises CancellingError."""

        def op(tx: Transaction, row: Row) -> None:
            self._give_up(row)
            row.waits = waiters.wait_for(tx, row.id, tasks, None, eager=eager)
            if eager and journal.has_failed(tx, tasks):
                row.waits = 0
            row.due = next_due(tx, row)
            update(tx, row)
            tx.queued(row)

        await self._change(op)

    async def wait_for_turn(self, turn: str) -> None:
        """Commit that the task waits for a turn; it gives its owner up. Raises CancellingError."""

        def op(tx: Transaction, row: Row) -> None:
            self._give_up(row)
            row.waits = waiters.wait_for_turn(tx, row.id, turn)
            row.due = next_due(tx, row)
            update(tx, row)
            tx.queued(row)

        await self._change(op)

    @staticmethod
    def _give_up(row: Row) -> None:
        if row.state == "cancelling":
            raise CancellingError
        row.owner, row.token, row.attempts = None, row.token + 1, 0

    # What the execution publishes.

    async def show(self, part: Output) -> None:
        """Commit a part of an artifact, if there is a row; otherwise store it until there
        is one.
        """
        if self.row is not None:
            await self._change(lambda tx, row: tx.publish(admit.add_part(tx, row, part)))
        self.parts.shown(part)

    def note_progress(self, progress: Progress) -> float:
        """Store progress; return the seconds until it may be written, 0 for at once."""
        self._progress = progress
        return max(0.0, self._progress_due - anyio.current_time())

    async def write_progress(self) -> None:
        """Commit the latest progress, if it was not written yet and the task has a visible row."""
        progress, row = self._progress, self.row
        if progress is None or row is None or not row.visible:
            return
        self._progress = None
        self._progress_due = anyio.current_time() + _PROGRESS_S
        await self._change(lambda tx, row: tx.publish(change(tx, row, row.state, progress)))

    # The end.

    async def end(
        self, ended: RecordedAnswer | None, *, drained: bool, unbegun: Sequence[str]
    ) -> None:
        """Commit how the execution ended, and answer the request if it still waits.

        `ended` None means cancelled, or with `drained` that another execution is to continue. The
        `unbegun` steps are removed from the journal.
        """
        if self.row is not None:
            with contextlib.suppress(SettledError):
                await self._change(partial(self._end_task, ended, drained, unbegun), ended)
        elif ended is not None:
            if not self.repeatable:
                await self._store.commit(partial(self._record_answer, ended), keep_trying=True)
            self._land(ended)

    def _record_answer(self, answer: RecordedAnswer, tx: Transaction) -> None:
        principal = str(self._call.principal)
        idempotency.answer_record(tx, self._call.key, self._recorded, answer)
        tx.answers.append((principal, idempotency.size_of(answer)))

    def will_retry(self, ended: RecordedAnswer | None) -> bool:
        """Return whether the skill is retried after an execution that ended like this."""
        skill, row = self._call.skill, self.row
        tries = 0 if row is None else row.tries
        return (
            isinstance(ended, StanzaError)
            and tries + 1 < skill.attempts
            and self._call.request.mode != "inline"
            and any(isinstance(one, errors.Internal | errors.Timeout) for one in ended.application)
        )

    async def retry(self, error: StanzaError) -> None:
        """Commit that the skill is retried after a while, and release the task."""

        def op(tx: Transaction, row: Row) -> None:
            if row.state != "running":
                self._end_task(error, False, (), tx, row)
                return
            row.tries += 1
            seconds = self._call.skill.backoff_s * 2 ** (row.tries - 1)
            forget_failed(tx, row.id)
            row.attempts = 0
            row.not_before = tx.steady + round(seconds * 1000)
            text = (
                f"Attempt {row.tries + 1} of {self._call.skill.attempts} begins in {seconds:g} s:"
                f" {error.text or error.condition}"
            )
            tx.publish(
                change(tx, row, "running", Progress(text=text), owner=None, due=next_due(tx, row))
            )

        with contextlib.suppress(SettledError):
            await self._change(op, error)

    def _end_task(
        self,
        ended: RecordedAnswer | None,
        drained: bool,
        unbegun: Sequence[str],
        tx: Transaction,
        row: Row,
    ) -> None:
        retention_ms = self._limits.retention_ms
        for step in unbegun:
            forget_begun(tx, row.id, step)
        if ended is None and drained:
            # Others need not wait until this process has ended.
            instances.wake_one(tx, but=self._instance())
            tx.publish(*instances.release(tx, row, retention_ms=retention_ms, drained=True))
            return
        if self._progress is not None and row.state == "running":
            tx.publish(change(tx, row, "running", self._progress))
        if row.state in TERMINAL:
            return
        to: State = "failed"
        if isinstance(ended, Result):
            to = "completed"
        elif ended is None and row.state == "cancelling":
            to = "cancelled"
        outcome = ended if not isinstance(ended, Accepted) else None
        if to == "failed" and outcome is None:
            outcome = errors.internal()
        tx.publish(
            idempotency.end(
                tx, row, to, outcome, repeatable=self.repeatable, retention_ms=retention_ms
            )
        )

    # How changes are written.

    async def _change(
        self, op: Callable[[Transaction, Row], None], wanted: RecordedAnswer | None = None
    ) -> None:
        """Commit a change of the running task, which `wanted` is meant to end.

        Raises LostError, and SettledError if the task has ended with this commit.
        """
        mine = self.row
        assert mine is not None

        def fenced(tx: Transaction) -> tuple[Row, Change | None]:
            row = load_owned(tx, mine.id, mine.token)
            op(tx, row)
            return row, tx.changes[-1] if tx.changes else None

        row, last = await self._store.commit(
            fenced, tasks=(mine.id,), keep_trying=True, by=self._execution
        )
        self.row = row
        if last is not None and row.state in TERMINAL:
            if not row.visible:
                self._land(idempotency.ended_with(last, wanted))
            raise SettledError

    @property
    def _recorded(self) -> int | None:
        return None if self._flight is None else self._flight.recorded

    def _land(self, answer: RecordedAnswer) -> None:
        if self._flight is not None:
            self._flight.land(answer)
