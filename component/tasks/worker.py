"""Runs tasks on this instance: claims queued ones while there are slots, one execution each."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup
from cachebox import FIFOCache

from component.skills import prepare
from component.skills.errors import InvalidParam, SkillError, printable
from component.skills.threads import Threads
from component.storage.notifications import Notification
from component.tasks import idempotency, instances
from component.tasks.admit import TaskLimits
from component.tasks.claims import (
    SUSPECT_ATTEMPTS,
    Claimant,
    Claimed,
    Slot,
    Slots,
    claim,
    unknown_skills,
)
from component.tasks.execution import Execution
from component.tasks.host import ContextHost, ExecutionServices
from component.tasks.protocol import AskModel, Call, SkillAccess
from component.tasks.replay_cache import Flight
from component.tasks.request_keys import NO_KEY
from component.tasks.resume import Verdict, resume, verdict_of
from component.tasks.rows import Change, Row, is_queued
from component.tasks.skill_call import SkillCall
from component.tasks.states import LostError
from component.tasks.store import TaskStore, Transaction
from component.tasks.waiting import report_waiting
from xep.fluux_agent import errors
from xep.stanza_error import StanzaError

_LAST_COMMITS_S: Final = 5.0
"""Seconds that executions have to write how they were interrupted, when the service stops."""

_MOST_UNFIT: Final = 1000

_log = structlog.get_logger("component.tasks")


class Worker:
    """Owns the executions on this instance.

    A task has at most one execution here: a task that is resumed waits until the previous execution
    has unwound. The slot of an execution is always released when it ends.

    Args:
        store: runs transactions on the rows.
        limits: the limits of durable work.
        threads: runs plain skills.
        instance: returns the name of this instance.
        skills: the skills, and who may execute them; it has their names only if other instances
            may have other ones.
        ask_model: asks a model for a skill.
        noticed: is called with what a person was told about a task that was set aside.

    Attributes:
        slots: the slots for tasks on this instance.
        draining: whether the service stops, and no more work starts.
    """

    def __init__(
        self,
        store: TaskStore,
        limits: TaskLimits,
        threads: Threads,
        instance: Callable[[], str],
        skills: SkillAccess,
        ask_model: AskModel,
        noticed: Callable[[Notification], Awaitable[None]],
    ) -> None:
        self.slots = Slots(limits.running_total, limits.running_per_principal, self._released)
        self.draining = False
        self._store = store
        self._limits = limits
        self._instance = instance
        self._skills = skills
        self._noticed = noticed
        self._engine = ExecutionServices(
            store,
            limits,
            threads,
            instance,
            self._promoted,
            self._start,
            self._child_call,
            ask_model,
            skills.check,
            skills.provide,
            skills.share,
        )
        self._group: TaskGroup | None = None
        self._executions: set[Execution] = set()
        self._by_task: dict[str, Execution] = {}
        self._idle = anyio.Event()
        """Set when the last execution has ended while the service stops, and none can start."""
        self._beginning = 0
        """The number of operations in progress that may start an execution."""
        self._queued = True
        """Whether there may be queued tasks."""
        self._behind = {""}
        """Principals that may have queued tasks; "" while it is unknown which."""
        self._work = anyio.Event()
        self._after = ""
        """The principal at which the last claim ended."""
        self._claiming_later = False
        self._unknown: set[tuple[str, bool]] = set()
        """Skills that tasks need and that this instance does not have, as they were logged: with
        late sources, or without.
        """
        self._told: set[str] = set()
        """Tasks whose callers were told that they wait for sources that are late now."""
        self._unfit: FIFOCache[str, None] = FIFOCache(_MOST_UNFIT)
        """Tasks that this instance cannot run and another one may."""

    def start(self, group: TaskGroup) -> None:
        """Run executions in the group; `start_claiming` takes up what is queued."""
        self._group = group

    def stopped(self) -> None:
        """Note that the task group has ended: nothing starts any more."""
        self._group = None
        self.draining = True

    def _start(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Start work in the task group. Raises StanzaError: the service has stopped; the next start
        does it.
        """
        if self._group is None:
            raise errors.busy(self._limits.retry_after_s)
        coroutine = work(*args)
        try:
            self._group.create_task(coroutine)
        except RuntimeError:  # the last task of the group has ended, and `stopped` is called next
            # On trio, anyio would leave a coroutine that was never awaited.
            coroutine.close()
            raise errors.busy(self._limits.retry_after_s) from None

    @property
    def instance(self) -> str:
        """The name of this instance."""
        return self._instance()

    def owns(self, owner: str | None) -> bool:
        """Return whether `owner` is this instance."""
        return owner == self._instance()

    # Executions.

    def of(self, task: str) -> Execution | None:
        """Return the execution of a task, if it runs on this instance."""
        return self._by_task.get(task)

    def of_request(self, key: str) -> Execution | None:
        """Return the execution of a request by its replay key, if it runs on this instance."""
        return next((one for one in self._executions if one.call.key.text == key), None)

    def serves(self, flight: Flight) -> bool:
        """Return whether an execution on this instance will answer this request."""
        return any(one.flight is flight for one in self._executions)

    def execute(
        self,
        call: Call,
        *,
        flight: Flight | None = None,
        row: Row | None = None,
        slot: Slot | None = None,
    ) -> Execution:
        """Start an execution, of a new task if it has a row; return it."""
        task = instances.new_instance() if row is None else row.id
        execution = Execution(self._engine, call, task, flight=flight, row=row, slot=slot)
        self._launch(execution)
        return execution

    def _launch(self, execution: Execution) -> None:
        self._executions.add(execution)
        if execution.row is not None:
            self._by_task[execution.task] = execution
        if self.draining:
            execution.drain()
        try:
            self._start(self._run, execution)
        except StanzaError:
            self._has_ended(execution)
            raise

    async def _run(self, execution: Execution) -> None:
        try:
            await execution.run()
        except Exception:  # noqa: BLE001 - a mistake here must not end everybody's work
            _log.exception(
                "an execution failed; its task is resumed at the next start",
                task=execution.task,
            )
        finally:
            self._has_ended(execution)

    def _has_ended(self, execution: Execution) -> None:
        """Remove an execution that has ended, or could not start, and release its slot."""
        self._executions.discard(execution)
        if self._by_task.get(execution.task) is execution:
            del self._by_task[execution.task]
        execution.ended.set()
        if execution.slot is not None:
            execution.slot.release()
        self._see_whether_idle()

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Count an operation that may start an execution, so that `drain` waits for that
        execution.
        """
        self._beginning += 1
        try:
            yield
        finally:
            self._beginning -= 1
            self._see_whether_idle()

    @property
    def _is_idle(self) -> bool:
        return not self._executions and not self._beginning

    def _see_whether_idle(self) -> None:
        if self.draining and self._is_idle:
            self._idle.set()

    def _child_call(self, parent: Call, name: str, params: Mapping[str, Any]) -> Call:
        """Return the call of a child task. Raises SkillError if it cannot be made."""
        skill = self._skills.find(name)
        if skill is None or not self._skills.may_use(parent.principal, skill):
            raise SkillError(f"There is no skill called {printable(name, 64)}.")
        asker = self._skills.asker_of_child(parent, skill)
        raw = msgspec.Raw(msgspec.json.encode(params))
        try:
            arguments = prepare(skill, (), bytes(raw))
        except InvalidParam as error:
            raise SkillError(f"The skill {name} cannot be started: {error}") from error
        request = SkillCall(
            skill=name,
            mode="async",
            context=parent.request.context,
            thread=parent.request.thread,
            json=raw,
        )
        return msgspec.structs.replace(
            parent,
            skill=skill,
            arguments=arguments,
            request=request,
            key=NO_KEY,
            origin="child",
            caller_context=msgspec.structs.replace(parent.caller_context, asker=asker, chosen=()),
            confirmation=None,
            undecided=True,
            on_result=None,
        )

    def _promoted(self, execution: ContextHost) -> None:
        """Count an execution that has become a task."""
        assert isinstance(execution, Execution)
        self._by_task[execution.task] = execution
        execution.slot = self.slots.take(str(execution.call.principal))

    def observe(self, changes: Sequence[Change], rows: Sequence[Row], by: object) -> None:
        """Apply committed changes to the executions here, except to `by`, which made them.

        `rows` are tasks that may have been queued without a published change.
        """
        for made in changes:
            execution = self._by_task.get(made.row.id)
            if execution is not None and execution is not by:
                execution.observe(made, idempotency.ended_with(made))
            for principal in made.ready:
                self.wake(principal)
        for row in (*(made.row for made in changes), *rows):
            if is_queued(row):
                self.wake(row.principal)
            if row.queue is not None and row.owner is None:
                self.wake()  # the next task in its queue may start

    # Which task runs next.

    def try_slot(self, principal: str) -> Slot | None:
        """Return a slot for a task of the principal, if it may start at once: a slot is free, and
        no queued task of anybody goes first.
        """
        behind, slots = self._behind, self.slots
        if self.draining or principal in behind or slots.free <= len(behind):
            return None
        return slots.take(principal) if slots.has(principal) else None

    def _released(self) -> None:
        if self._queued:
            self._work.set()

    def wake(self, principal: str = "") -> None:
        """Note that there may be queued tasks, of that principal or of anybody."""
        self._queued = True
        self._behind.add(principal)
        self._work.set()

    def skills_changed(self) -> None:
        """Note that there are other skills: tasks that this instance could not run may fit."""
        self._unfit.clear()
        self.wake()

    def start_claiming(self) -> None:
        """Claim queued tasks from now on, while there are slots."""
        self._start(self._claim)

    async def _claim(self) -> None:
        while True:
            await self._work.wait()
            self._work = anyio.Event()
            while self.slots.free and not self.draining:
                before, self._behind = self._behind, set()
                claimed = await self._claim_once()
                if claimed.more:
                    self._behind |= before
                for row in claimed.rows:
                    suspect = row.attempts >= SUSPECT_ATTEMPTS
                    self.take_up_soon(row, self.slots.take(row.principal, suspect=suspect))
                self._after = claimed.after
                if claimed.retry_ms is not None:
                    self._claim_after(claimed.retry_ms)
                if not claimed.rows or not claimed.more:
                    # A task that was queued in the meantime has set `_work` again.
                    self._queued = claimed.more or self._work.is_set()
                    break

    def _claim_after(self, milliseconds: int) -> None:
        """Claim again when a queue that has reached its rate lets the next task start."""
        if not self._claiming_later:
            self._claiming_later = True

            async def later() -> None:
                await anyio.sleep(milliseconds / 1000)
                self._claiming_later = False
                self.wake()

            self._start(later)

    async def _claim_once(self) -> Claimed:
        slots, after = self.slots, self._after
        claimant = Claimant(
            instance=self._instance(),
            skills=self._skills.names(),
            unfit=tuple(self._unfit.keys()),
            free=slots.free,
            share=self._limits.running_per_principal,
            running=dict(slots.running),
            bound=slots.bound,
            queues=self._limits.queues,
            suspect=not slots.suspects,
        )

        late = self._skills.late()
        if not late:
            self._told.clear()

        def op(tx: Transaction) -> tuple[Claimed, list[str], Sequence[str]]:
            claimed = claim(tx, claimant, after=after)
            if not claimed.more and len(claimed.rows) < claimant.free:
                instances.mark_idle(tx, claimant.instance)
            unknown = [] if claimed.rows else unknown_skills(tx, claimant)
            told: Sequence[str] = ()
            if unknown and late:
                told = report_waiting(
                    tx, claimant.instance, claimant.skills or (), late, self._told
                )
            return claimed, unknown, told

        claimed, unknown, told = await self._store.commit(op, keep_trying=True)
        self._told.update(told)
        for skill in unknown:
            if (skill, bool(late)) not in self._unknown:
                self._unknown.add((skill, bool(late)))
                if late:
                    _log.warning(
                        "tasks wait for a skill whose source may not be ready yet",
                        skill=skill,
                        sources=late,
                    )
                    continue
                _log.warning(
                    "tasks wait for a skill that this instance does not have: start an instance"
                    " that has it, or cancel them",
                    skill=skill,
                )
        return claimed

    def take_up_soon(self, row: Row, slot: Slot) -> None:
        """Resume a task that this instance owns, in a slot that was acquired for it."""
        self._start(self._take_up, row, slot)

    async def _take_up(self, row: Row, slot: Slot) -> None:
        with self.beginning():
            try:
                while (previous := self._by_task.get(row.id)) is not None:
                    # The task was answered, or lost and claimed again, while the old execution is
                    # still unwinding.
                    previous.superseded()
                    await previous.ended.wait()
                execution = await self._resume(row, slot)
                if execution is not None:
                    self._launch(execution)
                    return
            except LostError:
                pass  # it was cancelled, or its deadline passed, before it started
            except Exception:  # noqa: BLE001 - as above
                _log.exception("cannot resume a task", task=row.id)
            slot.release()

    async def _resume(self, row: Row, slot: Slot) -> Execution | None:
        verdict = verdict_of(row, self._skills.find, self._skills.may_use)
        if verdict.call is not None and verdict.call.undecided:
            verdict = await self._decide(verdict.call)
        question, limits = instances.new_instance(), self._limits
        late = bool(self._skills.late())
        resumed = await self._store.commit(
            lambda tx: resume(tx, row, verdict, self._instance(), question, limits, late=late),
            tasks=(row.id,),
            keep_trying=True,
        )
        if resumed.unfit:
            self._unfit[row.id] = None
            self.wake(row.principal)
        if resumed.notice is not None:
            await self._noticed(resumed.notice)
        if resumed.row.state != "running" or verdict.call is None or resumed.row.set_aside:
            return None
        return Execution(
            self._engine,
            verdict.call,
            row.id,
            row=resumed.row,
            journal=resumed.journal,
            parts=resumed.parts,
            slot=slot,
        )

    async def _decide(self, call: Call) -> Verdict:
        """Determine whether a call has to be confirmed, and by whom."""
        try:
            confirmation = await self._skills.approvers(call)
        except StanzaError as error:
            return Verdict(call, refusal=error)
        return Verdict(
            msgspec.structs.replace(call, undecided=False, confirmation=confirmation),
            self._skills.may_use(call.principal, call.skill),
            decided=True,
        )

    # Stopping.

    async def drain(self) -> None:
        """Let executions end, or reach a point at which they can be resumed; see `Execution.drain`.

        Those that take longer are stopped: one inside a step with effects ends as
        `outcome-unknown`, others are resumed at the next start as well.
        """
        self.draining = True
        for execution in tuple(self._executions):
            execution.drain()
        if not self._is_idle:
            with anyio.move_on_after(self._limits.drain_s):
                await self._idle.wait()
        for execution in tuple(self._executions):
            execution.stop("drain")
        if not self._is_idle:
            with anyio.move_on_after(_LAST_COMMITS_S):
                await self._idle.wait()
        for execution in tuple(self._executions):
            _log.warning(
                "an execution does not end", task=execution.task, skill=execution.call.skill.name
            )
            execution.give_up()
