"""One execution of a call: runs the skill, and makes what it does durable as far as necessary.

An execution gets a task row only when it needs one: for a step with effects, for a question, or
because it takes longer than its IQ may. The skill does not notice. `component.tasks.host` is the
skill's side of it, `component.tasks.writer` writes.
"""

from collections.abc import Sequence

import anyio
import structlog

from component.skills.calling import call as call_skill
from component.skills.context import Context
from component.skills.durable import Parked
from component.skills.errors import CALL_ERRORS
from component.skills.outputs import SkillResult
from component.tasks.by_reference import CannotShare, fitting, least_size
from component.tasks.claims import Slot
from component.tasks.host import ContextHost, ExecutionServices
from component.tasks.idempotency import RecordedAnswer
from component.tasks.journal import ATOMIC, Journal
from component.tasks.outputs import checked, error_of, result_of
from component.tasks.protocol import Call
from component.tasks.replay_cache import Flight
from component.tasks.rows import Change, Row
from component.tasks.states import TERMINAL, LostError
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output, Result
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.tasks")


class Execution(ContextHost):
    """Runs one call.

    Args:
        engine: what the execution uses of the service.
        call: the request.
        task: the id of its task, used once it has a row.
        flight: the request that waits for the answer, if one does.
        row: the row of the task, if it has one; it is running and owned by this instance.
        journal: the recorded steps of earlier executions of the task.
        parts: the artifact parts that they have produced.
        slot: the slot that it runs in, if it has one.

    Attributes:
        ended: set when the execution has ended and holds no resources.
        slot: the slot that it runs in; an execution that gets a row gets a slot.
    """

    def __init__(
        self,
        engine: ExecutionServices,
        call: Call,
        task: str,
        *,
        flight: Flight | None = None,
        row: Row | None = None,
        journal: Journal | None = None,
        parts: Sequence[Output] = (),
        slot: Slot | None = None,
    ) -> None:
        super().__init__(engine, call, task, flight=flight, row=row, journal=journal, parts=parts)
        self.slot = slot
        self.ended = anyio.Event()
        self._ending = anyio.CancelScope(shield=True)
        self._failed = False

    async def run(self) -> None:
        """Run until the skill ends, is stopped, or has to wait for a person."""
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
            if self.flight is not None:
                self.flight.land(None)

    def observe(self, made: Change, answer: RecordedAnswer) -> None:
        """Handle a committed change by others: stop if the task has ended or is being cancelled."""
        if made.row.state == "cancelling":
            self.stop("cancel")
        elif made.row.state in TERMINAL and not self._over:
            self.stop("lost")
            if self.flight is not None:
                self.flight.land(answer)

    def superseded(self) -> None:
        """Stop because another execution is to resume the task, unless this one is already
        unwinding.
        """
        if not self._parked and self._parking is None:
            self.stop("lost")

    def drain(self) -> None:
        """Stop for a shutdown of the service, as soon as no work is lost.

        For a durable skill that is between two steps, when no caller waits for an answer: the task
        is resumed from there.
        """
        self._draining = True
        self._leave_between_steps()

    def give_up(self) -> None:
        """Cancel the execution even while it waits to write its end. The state on disk stays as it
        is.
        """
        self._scope.cancel()
        self._ending.cancel()
        for recording in tuple(self._recording):
            recording.cancel()

    async def announce(self) -> bool:
        """Turn the execution into a task that the caller knows of, and answer the request with it
        (EXE-016).

        Return False if the execution has ended in the meantime. Raises StorageError, AlreadyError,
        and StanzaError if the task cannot be created; the execution is then stopped, because nobody
        would see its result.
        """
        async with self._writer.lock:
            if self._over or self._parked or self._stopped is not None:
                return False
            row = self.row
            if row is not None and row.visible:
                return True
            try:
                await self._promote(announced=True, keep_trying=not self._writer.repeatable)
            except LostError:
                self.stop("lost")
                return False
            except BaseException:
                if self.row is None:
                    self.stop("lost")
                raise
        self._leave_between_steps()
        return True

    # Running the skill, and the end of the execution.

    async def _run_skill(self) -> RecordedAnswer | None:
        call = self.call
        self._skill_task = anyio.get_current_task().id
        context = Context(
            principal=str(call.principal),
            sender=str(call.requester),
            skill=call.skill.name,
            agent=call.caller_context.agent,
            taints=call.caller_context.taints,
            limits=call.caller_context.limits,
            trace=call.caller_context.trace,
            host=self,
        )
        try:
            self._engine.check(call, "" if self.row is None else self.task)
            self._engine.provide(call.skill, context)
            made = await call_skill(
                call.skill,
                call.arguments,
                context,
                self._engine.threads.share(context.principal),
                timeout=call.caller_context.timeout_s,
            )
            if call.on_result is not None and made.taints is not None:
                call.on_result(call.skill.taint_of(made))
            return await self._result_of(made)
        except CALL_ERRORS as error:
            if self._parked or self._refused is not None or self._stopped == "lost":
                return None
            self._failed = True
            return error_of(call.skill, error)
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
        """Return the result of the skill, with parts by reference if it would not fit."""
        most, name = self._engine.limits.result_bytes, self.call.skill.name
        try:
            made = await fitting(made, most, self._engine.share)
        except CannotShare as error:
            # `checked` measures it exactly; converting a large one would hold up everybody.
            if least_size(made) > most:
                _log.warning(
                    "a result is too large, and cannot be given by reference",
                    skill=name,
                    reason=str(error),
                )
                return errors.too_big(most)
        return result_of(self.call.skill, made)

    def _interrupted(self) -> StanzaError | None:
        """Return the error of an execution that was stopped before its skill ended; None if it was
        cancelled or will be resumed.
        """
        repeatable = self._writer.repeatable
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

    async def _end(self, ended: RecordedAnswer | None) -> None:
        """Commit how the execution ended, and answer the waiting request. Raises LostError."""
        async with self._writer.lock:
            self._over = True
            if self._stopped == "lost" or self._parked:
                return
            if isinstance(ended, Result):
                whole = self._writer.parts.completed(ended)
                ended = checked(self.call.skill, whole, self._engine.limits.result_bytes)
            if self._refused is not None:
                ended = self._refused
            # During a drain: the skill failed when it was about to be stopped anyway.
            ended_itself = self._stopped is None or (self._stopped == "drain" and self._failed)
            retry = self._writer.will_retry(ended) and ended_itself
            if retry and self._steps.under_way - {ATOMIC}:
                # A step was interrupted: by the skill's time-out, or because a parallel branch
                # failed.
                ended = errors.outcome_unknown()
            elif retry:
                if self.row is None or not self.row.visible:
                    await self._promote(announced=True)
                assert isinstance(ended, StanzaError)
                await self._writer.retry(ended)
                return
            await self._writer.end(
                ended, drained=self._stopped == "drain", unbegun=self._steps.unbegun
            )
