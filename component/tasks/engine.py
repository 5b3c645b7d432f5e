"""The engine: takes calls in, runs them, and takes up again what was left.

Loaded by `component.tasks.room` when there is work for it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.skills.declare import AnySkill
from component.skills.threads import Threads
from component.storage.database import Database
from component.storage.errors import StorageError
from component.tasks import admit, judging, leases, reading, replay
from component.tasks.admit import Limits
from component.tasks.beats import Beats
from component.tasks.claims import Claimed, Room, claim
from component.tasks.errors import LostError
from component.tasks.protocol import Call, Listener, Question
from component.tasks.questions import put_question
from component.tasks.replay import Flight, Found, Memory
from component.tasks.resume import ask_before, resume, verdict_of
from component.tasks.rows import Change, Row, change, milliseconds, put
from component.tasks.run import AlreadyError, Run
from component.tasks.states import TERMINAL
from component.tasks.storing import Storage
from component.tasks.telling import UNTOLD, Teller
from component.tasks.timer import Timer, fall_due
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.task import Cancel, InputAnswer, Task
from xep.jid import JID

T = TypeVar("T")

CHANNEL: Final = "tasks"
_LAST_WORDS_S: Final = 5.0
"""Seconds that runs have to write how they were interrupted."""

_log = structlog.get_logger("component.tasks")


class Engine:
    """Runs calls, as tasks where they have to be.

    Args:
        storage: where the rows are.
        skill: a skill by its name, whoever asks.
        may_use: whether a principal may execute a skill now.
        threads: what plain skills run in.
        limits: what bounds the work.
        listener: who tells callers.
        memory: the answers in memory, and what is under way.
        instance: the name of this life of the process.
    """

    def __init__(
        self,
        storage: Storage,
        skill: Callable[[str], AnySkill | None],
        may_use: Callable[[JID, AnySkill], bool],
        threads: Threads,
        limits: Limits,
        listener: Listener,
        memory: Memory,
        instance: str,
    ) -> None:
        self.instance = instance
        self.limits = limits
        self.threads = threads
        self._storage = storage
        self._skill = skill
        self._may_use = may_use
        self._memory = memory
        self._room = Room(limits.running_total, limits.running_per_principal)
        self._runs: dict[str, Run] = {}
        self._all: set[Run] = set()
        self._idle = anyio.Event()
        self._teller = Teller(storage, listener)
        self._timer = Timer(self._settle)
        self._queued = True
        """Whether there may be queued work."""
        self._behind = {""}
        """Who may have some; nobody knows at the start."""
        self._work = anyio.Event()
        self._after = ""
        self._draining = False
        self._group: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Take up what was left, and work until cancelled.

        Raises StorageError: the database refuses before it has begun.
        """
        shared, taken = await self._storage.write(self._enter)
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._teller.run)
            group.start_soon(self._timer.run)
            group.start_soon(self._claim)
            if shared:
                beats = Beats(
                    *(self._storage, self.instance, self._renamed, self._taken),
                    retention_ms=self.limits.retention_ms,
                )
                group.start_soon(beats.run)
                await group.start(self._listen)
                await group.start(self._listen_for_untold)
            self.tell(taken)
            self.wake()
            task_status.started()
            await anyio.sleep_forever()

    def _enter(self, database: Database) -> tuple[bool, list[Change]]:
        """Be one of those who beat, where there can be several; take what nobody has."""
        shared = database.dialect == "postgresql"
        if shared:
            leases.join(database, self.instance)
        return shared, leases.orphans(database, retention_ms=self.limits.retention_ms)

    def _renamed(self, instance: str) -> None:
        # The runs find out by their tokens.
        self.instance = instance
        self.wake()

    def _taken(self, changes: Sequence[Change]) -> None:
        self.settled(changes)
        self.wake()
        self._tell_untold_soon()  # what the dead one had committed and not told

    async def _listen(self, *, task_status: TaskStatus[None]) -> None:
        """Hear what other instances say: there is work, or one of our tasks was cancelled."""
        async with self._storage.listen(CHANNEL) as said:
            task_status.started()
            async for _ in said:
                self.wake()
                self._timer.wake()
                mine = await self.keep(lambda db: leases.being_cancelled(db, self.instance))
                for task in mine:
                    run = self._runs.get(task)
                    if run is not None:
                        run.stop("cancel")

    async def _listen_for_untold(self, *, task_status: TaskStatus[None]) -> None:
        """Hear from instances without a stream that there is something to be told."""
        async with self._storage.listen(UNTOLD) as said:
            task_status.started()
            async for _ in said:
                await self._keep_telling()

    # Calls.

    async def execute(self, call: Call) -> Result | Accepted:
        """See `component.tasks.protocol.Tasks`. Repetitions were looked for on disk before."""
        while True:
            flight = self._memory.flight(call.key, call.digest)
            if flight is None:
                break
            answer = await flight.wait()
            if answer is not None:
                return replay.given(answer)
        remembered = self._memory.get(call.key, call.digest)
        if remembered is not None:
            return remembered
        if self._draining:
            raise errors.busy(self.limits.retry_after_s)
        flight = self._memory.begin(call.key, call.digest)
        try:
            found = await self._begin(call, flight)
        except BaseException:
            # Who repeats it meanwhile tries for itself; a run that has begun lands it later.
            if not any(run.flight is flight for run in self._all):
                flight.land(None)
            raise
        if found is not None:
            flight.land(None)
            return await self.recorded(found, call.digest)
        if flight.answer is None:
            # The service ends, or has lost the work: whoever comes again learns what became of it.
            raise errors.busy(self.limits.retry_after_s)
        return replay.given(flight.answer)

    async def _begin(self, call: Call, flight: Flight) -> Found | None:
        """Begin a call, and return once its flight has landed; or what is recorded of it."""
        mode, annotations = call.execute.mode, call.skill.annotations
        if call.confirmation is not None:
            if mode == "inline":
                raise errors.confirmation_unavailable()
            return await self._accept(call, flight)
        if mode == "async":
            return await self._accept(call, flight)
        if not annotations.repeatable:
            found = await self._storage.write(lambda db: self._record(db, call))
            if found is not None:
                return found
        run = Run(self, call, leases.new_instance(), flight=flight)
        self._start(run)
        return await self._answer(run, flight)

    def _record(self, database: Database, call: Call) -> Found | None:
        found = replay.record(
            *(database, call.key, call.digest),
            window_ms=self.limits.replay_ms,
            owner=self.instance,
        )
        if found is None:
            admit.refuse_crowd(database, str(call.principal), self.limits)
        return found

    async def _answer(self, run: Run, flight: Flight) -> Found | None:
        """Wait for the end of a run, or make a task of it when its IQ cannot wait any longer."""
        mode, deadline = run.call.execute.mode, run.call.execute.deadline
        limit = self.limits.inline_s
        left = None
        if deadline is not None:
            due = milliseconds(deadline)
            left = (due - await self._storage.read(lambda db: db.now)) / 1000
        with anyio.move_on_after(limit if left is None else min(limit, max(0.0, left))):
            await flight.wait()
        if flight.landed:
            return None
        if left is not None and left <= limit and run.row is None:
            run.stop("deadline")
        elif mode == "inline":
            run.stop("limit")
        else:
            try:
                if await run.reveal():
                    return None
            except AlreadyError as already:
                return already.found
        await flight.wait()
        return None

    async def _accept(self, call: Call, flight: Flight) -> Found | None:
        """Admit a call as a task, and begin it if there is room and nobody to be asked."""
        task, request = leases.new_instance(), admit.request_row(call, self.limits)
        principal = str(call.principal)
        asks = call.confirmation is not None
        runs = not asks and self._may_run(principal)
        atomic = not (call.skill.durable or call.skill.annotations.repeatable)
        question_id = leases.new_instance()

        def op(database: Database) -> tuple[Row, Accepted, list[Change], Question | None]:
            admit.refuse_crowd(database, principal, self.limits)
            row = admit.new_row(database, task, call, request, self.limits, visible=True)
            changes: list[Change] = []
            if runs:
                made = admit.begin(database, row, self.instance, atomic=atomic, new=True)
                changes.append(made)
            else:
                put(database, row)
            if asks:
                changes.append(ask_before(database, row, call, question_id))
            if row.state in TERMINAL:
                raise errors.deadline_expired()
            accepted = admit.accepted_as(row, row.state, self.limits)
            found = replay.record(
                *(database, call.key, call.digest),
                window_ms=self.limits.replay_ms,
                owner=self.instance,
                task=task,
                answer=accepted,
            )
            if found is not None:
                raise AlreadyError(found)
            if not asks and not runs:
                database.notify(CHANNEL)
            return row, accepted, changes, put_question(database, row) if asks else None

        if runs:
            self._room.take(principal)
        try:
            row, accepted, changes, question = await self._storage.write(op)
        except BaseException as error:
            if runs:
                self._leave_room(principal)
            if isinstance(error, AlreadyError):
                return error.found
            raise
        flight.land(accepted)
        if runs:
            self._start(Run(self, call, task, row=row))
        elif not asks:
            self.wake(principal)
        self.tell(changes, question)
        self.look_at(row.due)
        return None

    async def recorded(self, found: Found, digest: str) -> Result | Accepted:
        """The answer to a repetition whose record was found on disk.

        Raises StanzaError: the recorded error, `conflict`, `busy`, or `outcome-unknown`.
        """
        replay.same(found.digest, digest)
        if found.answer is not None:
            return replay.given(replay.unkept(found.answer))
        if found.owner == self.instance or found.alive:
            if found.task is None and found.owner == self.instance:
                # Its run has gone without a word, or there would be a flight.
                raise errors.outcome_unknown()
            raise errors.busy(self.limits.retry_after_s)
        if found.task is None:
            raise errors.outcome_unknown()
        task = found.task
        return await self._reveal(task)

    async def _reveal(self, task: str) -> Result | Accepted:
        """Answer with a task that another life had not yet answered with."""

        def op(database: Database) -> str | tuple[Accepted, Sequence[Change]]:
            row = admit.the_row(database, task)
            ended = replay.answer_of(database, task)
            if ended is not None:
                return ended  # since the record was read
            accepted = admit.accepted_as(row, "accepted", self.limits)
            replay.accept_record(database, task, accepted)
            return accepted, admit.reveal(database, row)

        answered = await self._storage.write(op)
        if isinstance(answered, str):
            return replay.given(replay.unkept(answered))
        accepted, changes = answered
        run = self._runs.get(task)
        if run is not None and run.row is not None:
            run.row.visible = 1
        self.tell(changes)
        return accepted

    # What happens to tasks.

    async def cancel(self, who: JID, at: JID, query: Cancel) -> Task:
        """See `component.tasks.protocol.Tasks`."""
        retention_ms = self.limits.retention_ms

        def op(database: Database) -> tuple[list[Change], Task]:
            row = reading.find(database, who, at, query.id, lock=True)
            if row is None:
                raise errors.unknown_task()
            changes = cancel_row(database, row, retention_ms=retention_ms)
            return changes, reading.whole(database, row)

        changes, task = await self._storage.write(op)
        self.settled(changes)
        return task

    async def answer(self, who: JID, at: JID, given: InputAnswer) -> Task:
        """See `component.tasks.protocol.Tasks`."""
        limits = self.limits
        principal = str(who.bare)
        runs = not self._draining and self._may_run(principal)
        owner = self.instance if runs else None
        if runs:
            self._room.take(principal)
        started = False
        try:
            judged = await self._storage.write(
                lambda db: judging.answer(
                    *(db, who, at, given), owner=owner, retention_ms=limits.retention_ms
                )
            )
            self._judged(judged)
            made = judged.change
            if runs and made is not None and made.row.state == "running":
                assert self._group is not None
                self._group.start_soon(self._take_up, made.row)
                started = True
        finally:
            if runs and not started:
                self._leave_room(principal)
        if judged.error is not None:
            raise judged.error
        assert judged.task is not None
        return judged.task

    async def decide(self, who: JID, at: JID, decision: Decision, lang: str | None) -> None:
        """See `component.tasks.protocol.Tasks`."""
        judged = await self._storage.write(
            # Not run at once: whether the principal still may is judged before it runs (CNF-042).
            lambda db: judging.decide(
                *(db, who, at, decision),
                owner=None,
                retention_ms=self.limits.retention_ms,
                lang=lang,
            )
        )
        self._judged(judged)
        if judged.error is not None:
            raise judged.error

    def _judged(self, judged: judging.Judged) -> None:
        if judged.change is not None:
            self.settled([judged.change])

    def settled(self, changes: Sequence[Change], question: Question | None = None) -> None:
        """Others than a run have changed tasks: tell of it, and see what follows for runs here."""
        for made in changes:
            row = made.row
            run = self._runs.get(row.id)
            if run is not None and row.state == "cancelling":
                run.stop("cancel")
            elif run is not None and row.state in TERMINAL:
                run.stop("lost")
                if run.flight is not None:
                    run.flight.land(replay.ended_with(made))
            elif row.owner is None and row.state in ("accepted", "running"):
                self.wake(row.principal)
            self.look_at(row.due)
        self.tell(changes, question)

    async def _settle(self) -> int | None:
        retention_ms = self.limits.retention_ms
        fallen = await self.keep(lambda db: fall_due(db, retention_ms=retention_ms))
        self.settled(fallen.changes)
        return fallen.next_ms

    async def tell_untold(self) -> None:
        """Tell of what could not be told before.

        Raises StorageError; then it is tried again until it has been told.
        """
        try:
            await self._teller.untold()
        except StorageError:
            self._tell_untold_soon()
            raise

    def _tell_untold_soon(self) -> None:
        assert self._group is not None
        self._group.start_soon(self._keep_telling)

    async def _keep_telling(self) -> None:
        while True:
            try:
                return await self._teller.untold()
            except StorageError:
                await anyio.sleep(leases.BEAT_S)

    async def retry(self, task: str) -> Task:
        """Begin a new task with the request of another. Raises StanzaError, StorageError."""
        row = await self._storage.write(lambda db: admit.the_row(db, task))  # it locks the row
        verdict = verdict_of(row, self._skill, self._may_use)
        if verdict.call is None or not verdict.allowed:
            raise errors.unknown_skill()
        key = leases.new_instance()
        call = verdict.again(key)
        flight = self._memory.begin(key, call.digest)
        await self._accept(call, flight)
        accepted = flight.answer
        assert isinstance(accepted, Accepted)
        made = await self._storage.write(
            lambda db: reading.whole(db, admit.the_row(db, accepted.task))
        )
        flight.land(None)
        return made

    # Runs, and who is next.

    def _start(self, run: Run) -> None:
        assert self._group is not None
        self._all.add(run)
        if run.row is not None:
            self._runs[run.task] = run
        self._group.start_soon(self._go, run)

    async def _go(self, run: Run) -> None:
        try:
            await run.go()
        except Exception:  # noqa: BLE001 - a mistake of ours must not end everybody's work
            _log.exception(
                "a run broke; its task is taken up again at the next start", task=run.task
            )
        finally:
            self._all.discard(run)
            if self._runs.pop(run.task, None) is not None:
                self._leave_room(str(run.call.principal))
            if self._draining and not self._all:
                self._idle.set()

    def grown(self, run: Run) -> None:
        """A run has become a task: it counts from now on."""
        self._runs[run.task] = run
        self._room.take(str(run.call.principal))

    def _leave_room(self, principal: str) -> None:
        self._room.give_back(principal)
        if self._queued:
            self._work.set()

    def _may_run(self, principal: str) -> bool:
        """Whether one more of the principal may run at once, before nobody whose turn it is."""
        behind = self._behind
        return (
            principal not in behind and self._room.left > len(behind) and self._room.has(principal)
        )

    def wake(self, principal: str = "") -> None:
        """There may be queued work, of that principal or of anybody."""
        self._queued = True
        self._behind.add(principal)
        self._work.set()

    async def _claim(self) -> None:
        while True:
            await self._work.wait()
            self._work = anyio.Event()
            while self._room.left and not self._draining:
                before, self._behind = self._behind, set()
                claimed = await self._claim_once()
                if claimed.more:
                    self._behind |= before
                for row in claimed.rows:
                    self._room.take(row.principal)
                    assert self._group is not None
                    self._group.start_soon(self._take_up, row)
                self._after = claimed.after
                if not claimed.rows or not claimed.more:
                    # Who has come since has set `_work` again.
                    self._queued = claimed.more or self._work.is_set()
                    break

    async def _claim_once(self) -> Claimed:
        left, running, after = self._room.left, dict(self._room.running), self._after
        share = self.limits.running_per_principal
        return await self.keep(
            lambda db: claim(
                *(db, self.instance), left=left, share=share, running=running, after=after
            )
        )

    async def _take_up(self, row: Row) -> None:
        """Go on with a task that was claimed."""
        started = False
        try:
            verdict = verdict_of(row, self._skill, self._may_use)
            question_id = leases.new_instance()
            resumed = await self.keep(
                lambda db: resume(db, row, verdict, self.instance, question_id, self.limits)
            )
            if resumed.changes:
                self.settled(resumed.changes, resumed.question)
            if resumed.row.state == "running" and verdict.call is not None:
                run = Run(
                    *(self, verdict.call, row.id),
                    row=resumed.row,
                    journal=resumed.journal,
                    parts=resumed.parts,
                )
                self._start(run)
                started = True
        except LostError:
            return  # it was cancelled, or its time was over, before it began
        except Exception:  # noqa: BLE001 - as above
            _log.exception("a task cannot be taken up", task=row.id)
        finally:
            if not started:
                self._leave_room(row.principal)

    # For runs.

    async def keep(self, op: Callable[[Database], T]) -> T:
        """Write, and keep trying until it is written or the run is given up."""
        return await self._storage.write(op, keep_trying=True)

    async def write(self, op: Callable[[Database], T]) -> T:
        """Write. Raises StorageError."""
        return await self._storage.write(op)

    def tell(self, changes: Sequence[Change], question: Question | None = None) -> None:
        """Tell of what was committed; a question belongs to the last change."""
        self._teller.tell(changes, question)

    def look_at(self, due: int | None) -> None:
        """The timer has something to look at."""
        if due is not None:
            self._timer.wake()

    def later(self, seconds: float, work: Callable[[], Any]) -> None:
        """Do something after a while."""
        assert self._group is not None
        self._group.start_soon(_later, seconds, work)

    async def drain(self) -> None:
        """Let runs end; those that take longer are given up, to be gone on with at the next start.

        One that is stopped inside a step with effects ends as `outcome-unknown`.
        """
        self._draining = True
        if self._all:
            with anyio.move_on_after(self.limits.drain_s):
                await self._idle.wait()
        for run in tuple(self._all):
            run.stop("drain")
        if self._all:
            with anyio.move_on_after(_LAST_WORDS_S):
                await self._idle.wait()
        for run in tuple(self._all):
            _log.warning("a run would not end", task=run.task, skill=run.call.skill.name)
            run.give_up()
        try:
            await self._teller.flush()
            self.tell(await self._storage.write(self._give_up))
            await self._teller.flush()
        except StorageError as error:
            _log.warning(
                "could not leave in good order; the next start sees to it", reason=str(error)
            )

    def _give_up(self, database: Database) -> list[Change]:
        """Leave, and what is still open here to the others."""
        leases.leave(database, self.instance)
        retention_ms = self.limits.retention_ms
        changes = leases.take_from(database, self.instance, retention_ms=retention_ms)
        database.notify(CHANNEL)
        return changes


async def _later(seconds: float, work: Callable[[], Any]) -> None:
    await anyio.sleep(seconds)
    await work()


def cancel_row(database: Database, row: Row, *, retention_ms: int) -> list[Change]:
    """Ask a task to end; nothing changes if it has ended or was asked before (CAN-005, CAN-006)."""
    if row.state in ("accepted", "input-required"):
        return [replay.end(database, row, "cancelled", None, retention_ms=retention_ms)]
    if row.state != "running":
        return []
    changes = [change(database, row, "cancelling", retention_ms=retention_ms)]
    if changes[0].row.state == "cancelling":  # and not past its deadline
        if row.owner is None:
            changes.append(leases.end_cancelled(database, row, retention_ms=retention_ms))
        else:
            database.notify(CHANNEL)
    return changes
