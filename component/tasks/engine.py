"""The engine: its life, its parts, and what comes to tasks from outside.

Loaded by `component.tasks.room` when there is work for it.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.audit.protocol import Recorder
from component.skills.declare import AnySkill
from component.skills.threads import Threads
from component.storage.database import Database
from component.storage.errors import StorageError
from component.tasks import admit, judging, leases, questions, reading, replay
from component.tasks.admit import Limits
from component.tasks.beats import Beats
from component.tasks.calls import Calls
from component.tasks.kept import EndedTasks
from component.tasks.protocol import Listener, Naming, Question, UncertainError
from component.tasks.recent import SteadyClock
from component.tasks.recording import record_changes, record_decision
from component.tasks.replay import Memory
from component.tasks.rows import Change, size_of
from component.tasks.run import Run
from component.tasks.runs import Runs
from component.tasks.states import TERMINAL
from component.tasks.storing import Storage
from component.tasks.telling import UNTOLD, Teller
from component.tasks.timer import Fallen, Timer, fall_due
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.task import Cancel, InputAnswer, Task
from xep.jid import JID

T = TypeVar("T")

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

    Attributes:
        runs: what runs here.
        calls: takes calls in.
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
        recorder: Recorder,
    ) -> None:
        self.instance = instance
        self.limits = limits
        self.threads = threads
        self._storage = storage
        self.runs = Runs(self, skill, may_use)
        self.calls = Calls(self, storage, self.runs, memory)
        self._teller = Teller(storage, listener)
        self._recorder = recorder
        self._timer = Timer(self._settle)
        self._clock = SteadyClock()
        self._ended = EndedTasks(storage, limits.kept, limits.replay_ms)
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
            group.start_soon(self._ended.run)
            group.start_soon(self.runs.claim)
            if shared:
                beats = Beats(
                    *(self._storage, self.instance, self._renamed, self._taken),
                    retention_ms=self.limits.retention_ms,
                )
                group.start_soon(beats.run)
                await group.start(self._listen)
                await group.start(self._listen_for_untold)
            self.tell(taken)
            self.runs.wake()
            task_status.started()
            await anyio.sleep_forever()

    def _enter(self, database: Database) -> tuple[bool, list[Change]]:
        """Be one of those who beat, where there can be several; take what nobody has."""
        shared = database.dialect == "postgresql"
        if shared:
            leases.join(database, self.instance, self._storage.place)
        questions.adopt(database)
        return shared, leases.orphans(database, retention_ms=self.limits.retention_ms)

    async def drain(self) -> None:
        """Let runs end or give them up, tell, and leave; see `Runs.drain`."""
        await self.runs.drain()
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
        database.notify(leases.CHANNEL)
        return changes

    def _renamed(self, instance: str) -> None:
        # The runs find out by their tokens.
        self.instance = instance
        self.runs.wake()

    def _taken(self, changes: Sequence[Change]) -> None:
        self.settled(changes)
        self.runs.wake()
        self._tell_untold_soon()  # what the dead one had committed and not told

    async def _listen(self, *, task_status: TaskStatus[None]) -> None:
        """Hear what other instances say: there is work, or one of our tasks was cancelled."""
        async with self._storage.listen(leases.CHANNEL) as said:
            task_status.started()
            async for _ in said:
                self.runs.wake()
                self._timer.wake()
                mine = await self.keep(lambda db: leases.being_cancelled(db, self.instance))
                for task in mine:
                    run = self.runs.of(task)
                    if run is not None:
                        run.stop("cancel")

    async def _listen_for_untold(self, *, task_status: TaskStatus[None]) -> None:
        """Hear from instances without a stream that there is something to be told."""
        async with self._storage.listen(UNTOLD) as said:
            task_status.started()
            async for _ in said:
                await self._keep_telling()

    # What happens to tasks.

    async def cancel(self, who: JID, at: JID, query: Cancel) -> Task:
        """See `component.tasks.protocol.Tasks`."""
        retention_ms = self.limits.retention_ms

        def op(database: Database) -> tuple[list[Change], Task]:
            row = reading.find(database, who, at, query.id, lock=True)
            if row is None:
                raise errors.unknown_task()
            changes = leases.cancel_row(database, row, retention_ms=retention_ms)
            return changes, reading.whole(database, row)

        changes, task = await self._storage.write(op)
        self.settled(changes)
        return task

    async def withdraw(self, key: str) -> bool:
        """See `component.tasks.protocol.Tasks`."""
        run = self.runs.of_request(key)
        if run is not None and run.row is None:
            run.stop("cancel")
            return True
        retention_ms = self.limits.retention_ms

        def op(database: Database) -> list[Change]:
            found = replay.find(database, key)
            if found is None or found.task is None:
                return []
            row = admit.the_row(database, found.task)
            return leases.cancel_row(database, row, retention_ms=retention_ms)

        changes = await self._storage.write(op)
        self.settled(changes)
        return bool(changes)

    async def answer(self, who: JID, at: JID, given: InputAnswer, naming: Naming | None) -> Task:
        """See `component.tasks.protocol.Tasks`."""
        limits = self.limits
        principal = str(who.bare)
        runs = not self.runs.draining and self.runs.may_run(principal)
        owner = self.instance if runs else None
        if runs:
            self.runs.take_room(principal)
        started = False
        try:
            words = self._in_words(naming)
            judged = await self._storage.write(
                lambda db: judging.answer(
                    *(db, who, at, given),
                    owner=owner,
                    retention_ms=limits.retention_ms,
                    words=words(db),
                )
            )
            self._judged(judged)
            made = judged.change
            if runs and made is not None and made.row.state == "running":
                self.soon(self.runs.take_up, made.row)
                started = True
        finally:
            if runs and not started:
                self.runs.leave_room(principal)
        if judged.uncertain:
            raise UncertainError
        if judged.error is not None:
            raise judged.error
        assert judged.task is not None
        return judged.task

    async def decide(
        self, who: JID, at: JID, decision: Decision, lang: str | None, naming: Naming | None
    ) -> None:
        """See `component.tasks.protocol.Tasks`."""
        words = self._in_words(naming)
        judged = await self._storage.write(
            # Not run at once: whether the principal still may is judged before it runs (CNF-042).
            lambda db: judging.decide(
                *(db, who, at, decision),
                owner=None,
                retention_ms=self.limits.retention_ms,
                lang=lang,
                words=words(db),
            )
        )
        record_decision(self._recorder, who, decision, judged)
        self._judged(judged)
        if judged.uncertain:
            raise UncertainError
        if judged.error is not None:
            raise judged.error

    def _in_words(self, naming: Naming | None) -> Callable[[Database], judging.InWords | None]:
        """What an answer that names its question by `naming` is held against; None: it need not."""
        read = self._clock.read()

        def words(database: Database) -> judging.InWords | None:
            steady_ms = self._clock.steady_ms(read, database.now)
            if naming is None:
                return None
            return judging.InWords(naming, steady_ms, self.limits.certainty)

        return words

    def _judged(self, judged: judging.Judged) -> None:
        if judged.change is not None:
            self.settled([judged.change])

    def settled(self, changes: Sequence[Change], question: Question | None = None) -> None:
        """Others than a run have changed tasks: tell of it, and see what follows for runs here."""
        for made in changes:
            row = made.row
            run = self.runs.of(row.id)
            if run is not None and row.state == "cancelling":
                run.stop("cancel")
            elif run is not None and row.state in TERMINAL:
                run.stop("lost")
                if run.flight is not None:
                    run.flight.land(replay.ended_with(made))
            elif row.owner is None and row.state in ("accepted", "running"):
                self.runs.wake(row.principal)
            self.look_at(row.due)
        self.tell(changes, question)

    async def _settle(self) -> int | None:
        retention_ms = self.limits.retention_ms
        read = self._clock.read()

        def op(database: Database) -> Fallen:
            self._clock.steady_ms(read, database.now)  # looked at often, so that a leap is seen
            return fall_due(database, retention_ms=retention_ms)

        fallen = await self.keep(op)
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
        self.soon(self._keep_telling)

    async def _keep_telling(self) -> None:
        while True:
            try:
                return await self._teller.untold()
            except StorageError:
                await anyio.sleep(leases.BEAT_S)

    # For its parts and for runs: the Keeper.

    async def keep(self, op: Callable[[Database], T]) -> T:
        """Write, and keep trying until it is written or the run is given up."""
        return await self._storage.write(op, keep_trying=True)

    async def write(self, op: Callable[[Database], T]) -> T:
        """Write. Raises StorageError."""
        return await self._storage.write(op)

    def tell(self, changes: Sequence[Change], question: Question | None = None) -> None:
        """Tell of what was committed; a question belongs to the last change."""
        record_changes(self._recorder, changes)
        self._teller.tell(changes, question)
        for made in changes:
            row = made.row
            if row.state in TERMINAL:
                self.kept(row.principal, size_of(row))

    def kept(self, principal: str, size: int) -> None:
        """About `size` bytes are kept for a principal from now on."""
        self._ended.add(principal, size)

    def look_at(self, due: int | None) -> None:
        """The timer has something to look at."""
        if due is not None:
            self._timer.wake()

    def grown(self, run: Run) -> None:
        """A run has become a task: it counts from now on."""
        self.runs.grown(run)

    def soon(self, work: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Begin something, and do not wait for its end."""
        assert self._group is not None
        self._group.start_soon(work, *args)

    def later(self, seconds: float, work: Callable[[], Awaitable[Any]]) -> None:
        """Do something after a while."""
        self.soon(_later, seconds, work)


async def _later(seconds: float, work: Callable[[], Awaitable[Any]]) -> None:
    await anyio.sleep(seconds)
    await work()
