"""Implements the Context that a skill uses during its execution.

Progress, artifacts, steps, questions, timers and child tasks. Each is identified and recorded, so
that a later execution of the task continues from there (`component.tasks.journal`).
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Literal, NoReturn, TypeVar

import anyio
import msgspec

from component.skills.context import Context
from component.skills.durable import ChildResult, Parked, Work
from component.skills.errors import (
    CapabilityMissing,
    Denied,
    InvalidParam,
    SkillError,
    StepFailed,
    UsageError,
)
from component.skills.model_answers import CAPABILITY, ModelFailed, ModelOutcome, ModelQuestion
from component.skills.schema import object_schema
from component.skills.schema_inputs import checked_schema
from component.skills.skill import Skill
from component.skills.threads import Threads
from component.tasks import journal
from component.tasks.admit import TaskLimits
from component.tasks.by_reference import Share
from component.tasks.journal import (
    ATOMIC,
    Journal,
    Recorded,
    StepId,
    Steps,
    described,
    failed,
    refused,
    result_of,
    succeeded,
    waited,
)
from component.tasks.protocol import AskModel, Call
from component.tasks.replay_cache import Flight
from component.tasks.rows import Row
from component.tasks.states import LostError
from component.tasks.store import TaskStore
from component.tasks.writer import AlreadyError, CancellingError, SettledError, TaskWriter
from xep.binding.escaping import without_forbidden
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output
from xep.fluux_agent.task import Progress
from xep.stanza_error import StanzaError

T = TypeVar("T")

Stop = Literal["cancel", "deadline", "limit", "lost", "drain"]
"""Why an execution is stopped: its caller cancels it; the deadline has passed; the IQ cannot wait
any longer and the mode is inline; another instance has taken the task over; the service stops.
"""

_SHORTEST_PARK_S = 1.0
"""A shorter sleep is not worth two commits."""

_in_step: ContextVar["ContextHost | None"] = ContextVar("in_step", default=None)
"""The execution whose step is running in this context."""


class ExecutionServices(msgspec.Struct, frozen=True):
    """What executions use of the service that runs them.

    `instance` gives the name of this instance, `promoted` is called when an execution gets a task
    row, `start` starts a function concurrently with the execution, and `child_call` makes the call
    of a child task; it raises SkillError if the call is invalid. `ask_model` asks a model, and
    `check` raises CapabilityMissing if a call must not run. `provide` gives a context the functions
    of the service that its skill declares. `share` puts a file of a result where others can get it.
    """

    store: TaskStore
    limits: TaskLimits
    threads: Threads
    instance: Callable[[], str]
    promoted: Callable[["ContextHost"], None]
    start: Callable[..., None]
    child_call: Callable[[Call, str, Mapping[str, Any]], Call]
    ask_model: AskModel
    check: Callable[[Call, str], None]
    provide: Callable[[Skill, Context], None]
    share: Share


class ContextHost:
    """Serves the Context of one execution.

    Methods raise Parked to unwind the skill: because the execution is stopped, or waits for a
    person, a time or another task.

    Args:
        engine: what the execution uses of the service.
        call: the request.
        task: the id of its task, used once it has a row.
        flight: the request that waits for the answer, if one does.
        row: the row of the task, if it has one; it is running and owned by this instance.
        journal: the recorded steps of earlier executions of the task.
        parts: the artifact parts that they have produced.
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
    ) -> None:
        self.call = call
        self.task = task
        self.flight = flight
        self._engine = engine
        self._writer = TaskWriter(
            *(engine.store, engine.limits, engine.instance, call, task, self),
            flight=flight,
            row=row,
            parts=parts,
        )
        self._steps = Steps((None if row is None else row.origin) or task, journal)
        if self._writer.atomic:
            self._steps.under_way.add(ATOMIC)
        self._scope = anyio.CancelScope()
        self._recording: set[anyio.CancelScope] = set()
        """Cancel scopes of the steps whose results are being written."""
        self._skill_task: int | None = None
        """The id of the event loop's task that runs the skill."""
        self._stopped: Stop | None = None
        self._refused: StanzaError | None = None
        """The error that the execution ends with, whatever its skill returns."""
        self._parking: anyio.Event | None = None
        """Set when the execution has parked, or does not park after all; None if it is not about
        to.
        """
        self._parked = False
        self._over = False
        self._inside = 0
        """The number of steps in progress, including those without effects."""
        self._quiet = anyio.Event()
        """Set when no step is in progress."""
        self._quiet.set()
        self._flushing = False
        self._draining = False

    @property
    def row(self) -> Row | None:
        """The row of the task, if it has one."""
        return self._writer.row

    def stop(self, why: Stop) -> None:
        """Stop the execution as soon as the skill can be interrupted."""
        if self._stopped is None:
            self._stopped = why
        self._scope.cancel()

    def _leave_between_steps(self) -> None:
        """Stop a draining execution at a point from which its task can be resumed: between the
        steps of a durable skill, when no caller waits for an answer.
        """
        row, between = self.row, self.call.skill.durable and not self._inside
        if self._draining and between and row is not None and row.visible:
            self.stop("drain")

    # The methods of Context.

    @property
    def key(self) -> str:
        """The idempotency key of the whole call."""
        return self._steps.key_of(ATOMIC)

    @property
    def resumes(self) -> bool:
        """Whether another execution continues the call if this one is cancelled now: the service
        stops, in order or not, or has lost the task.
        """
        return self._stopped in (None, "drain", "lost")

    async def progress(self, fraction: float, text: str) -> None:
        """Report progress, at most once a second."""
        self._check()
        wait = self._writer.note_progress(
            Progress(
                fraction=round(Decimal(repr(float(fraction))), 4), text=without_forbidden(text)
            )
        )
        if not wait:
            await self._write_progress()
        elif not self._flushing:
            self._flush_later(wait)

    async def output(self, name: str, text: str, media_type: str, *, last: bool) -> None:
        """Publish a part of an artifact."""
        self._check()
        part = self._writer.parts.next(name, without_forbidden(text), media_type, last=last)
        if part is not None:
            await self._write(self._writer.show(part))

    async def step(
        self,
        name: str,
        work: Work[T],
        type: type[T],  # noqa: A002 - it is one
        *,
        repeatable: bool,
        key: str | int | None,
        input: object,  # noqa: A002 - the name that the author of a skill writes
    ) -> T:
        """Run a step once; return its recorded result if it has already run."""
        await self._enter()
        self._require_steps("step")
        step = self._steps.step(name, key, input, branch=self._in_branch())
        recorded = self._steps.done.get(step.name)
        if recorded is not None:
            return result_of(recorded, type)
        self._inside += 1
        self._quiet = anyio.Event()
        try:
            effects = not (repeatable or self._writer.repeatable)
            if effects:
                await self._begin(step)
            recorded = await self._do(name, step, work, effects=effects)
        finally:
            self._inside -= 1
            if not self._inside:
                self._quiet.set()
            self._leave_between_steps()
        return result_of(recorded, type)

    async def _begin(self, step: StepId) -> None:
        """Commit that a step with effects begins."""
        async with self._writer.lock:
            self._check()
            if self.row is None:
                await self._need_row(announced=False, step=step)
            else:
                await self._guard(self._writer.begin(step))
            if self._stopped is not None:  # then the step does not begin
                self._steps.unbegun.append(step.name)
                raise Parked
            self._steps.under_way.add(step.name)

    async def _do(self, name: str, step: StepId, work: Work[T], *, effects: bool) -> Recorded:
        """Run a step, and return its record."""
        outer = _in_step.set(self)
        try:
            result = succeeded(await work(self._steps.key_of(step.name)))
        except (Denied, InvalidParam, UsageError):
            raise
        except SkillError as error:
            await self._finish(step, refused(error))
            raise
        except Exception as error:
            await self._finish(step, failed(error, effects=effects))
            raise StepFailed(f"The step {name!r} failed: {described(error)}") from error
        finally:
            _in_step.reset(outer)
        return await self._finish(step, result)

    async def _finish(self, step: StepId, result: str) -> Recorded:
        """Commit how a step ended, even if the execution is being stopped."""
        recorded = Recorded(result, step.input)
        with anyio.CancelScope(shield=True) as recording:
            self._recording.add(recording)
            try:
                async with self._writer.lock:
                    if self.row is not None and not self._parked:
                        await self._guard(self._writer.finish(step, recorded))
                    self._steps.done[step.name] = recorded
                    self._steps.under_way.discard(step.name)
            finally:
                self._recording.discard(recording)
        return recorded

    async def ask(
        self,
        question: str,
        schema: type[Any] | Mapping[str, Any],
        expires_s: float | None,
        *,
        key: str | int | None,
    ) -> Any:
        """Ask the principal a question: this execution ends here, and the answer starts another
        one.
        """
        await self._enter()
        self._require_steps("ask")
        if _in_step.get() is self:
            raise UsageError(
                f"The skill {self.call.skill.name} asks a question inside a step, which would have"
                " to wait for the answer: ask before the step, and pass it the answer."
            )
        step = self._steps.question(question, key, branch=self._in_branch())
        recorded = self._steps.done.get(step.name)
        if recorded is not None:
            return result_of(recorded, dict[str, Any] if isinstance(schema, Mapping) else schema)
        self._steps.check_questions()
        if self.call.request.mode == "inline":
            self._refused = errors.confirmation_unavailable()
            raise Parked
        fields = checked_schema(schema) if isinstance(schema, Mapping) else object_schema(schema)
        shown = msgspec.Raw(msgspec.json.encode(fields))
        seconds = self._engine.limits.ask_expires_s if expires_s is None else expires_s
        await self._park(
            lambda: self._writer.ask(step, without_forbidden(question), shown, seconds)
        )
        raise Parked

    async def sleep(self, seconds: float, *, key: str | int | None) -> None:
        """Wait for a time; a long wait ends the execution."""
        await self._enter()
        self._require_steps("sleep")
        step = self._steps.sleep(key, branch=self._in_branch())
        if step.name in self._steps.done:
            return
        if seconds < _SHORTEST_PARK_S or self.call.request.mode == "inline":
            await anyio.sleep(seconds)
            return
        await self._park(lambda: self._writer.sleep(step, seconds))
        raise Parked

    async def start(
        self, skill: str, params: Mapping[str, Any], *, delay_s: float, key: str | int | None
    ) -> str:
        """Start a child task once, and return its id."""
        await self._enter()
        self._require_steps("start")
        step = self._steps.start(skill, key, params, branch=self._in_branch())
        recorded = self._steps.done.get(step.name)
        if recorded is None:
            call = self._engine.child_call(self.call, skill, params)
            async with self._writer.lock:
                self._check()
                if self.row is None:
                    await self._need_row(announced=False)
                recorded = await self._child(step, call, delay_s)
                self._steps.done[step.name] = recorded
        return result_of(recorded, str)

    async def _child(self, step: StepId, call: Call, delay_s: float) -> Recorded:
        try:
            return await self._writer.start(step, call, delay_s)
        except (LostError, SettledError):
            self.stop("lost")
            raise Parked from None
        except StanzaError as error:
            raise SkillError(error.text or f"No child task can be started: {error}") from None

    async def wait(
        self, tasks: Sequence[str], *, eager: bool, key: str | int | None
    ) -> list[ChildResult]:
        """Wait for child tasks; the execution ends while they run."""
        await self._enter()
        self._require_steps("wait")
        step = self._steps.wait(tasks, key, branch=self._in_branch())
        recorded = self._steps.done.get(step.name)
        if recorded is None:
            row = self.row
            mine = "" if row is None else row.id
            # A read that goes through the writer, so that it waits while the database is
            # unavailable.
            found = await self._engine.store.commit(
                lambda tx: journal.results_of(tx, mine, tasks, eager=eager), keep_trying=True
            )
            if found is None:
                await self._park(lambda: self._writer.wait(tasks, eager=eager))
                raise Parked
            recorded = await self._finish(step, waited(found, eager=eager))
        return result_of(recorded, list[ChildResult])

    async def wait_for_turn(self, turn: str) -> NoReturn:
        """Leave the skill, and run it again when a turn has ended or is not stored any more."""
        await self._enter()
        self._require_steps("wait_for_turn")
        await self._park(lambda: self._writer.wait_for_turn(turn))
        raise Parked

    async def llm(self, question: ModelQuestion, *, key: str | int | None) -> str:
        """Ask a model once."""
        await self._enter()
        skill = self.call.skill
        if CAPABILITY not in skill.capabilities:
            raise CapabilityMissing(skill.name, CAPABILITY)

        async def ask(_key: str) -> ModelOutcome:
            try:
                return ModelOutcome(await self._engine.ask_model(self.call, self.task, question))
            except ModelFailed as failed:
                return ModelOutcome(str(failed), failed.problem)

        if self._writer.atomic:  # it never runs again
            outcome = await ask(self.key)
        else:
            outcome = await self.step(
                "llm",
                ask,
                ModelOutcome,
                repeatable=True,
                key=key,
                input=[question.prompt, question.schema],
            )
        return outcome.answer()

    async def _park(self, writing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Write what the task waits for, and give up its ownership.

        A step in progress could have its effect after that is on disk, when its result can no
        longer be recorded. So this waits for steps in progress, and no other step begins.
        """
        self._parking = anyio.Event()
        try:
            await self._quiet.wait()
            async with self._writer.lock:
                self._check()
                row = self.row
                if row is None or not row.visible:
                    await self._need_row(announced=True)
                try:
                    await self._guard(writing())
                except CancellingError:
                    self.stop("cancel")
                else:
                    self._parked = True
        finally:
            self._parking.set()
            self._parking = None

    def _require_steps(self, what: str) -> None:
        if self._writer.atomic:
            raise UsageError(
                f"The skill {self.call.skill.name} uses context.{what}, for which it must be able"
                " to run again from its beginning: declare it with durable=True and put all its"
                " effects into steps, or read_only=True or idempotent=True if that is what it is."
            )

    def _in_branch(self) -> bool:
        """Return whether the caller runs in a parallel branch of the skill.

        A plain function runs in one thread, and so do its steps, one after another.
        """
        if self.call.skill.kind != "async":
            return False
        return anyio.get_current_task().id != self._skill_task

    # Stopping and writing.

    def _check(self) -> None:
        """Raise Parked if the execution is over, or has to end."""
        if (
            self._over
            or self._parked
            or self._refused is not None
            or self._stopped in ("lost", "drain")
        ):
            raise Parked

    async def _enter(self) -> None:
        """Wait while another branch is about to ask a question; raise Parked if it did."""
        while self._parking is not None:
            await self._parking.wait()
        self._check()

    async def _write(self, writing: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._writer.lock:
                self._check()
                await self._guard(writing)
        finally:
            writing.close()  # it was not started if the lock was not acquired

    async def _guard(self, writing: Awaitable[None]) -> None:
        """Write; raise Parked if the task is lost or has ended. Requires the lock."""
        try:
            await writing
        except (LostError, SettledError):
            self.stop("lost")
            raise Parked from None

    async def _need_row(self, *, announced: bool, step: StepId | None = None) -> None:
        """Ensure that the execution has a row, or raise Parked if it cannot get one."""
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
        is_new = await self._writer.promote(
            self._steps.done, announced=announced, step=step, keep_trying=keep_trying
        )
        if is_new:
            self._engine.promoted(self)
        else:
            self._flush_later(0)  # progress from before the task was visible

    def _flush_later(self, wait: float) -> None:
        self._flushing = True

        async def flush() -> None:
            await anyio.sleep(wait)
            self._flushing = False
            try:
                await self._write_progress()
            except Parked:
                return  # it has been stopped, and ends by itself

        self._engine.start(flush)

    async def _write_progress(self) -> None:
        async with self._writer.lock:
            if not (self._over or self._parked or self._stopped == "lost"):
                await self._guard(self._writer.write_progress())
