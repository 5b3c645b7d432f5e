"""One run of a skill: it calls the skill, serves its Context, and commits what it does.

A run gets the row of a task only when it needs one: for a step with effects, for a question, or
because it takes longer than its IQ may. The skill does not notice. What the skill does through its
Context is identified and recorded in the journal, so that a later run of the task continues from
there. The run has its slot, its journal and its row, and each commit is fenced by a number in its
row.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Final, Literal, NoReturn, TypeAlias

import anyio
import msgspec
import structlog

from component import system
from component.budget.protocol import Amount, TurnBudget
from component.policy.taint import Taint
from component.skills import operations
from component.skills.calling import call as call_skill
from component.skills.context import Context
from component.skills.errors import (
    CALL_ERRORS,
    CapabilityMissing,
    InvalidParam,
    SkillError,
    UsageError,
    printable,
)
from component.skills.inputs import Arguments
from component.skills.operations import (
    CAPABILITY,
    METHODS,
    Children,
    Host,
    Judged,
    Operation,
    Parked,
    Work,
)
from component.skills.outputs import File, Link, SkillResult
from component.skills.skill import Skill
from component.store import waiters
from component.store.database import Database
from component.tasks import (
    changes,
    gate,
    journal,
    leases,
    outputs,
    question_rows,
    replay,
    rows,
    several_calls,
)
from component.tasks.changes import Change, TaskRuntime, Transaction, change
from component.tasks.delegation import budget_of
from component.tasks.gate import ITS_PARAMETERS, NotPermitted
from component.tasks.journal import ATOMIC, Journal, Recorded, StepId, StepOperation, Steps
from component.tasks.leases import Slot
from component.tasks.outputs import Parts
from component.tasks.questions import (
    action_of,
    ask_input,
    ask_question,
    ask_relayed,
    confirm_for,
    lapses,
)
from component.tasks.receipts import with_receipt
from component.tasks.replay import Flight, NewRecord, RecordedAnswer, ReplayRecord
from component.tasks.request import (
    NO_KEY,
    Confirmation,
    OnAccepted,
    OnResult,
    Request,
    RequestKey,
    no_change,
)
from component.tasks.rows import TERMINAL, LostError, Row
from component.tasks.several_calls import SEVERAL_CALLS, CallToStart, Decided
from component.tasks.standing import Starter
from xep.binding import encode, read
from xep.binding.escaping import without_forbidden
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Action, Confirm, parameters_of
from xep.fluux_agent.execute import Accepted, Output, Result, State
from xep.fluux_agent.task import Input, Progress
from xep.jid import JID
from xep.stanza_error import StanzaError

Stop: TypeAlias = Literal["cancel", "deadline", "limit", "lost", "drain"]
"""Why a run is stopped: its caller cancels it; the deadline has passed; the IQ cannot wait any
longer and the mode is inline; another instance has taken the task over; the service stops.
"""

_SHORTEST_PARK_S: Final = 1.0
"""A shorter sleep is not worth two commits."""
_DEADLINE_S: Final = 1.0
"""A skill learns of a deadline this much later, so that the task itself fails with it first."""
_PROGRESS_S: Final = 1.0
"""Progress that is reported more often than this is combined (EVT-013)."""

_EAGER: Final[Mapping[operations.Until, waiters.Eager]] = {
    "ended": waiters.ENDED,
    "failure": waiters.FAILURE,
    "success": waiters.SUCCESS,
}

_log = structlog.get_logger("component.tasks")

_in_step: ContextVar[Run | None] = ContextVar("in_step", default=None)
"""The run whose step is running in this context."""


class AlreadyError(Exception):
    """The request already has a replay record: another run serves it."""

    def __init__(self, found: ReplayRecord) -> None:
        self.found = found
        super().__init__("the request has a replay record already")


class Admitted(msgspec.Struct, frozen=True):
    """A request that passed admission, its skill, and the parameters as the skill takes them.

    `key` identifies repetitions. `flight` waits for the answer, if a request does. `on_result` is
    called when the skill has run on this instance, before the request is answered, and never for a
    repetition. `also` changes the database in the transaction that accepts the request as a task.
    """

    request: Request
    skill: Skill
    arguments: Arguments
    key: RequestKey = NO_KEY
    flight: Flight | None = None
    on_result: OnResult | None = None
    also: OnAccepted = no_change


_ASKED_BY_CLIENTS: Final = ("iq", "message", "command")


def context_of(
    request: Request,
    skill: Skill,
    host: Host | None = None,
    task: str = "",
    *,
    is_stored: bool = False,
) -> Context:
    """Return what a skill gets as its context; without a host it cannot perform operations."""
    caller = request.caller_context
    return Context(
        principal=str(request.principal),
        sender=str(request.requester),
        skill=skill.name,
        agent=caller.agent,
        taints=caller.taints,
        limits=caller.limits,
        trace=caller.trace,
        room="" if caller.room is None else str(caller.room),
        address=str(request.target),
        task=task,
        paid_by=task if caller.budget is None else caller.budget.task,
        delegation=request.delegation,
        lang=request.lang or "",
        deadline=request.deadline,
        is_stored=is_stored,
        client=str(request.requester) if request.origin in _ASKED_BY_CLIENTS else "",
        host=host,
    )


def _progress_of(report: operations.ReportProgress) -> Progress:
    fraction = round(Decimal(repr(report.fraction)), 4)
    return Progress(fraction=fraction, text=without_forbidden(report.text))


def _show(
    tx: Transaction, row: Row, plan: str | None, report: operations.ReportProgress | None
) -> None:
    """Show callers the steps of a plan and its progress, in a revision if there is something new,
    and write the row.
    """
    progress = None if report is None else _progress_of(report)
    is_known = progress is None or encode(progress) == row.progress
    if is_known and plan in (None, row.plan):
        rows.update(tx, row)
        return
    row.plan = plan or row.plan
    tx.publish(change(tx, row, row.state, progress))


class Run:
    """One run of a skill; implements the operations of `Context`.

    These methods raise Parked to unwind the skill: because the run is stopped, or waits for a
    person, a time or another task. One commit follows another: those that write hold a lock.

    Attributes:
        task: the id of the task, used once it has a row.
        row: the row as last committed, running and owned by this instance; None until there is one.
        slot: the slot that it runs in; a run that gets a row takes one.
        ended: set when the run has ended and has released its slot.
    """

    def __init__(
        self,
        runtime: TaskRuntime,
        admitted: Admitted,
        row: Row | None = None,
        slot: Slot | None = None,
    ) -> None:
        self.admitted = admitted
        self.request, self.skill, self.flight = admitted.request, admitted.skill, admitted.flight
        self.task = leases.new_instance() if row is None else row.id
        self.row = row
        self.slot = slot
        self.ended = anyio.Event()
        self._runtime, self._limits = runtime, runtime.limits
        self._lock = anyio.Lock()
        self._decided: dict[tuple[str, bytes], Decided] = {}
        """What the principal has decided about child tasks before they are started."""
        self._steps = Steps((None if row is None else row.origin) or self.task)
        if self.skill.atomic:
            self._steps.under_way.add(ATOMIC)
        self._parts = Parts(runtime.limits.result_bytes)
        self._shown_as: set[str] = set()
        """Begin the names of artifacts of child tasks."""
        self._scope = anyio.CancelScope()
        self._ending = anyio.CancelScope(shield=True)
        self._recording: set[anyio.CancelScope] = set()
        """Cancel scopes of the steps whose results are being written."""
        self._skill_task: int | None = None
        """The id of the event loop's task that runs the skill."""
        self._stopped: Stop | None = None
        self._refused: StanzaError | None = None
        """The error that the run ends with, whatever its skill returns."""
        self._parking: anyio.Event | None = None
        """Set when the run has parked, or does not park after all; None if it is not about to."""
        self._parked = self._over = self._failed = self._draining = False
        self._authors: tuple[Taint, ...] = ()
        """The possible authors of the result."""
        self._inside = 0
        """The number of steps in progress, including those without effects."""
        self._quiet = anyio.Event()
        """Set when no step is in progress."""
        self._quiet.set()
        self._progress: Progress | None = None
        self._progress_due = -_PROGRESS_S
        self._flushing = False

    def continue_from(self, recorded: Journal, parts: Sequence[Output]) -> None:
        """Continue after the steps and the artifact parts of earlier runs of the task."""
        self._steps.done = recorded.done
        for part in parts:
            self._parts.shown(part)

    # Its life.

    async def run(self) -> None:
        """Run until the skill ends, is stopped, or has to wait."""
        ended = None
        try:
            with self._scope:
                ended = await self._run_skill()
            if self._scope.cancelled_caught:
                ended = self._interrupted()
            with self._ending:
                await self._end(ended)
        except LostError:
            self._stopped = "lost"
            _log.info("lost a task to another instance", task=self.task)
        finally:
            self._over = True
            self._land(None)

    def release(self) -> None:
        """Release what the run has, once it has ended."""
        self.ended.set()
        if self.slot is not None:
            self.slot.release()

    def stop(self, why: Stop) -> None:
        """Stop the run as soon as the skill can be interrupted."""
        if self._stopped is None:
            self._stopped = why
        self._scope.cancel()

    def observe(self, made: Change) -> None:
        """Handle a committed change by others: stop if the task has ended or is being cancelled."""
        if made.row.state == "cancelling":
            self.stop("cancel")
        elif made.row.state in TERMINAL and not self._over:
            self.stop("lost")
            self._land(changes.ended_with(made))

    def superseded(self) -> None:
        """Stop because another run is to resume the task, unless this one is already unwinding."""
        if not self._parked and self._parking is None:
            self.stop("lost")

    def drain(self) -> None:
        """Stop for a shutdown, as soon as no work is lost: between two steps of a durable skill,
        when no caller waits for an answer. The task is resumed from there.
        """
        self._draining = True
        self._leave_between_steps()

    def give_up(self) -> None:
        """Cancel the run even while it waits to write its end. The state on disk stays as it is."""
        self._scope.cancel()
        self._ending.cancel()
        for recording in tuple(self._recording):
            recording.cancel()

    def _leave_between_steps(self) -> None:
        row, between = self.row, self.skill.durable and not self._inside
        if self._draining and between and row is not None and row.promoted:
            self.stop("drain")

    async def announce(self) -> bool:
        """Turn the run into a task that the caller knows of, and answer the request with it
        (EXE-016).

        Return False if the run has ended in the meantime. Raises StorageError, AlreadyError, and
        StanzaError if the task cannot be created; the run is then stopped, because nobody would see
        its result.
        """
        async with self._lock:
            if self._over or self._parked or self._stopped is not None:
                return False
            row = self.row
            if row is not None and row.promoted:
                return True
            try:
                await self._promote(announced=True, keep_trying=not self.skill.repeatable)
            except LostError:
                self.stop("lost")
                return False
            except BaseException:
                if self.row is None:
                    self.stop("lost")
                raise
        self._leave_between_steps()
        return True

    def _land(self, answer: RecordedAnswer | None) -> None:
        if self.flight is not None:
            self.flight.land(answer)

    # The skill.

    async def _run_skill(self) -> RecordedAnswer | None:
        request, skill = self.request, self.skill
        self._skill_task = anyio.get_current_task().id
        context = context_of(*(request, skill, self, self.task), is_stored=self.row is not None)
        if self.row is not None and self.row.deadline is not None:
            context.deadline = rows.moment(self.row.deadline)
            left = self.row.deadline / 1000 - system.now().timestamp()
            context.shorten(max(0.0, left) + _DEADLINE_S)
        access, on_result = self._runtime.skills, self.admitted.on_result
        try:
            access.check(request, skill, "" if self.row is None else self.task)
            access.provide(skill, context)
            share = access.threads.share(context.principal)
            made = await call_skill(
                *(skill, self.admitted.arguments, context, share),
                timeout=request.caller_context.timeout_s,
            )
            declared = () if skill.taint is None else (skill.taint,)
            self._authors = declared if made.taints is None else made.taints
            if on_result is not None and made.taints is not None:
                on_result(made.taints)
            return await self._result_of(made)
        except CALL_ERRORS as error:
            if self._parked or self._refused is not None or self._stopped == "lost":
                return None
            self._failed = True
            return outputs.error_of(skill, error)
        except Parked:
            pass
        except BaseExceptionGroup as group:
            # A task group in the skill wraps Parked in a group; all other exceptions are passed on.
            rest = group.split(Parked)[1]
            if rest is not None:
                raise rest from None
        if self._refused is None and self._stopped is not None and not self._parked:
            return self._interrupted()
        return self._refused

    async def _result_of(self, made: SkillResult) -> Result | StanzaError:
        """Return the result of the skill: with large parts by reference, and with the files that a
        person gets by reference, too. A model or a parent task, which cannot fetch anything, has
        the content inside, if it fits.
        """
        request, most = self.request, self._limits.result_bytes
        wanted = most if request.origin in ("tool", "child") else outputs.REFERENCE_BYTES
        wanted = min(most, wanted)

        async def share(file: File) -> Link:
            return await self._runtime.skills.share(file, request)

        fitted = await outputs.fitting(made, wanted, share, every_file=request.is_for_person)
        # `checked` measures it exactly; converting a large one would hold up everybody.
        if fitted.problem and outputs.least_size(fitted.made) > most:
            _log.warning(
                "a result is too large, and cannot be given by reference",
                skill=self.skill.name,
                reason=fitted.problem,
            )
            return outputs.too_large(most, fitted.problem)
        result = outputs.result_of(self.skill, fitted.made, fitted.links)
        if self.row is not None and self.row.children:
            self._parts.add_shown(
                await self._runtime.commit(
                    lambda tx: rows.parts_of(tx, self.task), keep_trying=True
                )
            )
        left = wanted - sum(map(outputs.size_of, fitted.made.outputs))
        result = await self._parts.completed(result, left, share)
        spent = self._runtime.skills.spent
        if request.delegation is None or request.origin == "child" or spent is None:
            return result
        # DLG-015: what agents further on have spent is part of it.
        return outputs.with_costs(result, await spent(self.task))

    def _interrupted(self) -> StanzaError | None:
        """Return the error of a run that was stopped; None: it was cancelled or will be resumed."""
        repeatable = self.skill.repeatable
        match self._stopped:
            case "limit":
                return errors.timed_out(repeatable=repeatable)
            case "deadline":
                return errors.deadline_expired()
            case "cancel" | "drain" if self._steps.under_way and self.row is not None:
                return errors.outcome_unknown()
            case "drain" if self.row is None:
                return errors.timed_out(repeatable=repeatable)
        return None

    # The end.

    async def _end(self, ended: RecordedAnswer | None) -> None:
        """Commit how the run ended, and answer the request if it still waits. Raises LostError."""
        async with self._lock:
            self._over = True
            if self._stopped == "lost" or self._parked:
                return
            if isinstance(ended, Result):
                ended = outputs.checked(self.skill, ended, self._limits.result_bytes)
            if self._refused is not None:
                ended = self._refused
            # During a drain: the skill failed when it was about to be stopped anyway.
            itself = self._stopped is None or (self._stopped == "drain" and self._failed)
            if itself and isinstance(ended, StanzaError) and self._may_retry(ended):
                if self._steps.under_way - {ATOMIC}:
                    # A step was interrupted: by the skill's time-out, or because a parallel branch
                    # failed.
                    ended = errors.outcome_unknown()
                else:
                    if self.row is None or not self.row.promoted:
                        await self._promote(announced=True)
                    await self._change(partial(self._retry, ended), ended)
                    return
            if self.row is not None:
                await self._change(partial(self._end_task, ended), ended)
            elif ended is not None:
                if not isinstance(ended, Accepted):
                    make = self._runtime.make_receipt
                    ended = with_receipt(make, self.request, ended, self.task)
                if not self.skill.repeatable:
                    await self._runtime.commit(partial(self._record, ended), keep_trying=True)
                self._land(ended)

    def _record(self, answer: RecordedAnswer, tx: Transaction) -> None:
        expires = None if self.flight is None else self.flight.recorded
        replay.answer_record(tx, self.admitted.key, expires, answer)
        tx.answers.append((str(self.request.principal), replay.size_of(answer)))

    def _end_task(self, ended: RecordedAnswer | None, tx: Transaction, row: Row) -> None:
        """End the task; with None it was cancelled, or during a drain another run continues it."""
        for step in self._steps.unbegun:
            journal.forget_begun(tx, row.id, step)
        if ended is None and self._stopped == "drain":
            # Others need not wait until this process has ended.
            leases.wake_one(tx, but=tx.instance)
            tx.publish(*changes.release(tx, row, drained=True))
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
        outcome = None if isinstance(ended, Accepted) else ended
        if to == "failed" and outcome is None:
            outcome = errors.internal()
        authors = self._authors
        if isinstance(outcome, StanzaError):
            authors = self._authors_of_error(outcome)
        row.taints = " ".join(authors)
        tx.publish(changes.end(tx, row, to, outcome, repeatable=self.skill.repeatable))

    def _authors_of_error(self, error: StanzaError) -> tuple[Taint, ...]:
        """Return the possible authors of the text of an error: nobody but this service, unless
        another agent has sent it.
        """
        is_remote = any(isinstance(one, errors.RemoteFailure) for one in error.application)
        return (self.skill.taint,) if is_remote and self.skill.taint is not None else ()

    def _may_retry(self, error: StanzaError) -> bool:
        tries = 0 if self.row is None else self.row.tries
        return (
            tries + 1 < self.skill.attempts
            and self.request.mode != "inline"
            and any(isinstance(one, errors.Internal | errors.Timeout) for one in error.application)
        )

    def _retry(self, error: StanzaError, tx: Transaction, row: Row) -> None:
        if row.state != "running":
            self._end_task(error, tx, row)
            return
        row.tries += 1
        seconds = self.skill.backoff_s * 2 ** (row.tries - 1)
        journal.forget_failed(tx, row.id)
        row.attempts = 0
        row.not_before = tx.steady + round(seconds * 1000)
        text = (
            f"Attempt {row.tries + 1} of {self.skill.attempts} begins in {seconds:g} s:"
            f" {error.text or error.condition}"
        )
        due = rows.next_due(tx, row)
        tx.publish(change(tx, row, "running", Progress(text=text), owner=None, wake_at=due))

    # What `Context` does.

    @property
    def key(self) -> str:
        """The idempotency key of the whole call."""
        return self._steps.key_of(ATOMIC)

    @property
    def resumes(self) -> bool:
        """Whether another run continues the call if this one is cancelled now."""
        return self._stopped in (None, "drain", "lost")

    async def perform(self, operation: Operation, *local: Any) -> Any:
        """Perform an operation of the skill; see `component.skills.operations.Host`."""
        return await self._handlers[type(operation)](self, operation, *local)

    async def _report(self, report: operations.ReportProgress) -> None:
        """Report progress, at most once a second."""
        self._check()
        self._progress = _progress_of(report)
        wait = max(0.0, self._progress_due - anyio.current_time())
        if not wait:
            await self._write_progress()
        elif not self._flushing:
            self._flush_later(wait)

    async def _publish(self, given: operations.PublishPart) -> None:
        """Publish a part of an artifact; without a row it is stored until there is one."""
        self._check()
        if given.name.partition("/")[0] in self._shown_as:
            raise ValueError(f"the artifact {given.name!r} has the name of one of a child task")
        text = without_forbidden(given.text)
        part = self._parts.next(given.name, text, given.media_type, last=given.last)
        if part is None:
            return
        async with self._lock:
            self._check()
            if self.row is not None:
                await self._guard(lambda tx, row: tx.publish(changes.add_part(tx, row, part)))
            self._parts.shown(part)

    async def _step(self, operation: operations.RunStep, work: Work[bytes]) -> bytes:
        step, recorded = await self._find(operation)
        if recorded is not None:
            return journal.json_of(recorded)
        self._inside += 1
        self._quiet = anyio.Event()
        try:
            effects = not (operation.repeatable or self.skill.repeatable)
            if effects:
                await self._begin(step)
            outer = _in_step.set(self)
            try:
                key = self._steps.key_of(step.name)
                made, error = await journal.run_step(operation.name, work, key, effects=effects)
            finally:
                _in_step.reset(outer)
            recorded = await self._finish(step, made)
            if error is not None:
                raise error
        finally:
            self._inside -= 1
            if not self._inside:
                self._quiet.set()
            self._leave_between_steps()
        return journal.json_of(recorded)

    async def _begin(self, step: StepId) -> None:
        def op(tx: Transaction, row: Row) -> None:
            if rows.is_late(tx, row):
                tx.publish(changes.end(tx, row, "failed", errors.deadline_expired()))
            elif row.state != "cancelling":
                journal.begin_step(tx, row, step)

        async with self._lock:
            self._check()
            if self.row is None:
                await self._need_row(announced=False, step=step)
            else:
                await self._guard(op)
            if self._stopped is not None:  # then the step does not begin
                self._steps.unbegun.append(step.name)
                raise Parked
            self._steps.under_way.add(step.name)

    async def _finish(
        self, step: StepId, result: str, cancelled: Collection[str] = (), *, has_parts: bool = False
    ) -> Recorded:
        """Commit how a step ended, even if the run is being stopped, and with it cancel child tasks
        that are not needed any more. `has_parts` says that tasks may be a part of this one.
        """
        recorded = Recorded(result, step.input)

        def op(tx: Transaction, row: Row) -> None:
            journal.end_step(tx, row, step.name, recorded)
            if cancelled:
                changes.cancel_children(tx, row.id, cancelled)
            if row.attempts > 1 or (has_parts and not row.children):
                row.attempts = 1  # this run got further than those that were interrupted
                row.children = max(row.children, int(has_parts))
                rows.update(tx, row)

        with anyio.CancelScope(shield=True) as recording:
            self._recording.add(recording)
            try:
                async with self._lock:
                    if self.row is not None and not self._parked:
                        await self._guard(op)
                    self._steps.done[step.name] = recorded
                    self._steps.under_way.discard(step.name)
            finally:
                self._recording.discard(recording)
        return recorded

    async def _ask(self, asked: operations.AskPrincipal) -> bytes:
        """Ask the principal a question: this run ends here, and the answer starts another one."""
        step, recorded = await self._find_question(asked)
        if recorded is not None:
            return journal.json_of(recorded)
        shown = msgspec.Raw(asked.schema)
        seconds = self._limits.ask_expires_s if asked.expires_s is None else asked.expires_s
        text, id_ = without_forbidden(asked.question), leases.new_instance()

        def op(tx: Transaction, row: Row) -> None:
            expires = lapses(tx.now, seconds, row.deadline)
            tx.publish(ask_input(tx, row, (step.name, id_), text, shown, expires))

        return await self._park(op)

    async def _relay(self, asked: operations.RelayQuestion) -> bytes:
        """Ask the principal what another agent asks, like `_ask`."""
        step, recorded = await self._find_question(asked)
        if recorded is not None:
            return journal.json_of(recorded)
        original, id_ = read(asked.question, Confirm, Input), leases.new_instance()
        assert isinstance(original, Confirm | Input)

        def op(tx: Transaction, row: Row) -> None:
            tx.publish(ask_relayed(tx, row, original, id_, step.name))

        return await self._park(op)

    async def _find_question(
        self,
        asked: operations.AskPrincipal | operations.AskConfirmation | operations.RelayQuestion,
    ) -> tuple[StepId, Recorded | None]:
        await self._enter(asked)
        if _in_step.get() is self:
            raise UsageError(
                f"The skill {self.skill.name} asks a question inside a step, which would have"
                " to wait for the answer: ask before the step, and pass it the answer."
            )
        step, recorded = self._steps.find(asked, branch=self._in_branch())
        if recorded is None:
            self._steps.check_questions()
            if self.request.mode == "inline":
                self._refused = errors.confirmation_unavailable()
                raise Parked
        return step, recorded

    async def _sleep(self, sleep: operations.Sleep) -> None:
        step, recorded = await self._find(sleep)
        seconds = sleep.seconds
        if recorded is not None:
            return
        if seconds < _SHORTEST_PARK_S or self.request.mode == "inline":
            await anyio.sleep(seconds)
            return

        def op(tx: Transaction, row: Row) -> None:
            row.not_before = tx.steady + round(seconds * 1000)
            ended = Recorded(journal.succeeded(row.not_before), step.input)
            journal.end_step(tx, row, step.name, ended)

        await self._park_until(op)

    async def _start(
        self, start: operations.StartTask, terms: operations.ChildTerms | None = None
    ) -> str:
        step, recorded = await self._find(start)
        if start.shown_as:
            if "/" in start.shown_as or start.shown_as in self._shown_as:
                raise UsageError(
                    f"A child task is shown as {start.shown_as!r}, which has a slash or is used"
                    " for another child task: pass another shown_as=… for each."
                )
            self._shown_as.add(start.shown_as)
        if recorded is None:
            try:
                child = await self._child(start, terms)
                async with self._lock:
                    self._check()
                    if self.row is None:
                        await self._need_row(announced=False)
                    resumes = "" if terms is None else terms.resumes
                    recorded = await self._create(step, child, start.delay_s, resumes)
                    self._steps.done[step.name] = recorded
            except SkillError as error:
                # A skill that goes on without this child must not get it when it runs again.
                await self._finish(step, journal.refused(error))
                raise
        return journal.result_of(recorded, str)

    async def _confirm_tasks(self, asked: operations.ConfirmTasks) -> None:
        """Ask the principal about several child tasks, in as few questions as possible."""
        step, recorded = await self._find(operations.RunStep("confirm tasks", True, b"", None))
        if recorded is None:
            found: list[Decided] = []
            needed = await self._to_confirm(asked.calls)
            for number, group in enumerate(several_calls.groups(needed)):
                decision = await self._decision(number, group)
                found += [msgspec.structs.replace(one.decided, decision=decision) for one in group]
            recorded = await self._finish(step, journal.succeeded(found))
        for one in journal.result_of(recorded, list[Decided]):
            self._decided[one.skill, one.params] = one

    async def _to_confirm(self, calls: Sequence[operations.StartTask]) -> list[CallToStart]:
        """Return the child tasks that the principal of this task, and nobody else, has to confirm.
        What a model may have been misled to is asked about alone, with a warning.
        """
        found: list[CallToStart] = []
        for call in calls if self.request.delegation is None else ():
            with contextlib.suppress(SkillError, StanzaError):  # its start says why
                child = await self._child(call)
                needed = await self._runtime.skills.approvers.find(child.request, child.skill)
                if needed is None or not needed.is_only_of(self.request.principal.bare):
                    continue
                if child.request.caller_context.asker != "misled model":
                    action = action_of(child.skill, child.arguments)
                    if await self._has_standing_approval(child, needed, action):
                        continue
                    values = parameters_of(action)
                    name = several_calls.name_of(child.skill)
                    decided = Decided(call.skill, call.params, name, values, needed)
                    found.append(CallToStart(child.skill, values, decided))
        return found

    async def _has_standing_approval(
        self, child: Admitted, needed: Confirmation, action: Action
    ) -> bool:
        standing = self._runtime.standing
        if standing is None:
            return False
        request = msgspec.structs.replace(child.request, confirmation=needed)
        starter = Starter(self.skill.name, None if self.row is None else self.row.parent)
        return await self._runtime.storage.read(
            lambda db: standing.applying(db, request, child.skill, action, starter) is not None
        )

    async def _decision(self, number: int, group: Sequence[CallToStart]) -> str:
        """Return the decision about several child tasks, or ask for it."""
        calls = several_calls.listed(group)
        digest = hashlib.sha256(msgspec.json.encode(calls, order="deterministic")).hexdigest()
        asked = operations.AskPrincipal(SEVERAL_CALLS.name, b"", None, f"{number} {digest}")
        step, recorded = await self._find_question(asked)
        if recorded is not None:
            return journal.result_of(recorded, str)
        id_, needed = (
            leases.new_instance(),
            several_calls.joint([one.decided.needed for one in group]),
        )
        request = msgspec.structs.replace(self.request, confirmation=needed)

        def op(tx: Transaction, row: Row) -> None:
            expires = rows.moment(lapses(tx.now, needed.expires_s, row.deadline))
            confirm = confirm_for(
                *(request, SEVERAL_CALLS, calls),
                task=row.id,
                question=id_,
                expires=expires,
            )
            made = ask_question(tx, row, confirm, needed.asked, step.name)
            standing = self._runtime.standing
            if standing is not None and made.question is not None:
                standing.note_several(tx, request, confirm)
            tx.publish(made)

        return await self._park(op)

    async def _child(
        self, start: operations.StartTask, terms: operations.ChildTerms | None = None
    ) -> Admitted:
        """Admit a child task, which has no more rights than this one. Raises SkillError."""
        name = start.skill
        try:
            request, skill = self._permitted(start, terms)
            arguments = gate.arguments_of(request, skill)
            arguments = await gate.completed(request, skill, arguments)
        except NotPermitted as error:
            raise SkillError(error.text) from None
        except InvalidParam as error:
            raise SkillError(f"The skill {name} cannot be started: {error}") from error
        decided = self._decided.get((name, start.params))
        if decided is not None and decided.covers(skill, arguments):
            if decided.decision == "deny":
                raise SkillError(errors.denied().text or "It was declined.")
            request = msgspec.structs.replace(request, undecided=False, confirmation=decided.needed)
        return Admitted(request, skill, arguments)

    def _permitted(
        self, start: operations.StartTask, terms: operations.ChildTerms | None
    ) -> tuple[Request, Skill]:
        """Return the request of a child task, whose parameters are not checked yet, and its skill.
        Raises SkillError and NotPermitted.
        """
        name, mine, access = start.skill, self.request, self._runtime.skills
        is_internal = self._is_internal if terms is None else terms.is_internal
        terms = terms or operations.ChildTerms()
        internal = access.internal(name) if is_internal else None
        caller = mine.caller_context
        budget = budget_of(mine, self.task) or TurnBudget(caller.trace or self.task)
        if terms.budget_usd is not None:
            budget = TurnBudget(self.task, budget.payer, terms.budget_usd, budget.limit_tokens)
        caller = msgspec.structs.replace(
            caller,
            asker="approved" if terms.approved else "model",
            taints=tuple(sorted({*caller.taints, *terms.taints})),
            chosen=ITS_PARAMETERS,
            reserved=(),
            budget=budget,
        )
        request = msgspec.structs.replace(
            mine,
            skill=name,
            params=(),
            json=msgspec.Raw(start.params),
            mode="async",
            name=None,
            deadline=None,
            priority="normal",
            earlier=(),
            origin="child",
            caller_context=caller,
            confirmation=None,
            undecided=internal is None,
            shown_as=start.shown_as,
            parent="",
            about="",
            group=self.task if internal is not None and internal.queue else "",
        )
        if internal is not None and not caller.agent:
            caller = msgspec.structs.replace(caller, agent=access.agent_at(mine.target))
            request = msgspec.structs.replace(request, caller_context=caller)
        if internal is not None and terms.principal:
            person = JID.parse(terms.principal).bare
            caller = msgspec.structs.replace(caller, unrequested=True)
            request = msgspec.structs.replace(
                request, principal=person, requester=person, caller_context=caller
            )
        skill = internal or access.gate.visible(request)
        if skill is None or not access.may_use(request.principal, skill):
            raise SkillError(f"There is no skill called {printable(name, 64)}.")
        if internal is not None:
            return request, skill
        if terms.said is not None:
            request = gate.with_choices(request, skill, terms.said)
        return access.gate.passed(request, skill), skill

    async def _create(
        self, step: StepId, admitted: Admitted, delay_s: float, resumes: str
    ) -> Recorded:
        """Start a child task, which continues from the record of the child task `resumes`, if it is
        given. Raises SkillError.
        """
        task = leases.new_instance()
        request = changes.stored_request(admitted.request, admitted.arguments, self._limits)
        recorded = Recorded(journal.succeeded(task), step.input)

        def op(tx: Transaction, row: Row) -> None:
            self._runtime.open_tasks.check(tx, row.share, request)
            child = changes.new_row(tx, task, admitted.request, admitted.skill, request)
            child.parent, child.deadline, child.promoted = row.id, row.deadline, 1
            if delay_s > 0:
                child.not_before = tx.steady + round(delay_s * 1000)
            child.wake_at = rows.next_due(tx, child)
            failed = rows.load(tx, resumes) if resumes else None
            if failed is not None and failed.parent == row.id:
                child.origin = failed.origin or failed.id
            rows.put(tx, child)
            if child.origin is not None:
                journal.copy_results(tx, journal.read_journal(tx, resumes), child, {})
            if admitted.request.confirmation is not None:  # it was given together with others
                confirm = confirm_for(
                    *(admitted.request, admitted.skill, admitted.arguments),
                    task=task,
                    question=leases.new_instance(),
                    expires=rows.moment(tx.now),
                )
                question_rows.insert_approved(tx, child, confirm, self.request.principal)
            row.children += 1
            rows.update(tx, row)
            journal.end_step(tx, row, step.name, recorded)
            tx.queued(child)

        try:
            await self._guard(op)
        except StanzaError as error:
            raise SkillError(error.text or f"No child task can be started: {error}") from None
        return recorded

    async def _wait(self, wait: operations.WaitForTasks) -> bytes:
        step, recorded = await self._find(wait)
        tasks, until = wait.tasks, wait.until
        if recorded is None:
            mine = "" if self.row is None else self.row.id
            # A read that goes through the writer, so that it waits while the database is
            # unavailable.
            found = await self._runtime.commit(
                lambda tx: journal.results_of(tx, mine, tasks, until), keep_trying=True
            )
            if found is None:

                def op(tx: Transaction, row: Row) -> None:
                    row.waits = waiters.wait_for(tx, row.id, tasks, None, _EAGER[until])
                    if _EAGER[until] and journal.results_of(tx, row.id, tasks, until) is not None:
                        row.waits = 0

                await self._park_until(op)
            left = [one.task for one in found if not journal.has_ended(one)]
            cancelled = left if until == "success" else ()
            recorded = await self._finish(step, journal.waited(found, until), cancelled)
        return journal.json_of(recorded)

    async def _wait_for_event(
        self, wait: operations.WaitForEvent, is_pending: Callable[[Database], bool]
    ) -> NoReturn:
        """Leave the skill, and run it again when the event has happened."""
        await self._enter(wait)

        def op(tx: Transaction, row: Row) -> None:
            row.waits = waiters.wait_for_event(tx, row.id, wait.event, is_pending, wait.tasks)
            _show(tx, row, wait.plan, wait.progress)

        await self._park_until(op)

    # What plans do.

    async def _judge(self, asked: operations.JudgeTask, terms: operations.ChildTerms) -> Judged:
        """Say what would become of a child task."""
        call = operations.StartTask(asked.skill, asked.params, 0.0, None)
        try:
            if not asked.params:
                request, skill = self._permitted(call, terms)
                problem = ""
            elif asked.unfilled:
                request, skill = self._permitted(call, terms)
                problem = gate.wrong_names(skill, msgspec.json.decode(asked.params))
            else:
                child = await self._child(call, terms)
                request, skill, problem = child.request, child.skill, ""
            needed = await self._runtime.skills.approvers.find(request, skill)
        except (SkillError, NotPermitted) as error:
            return Judged(problem=str(error))
        except StanzaError as error:
            return Judged(problem=error.text or error.condition)
        asks = needed is not None and needed.is_only_of(self.request.principal.bare)
        return Judged(
            problem=problem,
            asks=asks,
            asks_others=needed is not None and not asks,
            repeatable=skill.repeatable,
            duration_s=skill.typical_duration,
            cost_usd=skill.cost_usd,
            taint=skill.taint,
        )

    async def _confirm(self, asked: operations.AskConfirmation) -> bytes:
        """Ask for the confirmation of what this task does next: this run ends here."""
        step, recorded = await self._find_question(asked)
        skill = self._runtime.skills.find(asked.skill)
        assert skill is not None, "it is one of the service itself"
        caller = msgspec.structs.replace(
            self.request.caller_context, asker="misled model" if asked.misled else "model"
        )
        request = msgspec.structs.replace(self.request, skill=skill.name, caller_context=caller)
        try:
            needed = await self._runtime.skills.approvers.find(request, skill)
        except StanzaError as error:
            raise SkillError(error.text or "Nobody can confirm it.") from None
        if recorded is None and needed is None:
            recorded = await self._finish(step, journal.decided("approve", ""))
        if recorded is not None:
            only = needed is None or needed.is_only_of(self.request.principal.bare)
            approved = journal.result_of(recorded, str) == "approve"
            return msgspec.json.encode(
                operations.Confirmed(approved, journal.reason_of(recorded), only)
            )
        assert needed is not None
        request = msgspec.structs.replace(request, confirmation=needed)
        values = msgspec.json.decode(asked.params, type=skill.inputs.type)
        id_ = leases.new_instance()

        def op(tx: Transaction, row: Row) -> None:
            expires = rows.moment(lapses(tx.now, needed.expires_s, row.deadline))
            confirm = confirm_for(
                *(request, skill, values), task=row.id, question=id_, expires=expires
            )
            tx.publish(ask_question(tx, row, confirm, needed.asked, step.name))

        return await self._park(op)

    async def _record_in_commit(
        self, asked: operations.Commit, op: Callable[[Database], Any]
    ) -> Any:
        """Change the database, the steps that callers see and the progress in one commit."""
        await self._enter(asked)
        made: list[Any] = []

        def change_all(tx: Transaction, row: Row) -> None:
            made[:] = [op(tx)]
            if made[0] is False:
                return
            if asked.cancel:
                changes.cancel_children(tx, row.id, asked.cancel)
            if asked.deadline is not None:
                latest = rows.milliseconds(asked.deadline)
                row.deadline = latest if row.deadline is None else min(row.deadline, latest)
            _show(tx, row, asked.plan, asked.progress)

        async with self._lock:
            self._check()
            if self.row is None:
                await self._need_row(announced=False)
            await self._guard(change_all)
        return made[0]

    async def _children(self, asked: operations.ReadChildren) -> Children:
        """Return the present outcomes of child tasks, and what the task has spent."""
        self._check()
        mine = "" if self.row is None else self.row.id
        found = await self._runtime.commit(
            lambda tx: journal.present_results(tx, mine, asked.tasks), keep_trying=True
        )
        spent = self._runtime.skills.spent
        amount = Amount() if spent is None else await spent(self.task)
        return Children(tuple(found), amount.usd, amount.tokens)

    async def _wait_for_first(self, wait: operations.WaitForFirst) -> NoReturn:
        """Leave the skill, and run it again when one of these tasks has ended."""
        await self._enter_internal(wait)

        def op(tx: Transaction, row: Row) -> None:
            left = waiters.wait_for(tx, row.id, wait.tasks, None, waiters.FIRST)
            row.waits = left if left == len(set(wait.tasks)) else 0

        await self._park_until(op)

    async def _keep_record(self, kept: operations.KeepRecord) -> None:
        """Add an entry to the record. The calls that follow may become tasks that are a part of
        this one, and end with it.
        """
        await self._enter_internal(kept)
        step = self._steps.next_entry(acts=kept.acts)
        await self._finish(step, journal.succeeded(msgspec.Raw(kept.entry)), has_parts=True)

    async def _read_record(self, read: operations.ReadRecord) -> list[bytes]:
        await self._enter_internal(read)
        return self._steps.entries()

    async def _ask_model(self, asked: operations.AskModel, check: Callable[[str], object]) -> str:
        await self._enter()
        if CAPABILITY not in self.skill.capabilities:
            raise CapabilityMissing(self.skill.name, CAPABILITY)
        schema = msgspec.Raw(asked.schema)
        question = operations.ModelQuestion(
            asked.prompt, schema, asked.max_tokens, check, asked.model
        )

        async def ask(_key: str) -> bytes:
            asking = self._runtime.skills.ask_model(self.request, self.task, question)
            try:
                outcome = operations.ModelOutcome(await asking)
            except operations.ModelFailed as failed:
                outcome = operations.ModelOutcome(str(failed), failed.problem, failed.later)
            if outcome.problem == "budget" and self._is_funded(outcome):
                # It is not recorded: a run that continues with more asks again.
                self._refused = self._exhausted(outcome)
                raise Parked
            return msgspec.json.encode(outcome)

        if self.skill.atomic:  # it never runs again
            made = await ask(self.key)
        else:
            made = await self._step(journal.model_step(asked), ask)
        outcome = msgspec.json.decode(made, type=operations.ModelOutcome)
        return outcome.answer()

    def _is_funded(self, outcome: operations.ModelOutcome) -> bool:
        """Return whether others have given the budget that does not suffice, and can give more."""
        budget = self.request.caller_context.budget
        is_of_parent = self.request.origin == "child" and not outcome.later
        limited = budget is not None and budget.limit_usd is not None
        return self.request.delegation is not None or (is_of_parent and limited)

    def _exhausted(self, outcome: operations.ModelOutcome) -> StanzaError:
        """Return the error of delegated work whose budget does not suffice (DLG-014). It says what
        was done until then, as the skill has reported it.
        """
        error = errors.budget_exhausted("later" if outcome.later else "budget")
        progress = self._progress
        if progress is None and self.row is not None and self.row.progress is not None:
            progress = read(self.row.progress, Progress)
        if progress is not None and progress.text:
            error.text = f"{error.text} Until then: {progress.text.rstrip('.')}."
        return error

    _handlers: ClassVar[Mapping[type[Operation], Callable[..., Coroutine[Any, Any, Any]]]] = {
        operations.ReportProgress: _report,
        operations.PublishPart: _publish,
        operations.RunStep: _step,
        operations.AskPrincipal: _ask,
        operations.RelayQuestion: _relay,
        operations.Sleep: _sleep,
        operations.StartTask: _start,
        operations.ConfirmTasks: _confirm_tasks,
        operations.WaitForTasks: _wait,
        operations.WaitForEvent: _wait_for_event,
        operations.WaitForFirst: _wait_for_first,
        operations.KeepRecord: _keep_record,
        operations.ReadRecord: _read_record,
        operations.AskModel: _ask_model,
        operations.JudgeTask: _judge,
        operations.AskConfirmation: _confirm,
        operations.Commit: _record_in_commit,
        operations.ReadChildren: _children,
    }

    # How operations begin, and how the run parks.

    def _check(self) -> None:
        """Raise Parked if the run is over, or has to end."""
        if (
            self._over
            or self._parked
            or self._refused is not None
            or self._stopped in ("lost", "drain")
        ):
            raise Parked

    async def _enter(self, operation: Operation | None = None) -> None:
        """Wait while another branch is about to park. Raises Parked, and UsageError if the
        operation needs a skill that can run again.
        """
        while self._parking is not None:
            await self._parking.wait()
        self._check()
        if operation is not None and self.skill.atomic:
            method = METHODS[type(operation)]
            raise UsageError(
                f"The skill {self.skill.name} uses context.{method}, for which it must be able"
                " to run again from its beginning: declare it with durable=True and put all its"
                " effects into steps, or read_only=True or idempotent=True if that is what it is."
            )

    async def _enter_internal(self, operation: Operation) -> None:
        """Begin an operation that is for skills of the service alone. Raises UsageError."""
        await self._enter(operation)
        if not self._is_internal:
            method = METHODS[type(operation)]
            raise UsageError(f"The skill {self.skill.name} must not use context.{method}.")

    @property
    def _is_internal(self) -> bool:
        return self._runtime.skills.internal(self.skill.name) is self.skill

    async def _find(self, operation: StepOperation) -> tuple[StepId, Recorded | None]:
        """Begin an operation that is a step, and return its record, if it has ended already."""
        await self._enter(operation)
        return self._steps.find(operation, branch=self._in_branch())

    def _in_branch(self) -> bool:
        # A plain function runs in one thread, and so do its steps, one after another.
        return self.skill.kind == "async" and anyio.get_current_task().id != self._skill_task

    async def _park(self, op: Callable[[Transaction, Row], None]) -> NoReturn:
        """Commit what the task waits for, and raise Parked.

        A step in progress could have its effect after that is on disk, when its result can no
        longer be recorded. So this waits for steps in progress, and no other step begins.
        """

        def leave(tx: Transaction, row: Row) -> None:
            if row.state != "cancelling":
                op(tx, row)

        self._parking = anyio.Event()
        try:
            await self._quiet.wait()
            async with self._lock:
                self._check()
                if self.row is None or not self.row.promoted:
                    await self._need_row(announced=True)
                row = await self._guard(leave)
                if row.state == "cancelling":  # then it can no longer wait for anything
                    self.stop("cancel")
                else:
                    self._parked = True
        finally:
            self._parking.set()
            self._parking = None
        raise Parked

    async def _park_until(self, op: Callable[[Transaction, Row], None]) -> NoReturn:
        """Park until what `op` sets in the row: a time, or tasks or a turn that have to end."""

        def leave(tx: Transaction, row: Row) -> None:
            row.owner, row.fence, row.attempts = None, row.fence + 1, 0
            op(tx, row)
            if row.state in TERMINAL:  # its deadline has passed
                return
            row.wake_at = rows.next_due(tx, row)
            rows.update(tx, row)
            tx.queued(row)

        await self._park(leave)

    def _flush_later(self, wait: float) -> None:
        self._flushing = True

        async def flush() -> None:
            await anyio.sleep(wait)
            self._flushing = False
            with contextlib.suppress(Parked):  # it has been stopped, and ends by itself
                await self._write_progress()

        self._runtime.start(flush)

    async def _write_progress(self) -> None:
        """Commit the latest progress, if it was not written yet and the task has a visible row."""
        async with self._lock:
            progress, row = self._progress, self.row
            if self._over or self._parked or self._stopped == "lost":
                return
            if progress is None or row is None or not row.promoted:
                return
            self._progress = None
            self._progress_due = anyio.current_time() + _PROGRESS_S
            await self._guard(lambda tx, row: tx.publish(change(tx, row, row.state, progress)))

    # The row. What follows needs the lock.

    async def _need_row(self, *, announced: bool, step: StepId | None = None) -> None:
        """Ensure that the run has a row, or raise Parked if it cannot get one."""
        try:
            await self._promote(announced=announced, step=step)
        except StanzaError as error:
            if any(isinstance(one, errors.Retry) for one in error.application):
                self.stop("lost")  # a refusal that may be temporary is never a recorded answer
            else:
                self._refused = error
            raise Parked from None
        except (AlreadyError, LostError):
            self.stop("lost")
            raise Parked from None

    async def _promote(
        self, *, announced: bool, step: StepId | None = None, keep_trying: bool = True
    ) -> None:
        """Give the run a row, or announce the task that it has.

        `announced` answers the request with the task, so that its caller learns of it. A new task
        gets the steps that are done, and begins `step` in the same commit.

        Raises AlreadyError; StanzaError, if the task cannot be created; and StorageError, unless
        `keep_trying`.
        """
        mine, admitted = self.row, self.admitted
        request = ""
        if mine is None:
            request = changes.stored_request(admitted.request, admitted.arguments, self._limits)

        def op(tx: Transaction) -> tuple[Row, Accepted]:
            if mine is None:
                return self._become_task(tx, request, step, announced=announced)
            row = rows.current(tx, mine)
            accepted = changes.accepted_as(row, "accepted", tx.limits)
            tx.publish(*changes.reveal(tx, row))
            replay.accept_record(tx, row.id, accepted)
            return row, accepted

        tasks = () if mine is None else (mine.id,)
        row, accepted = await self._runtime.commit(
            op, tasks=tasks, keep_trying=keep_trying, by=self
        )
        self.row = row
        if announced:
            self._land(accepted)
        if mine is None:
            self._progress = None
            self.slot = self._runtime.slots.take(row.share)
        else:
            self._flush_later(0)  # progress from before the task was visible

    def _become_task(
        self, tx: Transaction, request: str, step: StepId | None, *, announced: bool
    ) -> tuple[Row, Accepted]:
        flight, key = self.flight, self.admitted.key
        if self.skill.repeatable:
            self._runtime.open_tasks.check(tx, self.request.share, request)
        row = changes.new_row(tx, self.task, self.request, self.skill, request)
        row.promoted = int(announced)
        accepted = changes.accepted_as(row, "accepted", tx.limits)
        tx.publish(changes.begin(tx, row, tx.instance, atomic=self.skill.atomic, new=True))
        for name, recorded in self._steps.done.items():
            journal.end_step(tx, row, name, recorded)
        for part in self._parts.all:
            if row.state == "running":
                tx.publish(changes.add_part(tx, row, part))
        if self._progress is not None and row.state == "running":
            tx.publish(change(tx, row, "running", self._progress))
        if step is not None and row.state == "running":
            journal.begin_step(tx, row, step)
        answer = accepted if announced else None
        if not self.skill.repeatable:
            expires = None if flight is None else flight.recorded
            replay.answer_record(tx, key, expires, answer, task=row.id)
        elif flight is not None and flight.left_s > 0:
            new = NewRecord(
                principal=row.principal,
                owner=tx.instance,
                expires=flight.expires(tx.steady),
                task=row.id,
                answer=answer,
            )
            found = replay.record(tx, key, new)
            if found is not None:
                raise AlreadyError(found)
            self._runtime.records.check(tx, row.principal)
        return row, accepted

    async def _guard(self, op: Callable[[Transaction, Row], None]) -> Row:
        """Commit a change, and return the row; raise Parked if the task is lost or has ended."""
        with contextlib.suppress(LostError):
            row = await self._change(op)
            if row is not None:
                return row
        self.stop("lost")
        raise Parked

    async def _change(
        self, op: Callable[[Transaction, Row], None], wanted: RecordedAnswer | None = None
    ) -> Row | None:
        """Commit a change, which `wanted` is meant to end, and return the row; None if the task has
        ended with this commit. It is tried until it succeeds. Raises LostError.
        """
        mine = self.row
        assert mine is not None

        def fenced(tx: Transaction) -> tuple[Row, Change | None]:
            row = rows.current(tx, mine)
            op(tx, row)
            return row, tx.changes[-1] if tx.changes else None

        row, last = await self._runtime.commit(fenced, tasks=(mine.id,), keep_trying=True, by=self)
        self.row = row
        if last is None or row.state not in TERMINAL:
            return row
        if not row.promoted:
            self._land(changes.ended_with(last, wanted))
        return None
