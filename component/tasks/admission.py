"""Admits calls: each is answered with its result, or with the task that it became."""

import anyio

from component.tasks import admit, idempotency, instances
from component.tasks.admit import TaskLimits
from component.tasks.execution import Execution
from component.tasks.idempotency import ReplayRecord
from component.tasks.pacing import Pacer
from component.tasks.protocol import Call
from component.tasks.replay_cache import Flight, ReplayCache
from component.tasks.request_keys import RequestKey
from component.tasks.resume import ask_before
from component.tasks.rows import Row, milliseconds, put
from component.tasks.states import TERMINAL
from component.tasks.store import TaskStore, Transaction
from component.tasks.worker import Worker
from component.tasks.writer import AlreadyError
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Result


class TaskAdmission:
    """Admits calls, and answers repetitions of earlier ones.

    Args:
        store: runs transactions on the rows.
        limits: the limits of durable work.
        worker: runs tasks on this instance.
        cache: the answers in memory, and the requests in progress.
    """

    def __init__(
        self, store: TaskStore, limits: TaskLimits, worker: Worker, cache: ReplayCache
    ) -> None:
        self._store = store
        self._limits = limits
        self._worker = worker
        self._cache = cache
        self._pacer = Pacer()
        self._any_records = True
        """Whether there may be replay records on disk."""

    def know_records(self, there_are: bool) -> None:
        """Record whether there are replay records on disk."""
        self._any_records = there_are

    # Repetitions.

    async def repeated(self, key: RequestKey) -> Result | Accepted | None:
        """See `component.tasks.service.TaskService`."""
        while True:
            remembered = self._cache.get(key)
            if remembered is not None:
                return remembered
            flight = self._cache.flight(key)
            if flight is not None and (answer := await flight.wait()) is not None:
                return idempotency.return_or_raise(answer)
            if not self._any_records:
                return None
            found = await self._store.read(lambda db: idempotency.find(db, key.text))
            if found is None:
                return None
            if found.answer is not None:
                idempotency.check_same_content(found.digest, key.digest)
                answer = idempotency.decode_answer(found.answer)
                self._cache.put(key, answer, found.left_ms / 1000)
                return idempotency.return_or_raise(answer)
            if not self._cache.knows(key):
                return await self._recorded(found, key)
            # The first request started while this one searched the disk.

    async def _recorded(self, found: ReplayRecord, key: RequestKey) -> Result | Accepted:
        """Return the answer to a repetition whose replay record was found on disk.

        Raises StanzaError: the recorded error, `conflict`, `busy`, or `outcome-unknown`.
        """
        idempotency.check_same_content(found.digest, key.digest)
        if found.answer is not None:
            return idempotency.return_or_raise(idempotency.decode_answer(found.answer))
        if self._worker.owns(found.owner) or found.alive:
            if found.task is None and self._worker.owns(found.owner):
                # Its execution has ended without an answer, or there would be a flight.
                raise errors.outcome_unknown()
            raise errors.busy(self._limits.retry_after_s)
        if found.task is None:
            raise errors.outcome_unknown()
        return await self._announce(found.task)

    async def _announce(self, task: str) -> Result | Accepted:
        """Answer with a task of a dead instance that had not answered with it yet."""

        def op(tx: Transaction) -> str | Accepted:
            row = admit.the_row(tx, task)
            ended = idempotency.answer_of(tx, task)
            if ended is not None:
                return ended  # it has ended since the record was read
            accepted = admit.accepted_as(row, "accepted", self._limits)
            idempotency.accept_record(tx, task, accepted)
            tx.publish(*admit.reveal(tx, row))
            return accepted

        answered = await self._store.commit(op, tasks=(task,))
        if isinstance(answered, str):
            return idempotency.return_or_raise(idempotency.decode_answer(answered))
        execution = self._worker.of(task)
        if execution is not None and execution.row is not None:
            execution.row.visible = 1
        return answered

    # New work.

    async def execute(self, call: Call) -> Result | Accepted:
        """See `component.tasks.service.TaskService`. The caller has already looked for a repetition
        on disk.
        """
        self._any_records = True
        while True:
            flight = self._cache.flight(call.key)
            if flight is None:
                break
            answer = await flight.wait()
            if answer is not None:
                return idempotency.return_or_raise(answer)
        remembered = self._cache.get(call.key)
        if remembered is not None:
            return remembered
        if self._worker.draining:
            raise errors.busy(self._limits.retry_after_s)
        flight = self._cache.begin(call.key)
        try:
            with self._worker.beginning():
                found = await self._admit(call, flight)
        except BaseException:
            # Repetitions try again themselves; an execution that has started lands the flight
            # later.
            if not self._worker.serves(flight):
                flight.land(None)
            raise
        if found is not None:
            flight.land(None)
            return await self._recorded(found, call.key)
        if flight.answer is None:
            # The service stops, or has lost the task: a repetition gets the outcome later.
            raise errors.busy(self._limits.retry_after_s)
        return idempotency.return_or_raise(flight.answer)

    async def _admit(self, call: Call, flight: Flight) -> ReplayRecord | None:
        """Start a call and wait until its flight has landed; or return its existing record."""
        mode = call.request.mode
        queued = call.skill.queue is not None
        if queued or call.confirmation is not None or call.undecided or mode == "async":
            return await self._accept(call, flight)
        if not call.skill.annotations.repeatable:
            found = await self._store.commit(lambda tx: self._record(tx, call, flight))
            if found is not None:
                return found
        return await self._answer(self._worker.execute(call, flight=flight), flight)

    def _record(self, tx: Transaction, call: Call, flight: Flight) -> ReplayRecord | None:
        flight.recorded = flight.expires(tx.steady)
        found = idempotency.record(
            *(tx, call.key),
            principal=str(call.principal),
            expires=flight.recorded,
            owner=self._worker.instance,
        )
        if found is None:
            self._store.records.check(tx, str(call.principal))
            admit.refuse_crowd(tx, str(call.principal), self._limits)
        return found

    async def _answer(self, execution: Execution, flight: Flight) -> ReplayRecord | None:
        """Wait for the end of an execution; turn it into a task when its IQ cannot wait
        any longer.
        """
        mode, deadline = execution.call.request.mode, execution.call.request.deadline
        limit = self._limits.inline_s
        left = None
        if deadline is not None:
            due = milliseconds(deadline)
            left = (due - await self._store.read(lambda db: db.settled)) / 1000
        with anyio.move_on_after(limit if left is None else min(limit, max(0.0, left))):
            await flight.wait()
        if flight.landed:
            return None
        if left is not None and left <= limit and execution.row is None:
            execution.stop("deadline")
        elif mode == "inline":
            execution.stop("limit")
        else:
            try:
                if await execution.announce():
                    return None
            except AlreadyError as already:
                return already.found
        await flight.wait()
        return None

    async def _accept(self, call: Call, flight: Flight) -> ReplayRecord | None:
        """Accept a call as a task, and start it if a slot is free and no confirmation is needed."""
        task, principal = instances.new_instance(), str(call.principal)
        async with self._pacer.turn(principal, call.request.size):
            request = admit.request_row(call, self._limits)
        asks = call.confirmation is not None
        direct = not asks and call.skill.queue is None
        slot = self._worker.try_slot(principal) if direct else None
        atomic = not (call.skill.durable or call.skill.annotations.repeatable)
        question_id = instances.new_instance()

        def op(tx: Transaction) -> tuple[Row, Accepted]:
            admit.refuse_crowd(tx, principal, self._limits, request)
            row = admit.new_row(tx, task, call, request, self._limits, visible=True)
            if slot is not None and not call.undecided:
                owner = self._worker.instance
                tx.publish(admit.begin(tx, row, owner, atomic=atomic, new=True))
            else:
                if slot is not None:
                    row.owner, row.token = self._worker.instance, 1
                put(tx, row)
            if asks:
                tx.publish(ask_before(tx, row, call, question_id))
            if row.state in TERMINAL:
                raise errors.deadline_expired()
            accepted = admit.accepted_as(row, row.state, self._limits)
            found = idempotency.record(
                *(tx, call.key),
                principal=principal,
                expires=flight.expires(tx.steady),
                owner=self._worker.instance,
                task=task,
                answer=accepted,
            )
            if found is not None:
                raise AlreadyError(found)
            self._store.records.check(tx, principal)
            if not asks and slot is None:
                tx.wake_others()
            return row, accepted

        try:
            row, accepted = await self._store.commit(op)
        except BaseException as error:
            if slot is not None:
                slot.release()
            if isinstance(error, AlreadyError):
                return error.found
            raise
        flight.land(accepted)
        if slot is not None and call.undecided:
            self._worker.take_up_soon(row, slot)
        elif slot is not None:
            self._worker.execute(call, row=row, slot=slot)
        elif not asks:
            self._worker.wake(principal)
        return None
