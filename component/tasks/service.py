"""Durable work, for the handlers; and the membership of this instance in those that share a
database.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from component import system
from component.skills.skill import Skill
from component.store.clock import seconds_since_boot
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.store.storage import Storage
from component.tasks import (
    changes,
    journal,
    leases,
    queries,
    question_rows,
    questions,
    replay,
    rows,
)
from component.tasks.admission import Admission
from component.tasks.changes import TaskRuntime, Transaction, release_all
from component.tasks.events import UNSENT, EventSender, TaskRecords
from component.tasks.expiry import EndedTasks, Timer, expire_due
from component.tasks.gate import SkillAccess
from component.tasks.inline import InlineRequests
from component.tasks.protocol import Listener, Naming, Question, TaskLimits, UncertainError
from component.tasks.queries import Found
from component.tasks.question_rows import Answerer
from component.tasks.questions import SEVERAL_CALLS, Judgement
from component.tasks.receipts import MakeReceipt
from component.tasks.replay import ReplayCache
from component.tasks.request import Request, named_key, session_key
from component.tasks.rows import TERMINAL, Row
from component.tasks.standing import StandingApprovals
from component.tasks.worker import Worker
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Action, Decision
from xep.fluux_agent.execute import Output
from xep.fluux_agent.task import Cancel, Events, InputAnswer, Progress, Task
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID
from xep.stanza_error import StanzaError

T = TypeVar("T")

_log = structlog.get_logger("component.tasks")


class Clocks(msgspec.Struct, frozen=True):
    """The clocks of the task service; tests set them.

    `now` is for deadlines, `boot_s` does not jump, for answers in memory. Old work waits
    `stream_timeout_s` seconds for the first stream, so that it does not delay the connection.
    """

    now: Callable[[], datetime] = system.now
    boot_s: Callable[[], float] = seconds_since_boot
    stream_timeout_s: float = 0.0


class TaskService:
    """Runs skills, at once or as durable work.

    `who` is a bare JID and `at` the component's address that it used: a task accepted at another
    address, or of another principal, is reported as unknown. Every method raises StorageError if
    the database refuses, and the methods that judge raise the StanzaError of the specification's
    table.

    Attributes:
        execute: runs a skill: at once, within the inline limit, or as a task (specification,
            "Execution"); see `Admission.execute`.
        repeated: returns the recorded answer to a request; see `Admission.repeated`.
        skills_changed: claims the tasks that waited for other skills, or for a late source.
        policy_changed: finds anew for which skills a confirmation is needed.
        requeued: claims a task soon that another part of the service has queued.
        deleted: is called with each task that its principal could see and that was deleted.
    """

    def __init__(
        self,
        storage: Storage,
        skills: SkillAccess,
        limits: TaskLimits,
        listener: Listener,
        *,
        records: TaskRecords | None = None,
        clocks: Clocks = Clocks(),  # noqa: B008 - immutable
        standing: StandingApprovals | None = None,
    ) -> None:
        self._storage = storage
        self._limits = limits
        self._stream_timeout_s = clocks.stream_timeout_s
        self._records = records or TaskRecords()
        self._connected = anyio.Event()
        self._shared = False
        # Without other instances and late sources, nobody else will have the skill of a task.
        names = skills.names
        skills = replace(skills, names=lambda: names() if self._shared or skills.late() else None)
        self._runtime = TaskRuntime(storage, skills, limits, self._publish)
        self._runtime.standing = standing
        self._timer = Timer(self._settle_due, self._rest)
        self._worker = Worker(self._runtime)
        self._membership = Membership(
            *(self._runtime, self._worker.wake, self._timer.wake), evicted=self._start_telling
        )
        cache = ReplayCache(limits.replay_s, clock=clocks.boot_s)
        inline = InlineRequests(skills, self._records, clocks.boot_s)
        self.answer_inline, self.policy_changed = inline.answer, inline.policy_changed
        self._admission = Admission(
            *(self._worker, cache, self._records),
            accepted=listener.released,
            now=clocks.now,
        )
        self._event_sender = EventSender(storage, listener)
        self._skew: int | None = None
        """How far the wall clock was ahead of the steady clock when the timer last looked."""
        self.deleted = listener.deleted
        self._ended = EndedTasks(storage, limits, listener.deleted)
        self.execute = self._admission.execute
        self.repeated = self._admission.repeated
        self.skills_changed = self._worker.skills_changed
        self.requeued = self._worker.wake

    @property
    def instance(self) -> str:
        """The name of this instance among those that share the database."""
        return self._runtime.instance

    def sign_receipts(self, make: MakeReceipt) -> None:
        """Give delegated work a receipt when it ends, from now on."""
        self._runtime.make_receipt = make

    # Life cycle.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled; started once it accepts calls.

        Raises StorageError: the database refuses at the start.
        """
        runtime = self._runtime
        self._shared, any_records = await runtime.commit(
            lambda tx: (self._membership.join(tx), replay.any_records(tx))
        )
        self._admission.any_records = self._shared or any_records
        try:
            async with anyio.create_task_group() as group:
                runtime.group = group
                await self._work(group, task_status)
        finally:
            runtime.group = None
            runtime.draining = True

    async def _work(self, group: TaskGroup, task_status: TaskStatus[None]) -> None:
        group.start_soon(self._event_sender.run)
        if self._shared:
            group.start_soon(self._membership.run)
            await group.start(self._listen, self._membership.channel, self._wake)
            await group.start(self._listen, leases.CHANNEL, self._stop_cancelled)
            await group.start(self._listen, UNSENT, self._keep_telling)
        task_status.started()
        with anyio.move_on_after(self._stream_timeout_s):
            await self._connected.wait()
        group.start_soon(self._timer.run)
        group.start_soon(self._ended.run)
        group.start_soon(self._worker.claim)
        self._worker.wake()
        await anyio.sleep_forever()

    async def connected(self) -> None:
        """Send what could not be sent before. Raises StorageError; then it is tried again later."""
        self._connected.set()
        if self._runtime.group is None:
            return
        try:
            await self._event_sender.send_unsent()
        except StorageError:
            self._start_telling()
            raise

    async def drain(self) -> None:
        """Let executions end, or stop them, and leave the cluster; see `Worker.drain`."""
        await self._worker.drain()
        try:
            await self._event_sender.flush()
            await self._runtime.commit(self._membership.leave)
            await self._event_sender.flush()
        except StorageError as error:
            log_failure(_log, "could not shut down cleanly; the next start recovers", error)

    def _start_telling(self) -> None:
        # otherwise the service has stopped, and the next start does this
        if self._runtime.group is not None:
            self._runtime.group.start_soon(self._keep_telling)

    async def _keep_telling(self) -> None:
        while True:
            try:
                return await self._event_sender.send_unsent()
            except StorageError:
                await anyio.sleep(leases.HEARTBEAT_S)

    # Other instances.

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
        if not self._runtime.has_slots():  # this one has no slot either
            await self._runtime.commit(
                lambda tx: leases.wake_one(tx, but=self.instance), keep_trying=True
            )

    async def _stop_cancelled(self) -> None:
        """Stop executions of tasks that another instance has cancelled."""
        self._timer.wake()
        cancelling = "SELECT id FROM tasks WHERE owner = ? AND state = 'cancelling'"
        mine = await self._runtime.commit(
            lambda tx: rows.column(tx, cancelling, self.instance), keep_trying=True
        )
        for task in mine:
            run = self._worker.of(task)
            if run is not None:
                run.stop("cancel")

    # After a commit.

    def _publish(self, committed: Transaction, by: object) -> None:
        self._records.changed(committed.changes)
        self._records.recorded(committed.audited)
        self._worker.observe(committed, by)
        self._event_sender.send(committed.changes)
        for made in committed.changes:
            if made.row.state in TERMINAL:
                self._ended.add(made.row.principal, rows.size_of(made.row))
        for principal, size in committed.answers:
            self._ended.add(principal, size)
        if committed.has_timers:
            self._timer.wake()

    async def _settle_due(self) -> int | None:
        next_ms, self._skew = await self._runtime.commit(
            lambda tx: expire_due(tx, self._skew), keep_trying=True
        )
        return next_ms

    async def _rest(self, woken: anyio.Event, seconds: float, look_s: float) -> None:
        await self._storage.rest(woken, seconds, look_s, self._skew)

    # Requests.

    async def withdraw(self, requester: JID, target: JID, session: str) -> bool:
        """Cancel the work of a request of an ended session; return False if none is in progress."""
        key = session_key(requester, target, session)
        run = self._worker.of_request(key)
        if run is not None and run.row is None:
            run.stop("cancel")
            return True

        def op(tx: Transaction) -> bool:
            found = replay.find(tx, key)
            if found is None or found.task is None:
                return False
            made = changes.cancel(tx, rows.load_or_raise(tx, found.task))
            tx.publish(*made)
            return bool(made)

        return await self._runtime.commit(op)

    # Tasks.

    async def get(self, who: JID, at: JID, task: str) -> Task:
        """Return the whole task. Raises StanzaError: `unknown-task`."""
        return _known(await self._storage.read(lambda db: queries.get(db, who, at, task)))

    async def look_up(self, who: JID, at: JID, task: str) -> Found:
        """Return a task with what a model has to know of it. Raises StanzaError: `unknown-task`."""
        return _known(await self._storage.read(lambda db: queries.look_up(db, who, at, task)))

    async def request_of(self, task: str) -> Request:
        """Return the request of a task. Raises StanzaError: `unknown-task`."""
        row = await self._storage.read(lambda db: rows.load(db, task, lock=False))
        return rows.request_of(_known(row))

    async def at_rest(self, who: JID, at: JID, task: str) -> Found:
        """Return a task as soon as it has ended or waits for something, or as it is after the time
        for which a caller waits for a result. Raises StanzaError: `unknown-task`.
        """
        with self._worker.watching(task) as rests:
            found = await self.look_up(who, at, task)
            if found.rests:
                return found
            with anyio.move_on_after(self._limits.inline_s):
                await rests.wait()
        return await self.look_up(who, at, task)

    async def list(self, who: JID, at: JID, query: TaskList) -> TaskList:
        """Return one page of the principal's tasks, the latest first."""
        return await self._storage.read(lambda db: queries.list_(db, who, at, query, self._limits))

    async def events(self, who: JID, at: JID, query: Events) -> Events:
        """Return a page of a task's events. Raises StanzaError: `unknown-task`."""
        room = self._limits.page_room
        return _known(await self._storage.read(lambda db: queries.events(db, who, at, query, room)))

    async def cancel(self, who: JID, at: JID, query: Cancel) -> Task:
        """Cancel a task, or that of a request which has no answer yet (CAN-010), and return the
        task after that. Raises StanzaError: `unknown-task`.
        """

        task = query.id or ""
        if query.request is not None:
            task = await self._admission.task_of(named_key(who, at, query.request))

        def op(tx: Transaction) -> Task | None:
            row = rows.find(tx, who, at, task, lock=True)
            if row is None:
                return None
            tx.publish(*changes.cancel(tx, row))
            return queries.whole_task(tx, row)

        return _known(await self._runtime.commit(op, tasks=(task,)))

    async def retract(self, who: JID, at: JID, tasks: Sequence[str]) -> bool:
        """Cancel tasks, because what they do is no longer wanted, if none of them has done
        anything; else change nothing, and return False. A skill that only reads does nothing.
        """

        def op(tx: Transaction) -> bool:
            found = [rows.find(tx, who, at, task, lock=True) for task in sorted({*tasks})]
            mine = [row for row in found if row is not None]
            if len(mine) < len(found) or any(self._has_begun(tx, row) for row in mine):
                return False
            for row in mine:
                tx.publish(*changes.cancel(tx, row))
            return True

        return await self._runtime.commit(op, tasks=tasks)

    def _has_begun(self, tx: Transaction, row: Row) -> bool:
        skill = self._runtime.skills.find(row.skill)
        if row.skill != SEVERAL_CALLS and skill is not None and skill.annotations.read_only:
            return False
        parts: Sequence[Row] = ()
        if row.state == "running" and row.owner is None and row.waits:
            # What keeps a record has done what that says, and what the tasks do that it waits for.
            if not journal.has_record(tx, row.id):
                return True
            parts = rows.select(tx, "WHERE parent = ? ORDER BY id", (row.id,), rows.LOCK)
        elif row.state not in ("accepted", "input-required", "rejected") or row.tries:
            return True
        return journal.has_begun(tx, row.id) or any(self._has_begun(tx, one) for one in parts)

    # Questions.

    async def answer(
        self, who: JID, at: JID, answer: InputAnswer, naming: Naming | None = None, reason: str = ""
    ) -> Task:
        """Answer a question of a task (INP-010), and return the task after that.

        `reason` says why it is declined. `naming` is given for words that do not contain the
        question's identifier. Raises StanzaError; or UncertainError, and changes nothing, if they
        may be meant for another question.
        """
        slot = self._worker.try_slot(str(who.bare))
        by = self._with_sent(Answerer(who, at, naming=naming, reason=reason))
        owner = None if slot is None else self.instance
        try:
            judged = await self._judge(
                lambda tx: questions.answer(tx, by, answer, owner), answer.task
            )
            made = judged.change
            if slot is not None and made is not None and made.row.state == "running":
                self._worker.take_up_soon(made.row, slot)
                slot = None
        finally:
            if slot is not None:
                slot.release()
        _raise_refusal(judged)
        assert judged.task is not None
        return judged.task

    async def decide(
        self,
        who: JID,
        at: JID,
        decision: Decision,
        lang: str | None = None,
        naming: Naming | None = None,
    ) -> int:
        """Decide a confirmation (CNF-032); only approvals are checked against `naming`. Raises as
        `answer`. Return how many approvals are still needed.
        """
        return (await self.vote(Answerer(who, at, lang, naming), decision)).missing

    async def vote(self, by: Answerer, decision: Decision) -> Judgement:
        """Decide a confirmation, as `decide` does, and return the outcome."""
        by = self._with_sent(by)
        judged = await self._judge(lambda tx: questions.decide(tx, by, decision))
        self._records.decided(by.who, decision, judged)
        _raise_refusal(judged)
        return judged

    async def has_standing_approval(self, request: Request, skill: Skill, action: Action) -> bool:
        """Return whether a standing approval can be used for an action, which the person whom the
        request names would have to confirm otherwise.
        """
        standing = self._runtime.standing
        if standing is None:
            return False
        find = partial(standing.applying, request=request, skill=skill, action=action)
        return await self._storage.read(find) is not None

    async def withdraw_vote(self, by: Answerer, question: str) -> int:
        """Withdraw the approval that a person has given by a reaction, if the question is open.
        Return how many are needed now; 0 if nothing was withdrawn.
        """
        judged = await self._judge(lambda tx: questions.withdraw(tx, by, question))
        self._records.withdrawn(by.who, question, judged)
        return judged.missing

    async def ask_also(self, question: str, people: Iterable[JID]) -> None:
        """Ask more people an open confirmation; those who were asked before are not asked again."""

        def op(tx: Transaction) -> None:
            made = questions.ask_also(tx, question, people)
            if made is not None:
                tx.publish(made)

        await self._runtime.commit(op)

    async def fail_unanswerable(self, question: str, why: str) -> None:
        """Fail the task of an open confirmation that nobody can give; `why` is a sentence."""

        def op(tx: Transaction) -> None:
            made = questions.fail_unanswerable(tx, question, why)
            if made is not None:
                tx.publish(made)

        await self._runtime.commit(op)

    def _with_sent(self, by: Answerer) -> Answerer:
        return (
            by if by.naming is None else replace(by, sent=self._event_sender.questions_to(by.who))
        )

    async def _judge(self, judge: Callable[[Transaction], Judgement], *tasks: str) -> Judgement:
        def op(tx: Transaction) -> Judgement:
            judged = judge(tx)
            if judged.change is not None:
                tx.publish(judged.change)
            return judged

        return await self._runtime.commit(op, tasks=tasks)

    async def report(
        self, task: str, reports: Callable[[Database], Sequence[Progress | Output]]
    ) -> bool:
        """Report what a task that waits for an event elsewhere has got from there. Return False if
        it does not wait. `reports` is called in the commit.
        """

        def op(tx: Transaction) -> bool:
            row = rows.load(tx, task)
            if row is None or row.state != "running" or row.owner is not None or not row.waits:
                return False
            for each in reports(tx):
                if row.state in TERMINAL:  # its deadline has passed
                    break
                if isinstance(each, Output):
                    tx.publish(changes.add_part(tx, row, each))
                else:
                    tx.publish(changes.change(tx, row, "running", each))
            return True

        return await self._runtime.commit(op, tasks=(task,))

    async def ask_no_more(self, task: str) -> None:
        """Withdraw the open question of a task, which runs again without an answer."""

        def op(tx: Transaction) -> None:
            row = rows.load(tx, task)
            if row is not None and row.state == "input-required":
                question_rows.close(tx, task, "withdrawn")
                tx.publish(questions.go_on(tx, row, None))

        await self._runtime.commit(op, tasks=(task,), keep_trying=True)

    async def give_up(
        self, task: str, error: StanzaError, also: Callable[[Database], object]
    ) -> bool:
        """End a task that waits for an event which will not happen. Return False if it runs now.

        `also` is called in the same commit. The skill need not be known any more.
        """

        def op(tx: Transaction) -> bool:
            row = rows.load(tx, task)
            if row is not None and row.owner is not None:
                return False
            if row is not None and row.state not in TERMINAL:
                repeatable = error.type == "wait"
                tx.publish(changes.end(tx, row, "failed", error, repeatable=repeatable))
            also(tx)
            return True

        return await self._runtime.commit(op, tasks=(task,), keep_trying=True)

    async def open_questions(self, who: JID, at: JID) -> Sequence[Question]:
        """Return the open questions that this address has asked the bare JID `who`."""
        return await self._storage.read(lambda db: question_rows.open_questions(db, who, at))

    async def returned(self, who: JID, at: JID, question: str) -> None:
        """Record that the message of a question to `who` was returned as an error."""
        # Most returned messages are no questions, and a read costs less than a commit.
        if await self._storage.read(lambda db: question_rows.is_open(db, question, who, at)):
            await self._runtime.commit(lambda tx: question_rows.returned(tx, question, who, at))

    async def was_asked(self, who: JID, at: JID, name: str) -> bool:
        """Return whether a question that `who` was asked, by its id or thread, is closed."""
        return await self._storage.read(lambda db: question_rows.was_asked(db, who, at, name))


