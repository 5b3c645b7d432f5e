"""Durable work, for the handlers."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from component.audit.protocol import NoRecord, Recorder
from component.skills.model_answers import ModelQuestion
from component.skills.threads import Threads
from component.storage.clock import seconds_since_boot
from component.storage.database import Database
from component.storage.errors import StorageError
from component.storage.notifications import Notification
from component.storage.storage import Storage
from component.tasks import admit, idempotency, inputs, instances, queries, questions, recent
from component.tasks.admission import TaskAdmission
from component.tasks.admit import TaskLimits
from component.tasks.membership import Membership
from component.tasks.outbox import UNSENT, EventSender
from component.tasks.protocol import (
    AskModel,
    Call,
    Listener,
    Naming,
    Question,
    SkillAccess,
    UncertainError,
    no_model,
)
from component.tasks.record_bound import RecordBound
from component.tasks.recording import record_changes, record_decision
from component.tasks.replay_cache import ReplayCache
from component.tasks.request_keys import RequestKey
from component.tasks.retention import DeletedTask, EndedTasks
from component.tasks.rows import size_of
from component.tasks.states import TERMINAL
from component.tasks.store import TaskStore, Transaction
from component.tasks.timer import Fallen, Timer, fall_due
from component.tasks.worker import Worker
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.task import Cancel, Events, InputAnswer, Task
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID

_log = structlog.get_logger("component.tasks")


class TaskService:
    """The durable work.

    `who` is a bare JID and `at` the component's address that it used: a task accepted at another
    address, or of another principal, is reported as unknown. Every method except `remembered`
    raises StorageError if the database refuses, and the methods that judge raise the StanzaError of
    the specification's table.

    Args:
        storage: reads and writes the rows.
        skills: the skills, and who may execute them.
        threads: runs plain skills.
        limits: the limits of the work.
        listener: sends messages about tasks.
        patience_s: seconds that old work waits for the first stream before it is resumed, so that
            it does not delay the connection.
        recorder: the audit log of ends and decisions.
        clock: seconds that do not jump, for answers in memory.

    Attributes:
        remembered: returns the recorded answer to a repetition, if it is in memory; never waits.
            Raises StanzaError: the recorded error, or `conflict` for other content.
        remember: records the outcome of an inline skill that is repeatable; never waits.
        ask_model: asks a model for a skill; the root connects it.
        noticed: is called with what a person was told about a task that was set aside; the root
            connects it, too. Raises StorageError.
    """

    def __init__(
        self,
        storage: Storage,
        skills: SkillAccess,
        threads: Threads,
        limits: TaskLimits,
        listener: Listener,
        patience_s: float = 0.0,
        recorder: Recorder = NoRecord(),  # noqa: B008 - it holds nothing
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._storage = storage
        self._limits = limits
        self._patience_s = patience_s
        self._recorder = recorder
        self.ask_model: AskModel = no_model
        self.noticed: Callable[[Notification], Awaitable[None]] = _nothing
        self._connected = anyio.Event()
        self._group: TaskGroup | None = None
        self._shared = False
        records = RecordBound(limits.records_per_principal, limits.retry_after_s)
        self._store = TaskStore(
            storage, self._publish, self._has_slots, limits.retention_ms, records
        )
        self._timer = Timer(self._settle_due)
        self._membership = Membership(
            self._store,
            lambda: storage.place,
            limits.retention_ms,
            queued=self.requeued,
            overdue=self._timer.wake,
            evicted=self._taken_over,
        )
        self._worker = Worker(
            self._store,
            limits,
            threads,
            lambda: self.instance,
            # Without other instances and late sources, nobody else will have the skill of a task.
            replace(
                skills, names=lambda: skills.names() if self._shared or skills.late() else None
            ),
            self._ask_model,
            self._notice,
        )
        cache = ReplayCache(limits.replay_s, clock=clock)
        self.remembered = cache.get
        self.remember = cache.put
        self._admission = TaskAdmission(self._store, limits, self._worker, cache)
        self._event_sender = EventSender(storage, listener)
        self._skew: int | None = None
        """How far the wall clock was ahead of the steady clock when the timer last looked."""
        self.on_deleted: Callable[[DeletedTask], None] = lambda _: None
        self._ended = EndedTasks(storage, limits.kept, limits.replay_ms, self.deleted)

    @property
    def instance(self) -> str:
        """The name of this instance among those that share the database."""
        return self._membership.instance

    async def _ask_model(self, call: Call, task: str, question: ModelQuestion) -> str:
        # The root connects `ask_model` later.
        return await self.ask_model(call, task, question)

    async def _notice(self, notice: Notification) -> None:
        try:
            await self.noticed(notice)
        except StorageError as error:
            _log.warning("a notice is not in its conversation", reason=str(error))

    def _has_slots(self) -> bool:
        return self._worker.slots.free > 0 and not self._worker.draining

    def deleted(self, task: DeletedTask) -> None:
        """A task that its principal could see was deleted, since it is stored no longer."""
        self.on_deleted(task)

    # Life cycle.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled; started once it accepts calls.

        Raises StorageError: the database refuses at the start.
        """
        self._shared, records = await self._store.commit(
            lambda tx: (self._membership.join(tx), _any_records(tx))
        )
        self._admission.know_records(self._shared or records)
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                self._worker.start(group)
                await self._work(group, task_status)
        finally:
            self._group = None
            self._worker.stopped()

    async def _work(self, group: TaskGroup, task_status: TaskStatus[None]) -> None:
        group.start_soon(self._event_sender.run)
        if self._shared:
            group.start_soon(self._membership.run)
            await group.start(self._listen, self._membership.channel, self._wake)
            await group.start(self._listen, instances.CHANNEL, self._stop_cancelled)
            await group.start(self._listen, UNSENT, self._keep_telling)
        task_status.started()
        with anyio.move_on_after(self._patience_s):
            await self._connected.wait()
        group.start_soon(self._timer.run)
        group.start_soon(self._ended.run)
        self._worker.start_claiming()
        self._worker.wake()
        await anyio.sleep_forever()

    async def connected(self) -> None:
        """Send what could not be sent before, now that there is a stream. Raises StorageError."""
        self._connected.set()
        if self._group is not None:
            await self._send_unsent()

    async def drain(self) -> None:
        """Let executions end, or stop them, and leave the cluster; see `Worker.drain`."""
        await self._worker.drain()
        try:
            await self._event_sender.flush()
            await self._store.commit(self._membership.leave)
            await self._event_sender.flush()
        except StorageError as error:
            _log.warning("could not shut down cleanly; the next start recovers", reason=str(error))

    # Other instances.

    def _taken_over(self) -> None:
        """Resume the released work of a dead instance, and send the events that it committed and
        did not send.
        """
        self._worker.wake()
        self._start(self._keep_telling)

    async def _listen(
        self,
        channel: str,
        heard: Callable[[], Coroutine[Any, Any, None]],
        *,
        task_status: TaskStatus[None],
    ) -> None:
        """Call `heard` whenever another instance notifies a channel."""
        async with self._storage.listen(channel) as notified:
            task_status.started()
            async for _ in notified:
                await heard()

    async def _wake(self) -> None:
        """Claim tasks that another instance has queued and cannot run."""
        self._worker.wake()
        if not self._has_slots():  # this one has no slot either
            await self._store.commit(
                lambda tx: instances.wake_one(tx, but=self.instance), keep_trying=True
            )

    async def _stop_cancelled(self) -> None:
        """Stop executions of tasks that another instance has cancelled."""
        self._timer.wake()
        mine = await self._store.commit(
            lambda tx: instances.being_cancelled(tx, self.instance), keep_trying=True
        )
        for task in mine:
            execution = self._worker.of(task)
            if execution is not None:
                execution.stop("cancel")

    # After a commit.

    def _publish(self, committed: Transaction, by: object) -> None:
        changes, rows = committed.changes, committed.rows
        record_changes(self._recorder, changes)
        self._worker.observe(changes, rows, by)
        self._event_sender.send(changes)
        for made in changes:
            if made.row.state in TERMINAL:
                self._ended.add(made.row.principal, size_of(made.row))
        for principal, size in committed.answers:
            self._ended.add(principal, size)
        if any(made.row.due is not None for made in changes) or any(row.due for row in rows):
            self._timer.wake()

    async def _settle_due(self) -> int | None:
        retention_ms = self._limits.retention_ms

        def op(tx: Transaction) -> Fallen:
            fallen = fall_due(tx, retention_ms=retention_ms, skew=self._skew)
            tx.publish(*fallen.changes)
            if fallen.ready:
                tx.wake_others()
            return fallen

        fallen = await self._store.commit(op, keep_trying=True)
        self._skew = fallen.skew
        for principal in fallen.ready:
            self._worker.wake(principal)
        return fallen.next_ms

    async def _send_unsent(self) -> None:
        """Send what could not be sent before.

        Raises StorageError; then it is tried again until it succeeds.
        """
        try:
            await self._event_sender.send_unsent()
        except StorageError:
            self._start(self._keep_telling)
            raise

    async def _keep_telling(self) -> None:
        while True:
            try:
                return await self._event_sender.send_unsent()
            except StorageError:
                await anyio.sleep(instances.HEARTBEAT_S)

    def _start(self, work: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        # otherwise the service has stopped, and the next start does this
        if self._group is not None:
            self._group.start_soon(work, *args)

    # Requests.

    async def repeated(self, key: RequestKey) -> Result | Accepted | None:
        """Return the recorded answer to a repetition, from memory or disk; None if this is new
        work.

        Waits for the first request, if that is still in progress. Raises StanzaError: the recorded
        error, `conflict`, `busy`, or `outcome-unknown`.
        """
        return await self._admission.repeated(key)

    async def execute(self, call: Call) -> Result | Accepted:
        """Run a skill, within the inline limit or as a task (specification, "Execution").

        Raises StanzaError, which is recorded if the work had begun.
        """
        return await self._admission.execute(call)

    def requeued(self) -> None:
        """A task was queued by another part of the service: claim it soon. Never waits."""
        self._worker.wake()

    def skills_changed(self) -> None:
        """Claim the tasks that waited for other skills, or for a late source. Never waits."""
        self._worker.skills_changed()

    async def withdraw(self, key: str) -> bool:
        """Cancel the work of a request, whether it is a task or not; return False if it is not in
        progress.

        `key` is the text of its key.
        """
        execution = self._worker.of_request(key)
        if execution is not None and execution.row is None:
            execution.stop("cancel")
            return True
        retention_ms = self._limits.retention_ms

        def op(tx: Transaction) -> bool:
            found = idempotency.find(tx, key)
            if found is None or found.task is None:
                return False
            row = admit.the_row(tx, found.task)
            changes = instances.cancel_row(tx, row, retention_ms=retention_ms)
            tx.publish(*changes)
            return bool(changes)

        return await self._store.commit(op)

    # Tasks.

    async def earlier(self, who: JID, at: JID, tasks: Sequence[str]) -> bool:
        """Return whether all of these are tasks of the principal."""
        return await self._store.read(lambda db: queries.earlier(db, who, at, tasks))

    async def get(self, who: JID, at: JID, task: str) -> Task:
        """Return the whole task. Raises StanzaError: `unknown-task`."""
        found = await self._store.read(lambda db: queries.get(db, who, at, task))
        if found is None:
            raise errors.unknown_task()
        return found

    async def list(self, who: JID, at: JID, query: TaskList) -> TaskList:
        """Return one page of the principal's tasks, the latest first."""
        return await self._store.read(
            lambda db: queries.list_(db, who, at, query, self._limits.kept, self._limits.page_room)
        )

    async def events(self, who: JID, at: JID, query: Events) -> Events:
        """Return one page of a task's events since a revision. Raises StanzaError:
        `unknown-task`.
        """
        found = await self._store.read(
            lambda db: queries.events(db, who, at, query, self._limits.page_room)
        )
        if found is None:
            raise errors.unknown_task()
        return found

    async def cancel(self, who: JID, at: JID, query: Cancel) -> Task:
        """Cancel a task, and return the task after that. Raises StanzaError: `unknown-task`."""
        retention_ms = self._limits.retention_ms

        def op(tx: Transaction) -> Task:
            row = queries.find(tx, who, at, query.id, lock=True)
            if row is None:
                raise errors.unknown_task()
            tx.publish(*instances.cancel_row(tx, row, retention_ms=retention_ms))
            return queries.whole_task(tx, row)

        return await self._store.commit(op, tasks=(query.id,))

    async def answer(
        self, who: JID, at: JID, answer: InputAnswer, naming: Naming | None = None
    ) -> Task:
        """Answer a question of a task (INP-010), and return the task after that. Raises
        StanzaError.

        `naming` is given for words that do not contain the question's identifier. Raises
        UncertainError, and changes nothing, if they may be meant for another question.
        """
        slot = self._worker.try_slot(str(who.bare))
        taken = False
        words = self._in_words(who, naming)
        try:
            judged = await self._judge(
                lambda db: inputs.answer(
                    *(db, who, at, answer),
                    owner=None if slot is None else self.instance,
                    retention_ms=self._limits.retention_ms,
                    words=words,
                ),
                answer.task,
            )
            made = judged.change
            if slot is not None and made is not None and made.row.state == "running":
                self._worker.take_up_soon(made.row, slot)
                taken = True
        finally:
            if slot is not None and not taken:
                slot.release()
        if judged.uncertain:
            raise UncertainError
        if judged.error is not None:
            raise judged.error
        assert judged.task is not None
        return judged.task

    async def decide(
        self,
        who: JID,
        at: JID,
        decision: Decision,
        lang: str | None = None,
        naming: Naming | None = None,
    ) -> None:
        """Decide a confirmation (CNF-032). `naming` and the errors are as for `answer`; only
        approvals are checked against it.
        """
        words = self._in_words(who, naming)
        # The task does not run at once: before it runs, the principal's permission is checked again
        # (CNF-042).
        judged = await self._judge(
            lambda db: inputs.decide(
                *(db, who, at, decision),
                owner=None,
                retention_ms=self._limits.retention_ms,
                lang=lang,
                words=words,
            )
        )
        record_decision(self._recorder, who, decision, judged)
        if judged.uncertain:
            raise UncertainError
        if judged.error is not None:
            raise judged.error

    def _in_words(self, who: JID, naming: Naming | None) -> inputs.InWords | None:
        """Return the rules for an answer of `who` that names its question by `naming`; None if
        there are none.
        """
        if naming is None:
            return None
        sent = self._event_sender.questions_to(who)
        return inputs.InWords(naming, self._limits.certainty, sent)

    async def _judge(
        self, judge: Callable[[Database], inputs.Judgement], *tasks: str
    ) -> inputs.Judgement:
        def op(tx: Transaction) -> inputs.Judgement:
            judged = judge(tx)
            if judged.change is not None:
                tx.publish(judged.change)
            return judged

        return await self._store.commit(op, tasks=tasks)

    async def open_questions(self, who: JID, at: JID) -> Sequence[Question]:
        """Return the open questions that this address has asked the bare JID `who`."""
        return await self._store.read(lambda db: questions.open_questions(db, who, at))

    async def returned(self, who: JID, at: JID, question: str) -> None:
        """Record that the message of a question to `who` was returned as an error. Raises
        StorageError.
        """
        # Most returned messages are no questions, and a read costs less than a commit.
        if await self._store.read(lambda db: recent.is_open(db, question, who, at)):
            await self._store.commit(lambda tx: recent.returned(tx, question, who, at))

    async def was_asked(self, who: JID, at: JID, name: str) -> bool:
        """Return whether a question that `who` was asked, by its id or thread, is closed."""
        return await self._store.read(lambda db: questions.was_asked(db, who, at, name))


def _any_records(database: Database) -> bool:
    return database.execute("SELECT 1 FROM replay LIMIT 1").fetchone() is not None


async def _nothing(_notice: Notification) -> None:
    """No conversation has notices."""
