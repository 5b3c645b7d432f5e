"""Calls: each is taken in, and answered with its result or with the task that it has become."""

from collections.abc import Sequence

import anyio

from component.storage.database import Database
from component.tasks import admit, leases, reading, replay
from component.tasks.commits import AlreadyError
from component.tasks.keeper import Keeper
from component.tasks.leases import CHANNEL
from component.tasks.pacing import Pacer
from component.tasks.protocol import Call, Question
from component.tasks.questions import put_question
from component.tasks.replay import Flight, Found, Memory
from component.tasks.resume import ask_before
from component.tasks.rows import Change, Row, milliseconds, put
from component.tasks.run import Run
from component.tasks.runs import Runs
from component.tasks.states import TERMINAL
from component.tasks.storing import Storage
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.task import Task


class Calls:
    """Takes calls in.

    Args:
        keeper: the engine.
        storage: where the rows are.
        runs: what runs here.
        memory: the answers in memory, and what is under way.
    """

    def __init__(self, keeper: Keeper, storage: Storage, runs: Runs, memory: Memory) -> None:
        self._keeper = keeper
        self._limits = keeper.limits
        self._storage = storage
        self._runs = runs
        self._memory = memory
        self._pacer = Pacer()

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
        if self._runs.draining:
            raise errors.busy(self._limits.retry_after_s)
        flight = self._memory.begin(call.key, call.digest)
        try:
            found = await self._begin(call, flight)
        except BaseException:
            # Who repeats it meanwhile tries for itself; a run that has begun lands it later.
            if not any(run.flight is flight for run in self._runs.all):
                flight.land(None)
            raise
        if found is not None:
            flight.land(None)
            return await self.recorded(found, call.digest)
        if flight.answer is None:
            # The service ends, or has lost the work: whoever comes again learns what became of it.
            raise errors.busy(self._limits.retry_after_s)
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
        run = Run(self._keeper, call, leases.new_instance(), flight=flight)
        self._runs.start(run)
        return await self._answer(run, flight)

    def _record(self, database: Database, call: Call) -> Found | None:
        found = replay.record(
            *(database, call.key, call.digest),
            window_ms=self._limits.replay_ms,
            owner=self._keeper.instance,
        )
        if found is None:
            admit.refuse_crowd(database, str(call.principal), self._limits)
        return found

    async def _answer(self, run: Run, flight: Flight) -> Found | None:
        """Wait for the end of a run, or make a task of it when its IQ cannot wait any longer."""
        mode, deadline = run.call.execute.mode, run.call.execute.deadline
        limit = self._limits.inline_s
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
        task, principal = leases.new_instance(), str(call.principal)
        async with self._pacer.turn(principal, call.execute.size):
            request = admit.request_row(call, self._limits)
        asks = call.confirmation is not None
        runs = not asks and self._runs.may_run(principal)
        atomic = not (call.skill.durable or call.skill.annotations.repeatable)
        question_id = leases.new_instance()

        def op(database: Database) -> tuple[Row, Accepted, list[Change], Question | None]:
            admit.refuse_crowd(database, principal, self._limits, request)
            row = admit.new_row(database, task, call, request, self._limits, visible=True)
            changes: list[Change] = []
            if runs:
                made = admit.begin(database, row, self._keeper.instance, atomic=atomic, new=True)
                changes.append(made)
            else:
                put(database, row)
            if asks:
                changes.append(ask_before(database, row, call, question_id))
            if row.state in TERMINAL:
                raise errors.deadline_expired()
            accepted = admit.accepted_as(row, row.state, self._limits)
            found = replay.record(
                *(database, call.key, call.digest),
                window_ms=self._limits.replay_ms,
                owner=self._keeper.instance,
                task=task,
                answer=accepted,
            )
            if found is not None:
                raise AlreadyError(found)
            if not asks and not runs:
                database.notify(CHANNEL)
            return row, accepted, changes, put_question(database, row) if asks else None

        if runs:
            self._runs.take_room(principal)
        try:
            row, accepted, changes, question = await self._storage.write(op)
        except BaseException as error:
            if runs:
                self._runs.leave_room(principal)
            if isinstance(error, AlreadyError):
                return error.found
            raise
        flight.land(accepted)
        if runs:
            self._runs.start(Run(self._keeper, call, task, row=row))
        elif not asks:
            self._runs.wake(principal)
        self._keeper.tell(changes, question)
        self._keeper.look_at(row.due)
        return None

    async def recorded(self, found: Found, digest: str) -> Result | Accepted:
        """The answer to a repetition whose record was found on disk.

        Raises StanzaError: the recorded error, `conflict`, `busy`, or `outcome-unknown`.
        """
        replay.same(found.digest, digest)
        if found.answer is not None:
            return replay.given(replay.unkept(found.answer))
        if found.owner == self._keeper.instance or found.alive:
            if found.task is None and found.owner == self._keeper.instance:
                # Its run has gone without a word, or there would be a flight.
                raise errors.outcome_unknown()
            raise errors.busy(self._limits.retry_after_s)
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
            accepted = admit.accepted_as(row, "accepted", self._limits)
            replay.accept_record(database, task, accepted)
            return accepted, admit.reveal(database, row)

        answered = await self._storage.write(op)
        if isinstance(answered, str):
            return replay.given(replay.unkept(answered))
        accepted, changes = answered
        run = self._runs.of(task)
        if run is not None and run.row is not None:
            run.row.visible = 1
        self._keeper.tell(changes)
        return accepted

    async def retry(self, task: str) -> Task:
        """Begin a new task with the request of another. Raises StanzaError, StorageError."""
        row = await self._storage.write(lambda db: admit.the_row(db, task))  # it locks the row
        verdict = self._runs.verdict(row)
        if verdict.call is None or not verdict.allowed:
            raise errors.unknown_skill()
        key = leases.new_instance()
        call = verdict.again(key)
        flight = self._memory.begin(key, call.digest)
        try:
            await self._accept(call, flight)
        finally:
            flight.land(None)  # nobody repeats it: its key is known here only
        accepted = flight.answer
        assert isinstance(accepted, Accepted)
        return await self._storage.write(
            lambda db: reading.whole(db, admit.the_row(db, accepted.task))
        )