def _raise_refusal(judged: Judgement) -> None:
    if judged.doubt is not None:
        raise UncertainError(judged.doubt)
    if judged.error is not None:
        raise judged.error


def _known(found: T | None) -> T:
    if found is None:
        raise errors.unknown_task()
    return found


class Membership:
    """The membership of this instance in those that share the database.

    On SQLite only one process uses a data directory; then only `join` is used.

    Args:
        queued: called when there are tasks to claim.
        overdue: called when a timer has passed that another instance may not handle.
        evicted: called after a dead instance was evicted, which may not have sent its events.

    Attributes:
        channel: notifications on it wake only this instance.
    """

    def __init__(
        self,
        runtime: TaskRuntime,
        queued: Callable[[], None],
        overdue: Callable[[], None],
        evicted: Callable[[], None],
    ) -> None:
        self.channel = f"tasks_{leases.new_instance()}"
        self._runtime = runtime
        self._queued = queued
        self._overdue = overdue
        self._evicted = evicted
        self._watch = leases.Watch()

    def join(self, tx: Transaction) -> bool:
        """Join, and release the tasks of dead instances; return whether there can be others."""
        shared = tx.dialect == "postgresql"
        if shared:
            leases.join(tx, tx.instance, self._runtime.storage.place, self.channel)
        lost = (
            "SELECT DISTINCT owner FROM tasks WHERE owner IS NOT NULL"
            " AND owner NOT IN (SELECT id FROM instances)"
        )
        for owner in rows.column(tx, lost):  # they left, or ran on SQLite
            tx.publish(*release_all(tx, owner))
        return shared

    def leave(self, tx: Transaction) -> None:
        """Leave the others, and release the tasks of this instance."""
        tx.execute("DELETE FROM instances WHERE id = ?", (tx.instance,))
        tx.publish(*release_all(tx, tx.instance))
        leases.wake_one(tx)

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            await anyio.sleep(leases.HEARTBEAT_S)
            try:
                await self.send_heartbeat()
            except StorageError as error:
                # After a longer time the others evict this instance, and it joins again.
                log_failure(_log, "cannot write the heartbeat of this instance", error)

    async def send_heartbeat(self) -> None:
        """Send one heartbeat, and evict dead instances. Raises StorageError."""
        me = self._runtime.instance

        def op(tx: Transaction) -> tuple[dict[str, int], bool, bool] | None:
            beat = "UPDATE instances SET heartbeat = heartbeat + 1 WHERE id = ?"
            if tx.execute(beat, (me,)).rowcount == 0:
                return None  # declared dead
            found = tx.execute("SELECT id, heartbeat FROM instances WHERE id <> ?", (me,))
            others = dict(found.fetchall())
            queued = rows.exists(tx, f"SELECT 1 FROM tasks WHERE {rows.QUEUED} LIMIT 1")  # noqa: S608
            due = "SELECT 1 FROM tasks WHERE wake_at <= ? LIMIT 1"
            return others, queued, rows.exists(tx, due, tx.steady)

        found = await self._runtime.commit(op)
        if found is None:
            await self._rejoin()
            return
        others, queued, overdue = found
        if queued:
            self._queued()
        if overdue:
            self._overdue()
        for other, count in self._watch.dead(others).items():
            if await self._runtime.commit(partial(self._evict, other, count)):
                _log.warning("took over the tasks of a dead instance", instance=other)
                self._queued()
                self._evicted()

    @staticmethod
    def _evict(other: str, count: int, tx: Transaction) -> bool:
        """Release the work of a dead instance; return False if it has gone or is alive."""
        sql = "DELETE FROM instances WHERE id = ? AND heartbeat = ?"
        if not tx.execute(sql, (other, count)).rowcount:
            return False
        tx.publish(*release_all(tx, other))
        leases.wake_one(tx, but=tx.instance)
        return True

    async def _rejoin(self) -> None:
        before, new = self._runtime.instance, leases.new_instance()
        _log.warning(
            "other instances have taken over the tasks of this one; it joins again under a new name"
        )
        # Before the write: later work has the new name, earlier work is included in the write.
        self._runtime.instance = new

        def op(tx: Transaction) -> None:
            # Tasks that others have taken over have another owner or none; their runs notice it by
            # the fence.
            leases.join(tx, new, self._runtime.storage.place, self.channel)
            tx.execute("UPDATE tasks SET owner = ? WHERE owner = ?", (new, before))
            replay.rename_owner(tx, before, new)

        await self._runtime.commit(op, keep_trying=True)
        self._queued()
