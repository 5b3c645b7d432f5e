"""Admission: checks every request in one order (RPL-001), and starts what passes.

An IQ, a form, a model's call and a trigger take the same way. `Admission._admit` is the table of
the specification, from its second row on; the router checks the first, whether the sender is
admitted at all. It is a generator that yields what it has to wait for, so a request for which
nothing waits is served without a task of the event loop: a skill that never waits and may run twice
runs at once, without a record on disk. Everything else becomes a run, and a task if it takes long.
Most requests that are served at once do not get here: `component.tasks.inline`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

import anyio
import anyio.lowlevel
import msgspec

from component import system
from component.budget.protocol import Amount
from component.skills import CapabilityMissing, InvalidParam, Skill, SkillFailed
from component.skills.calling import call_inline
from component.skills.inputs import Arguments
from component.tasks import changes, leases, queries, replay, rows
from component.tasks.changes import Transaction
from component.tasks.events import TaskRecords
from component.tasks.gate import UNKNOWN, arguments_of, completed
from component.tasks.outputs import error_of, result_of, with_costs
from component.tasks.questions import action_of, check_size
from component.tasks.receipts import with_receipt
from component.tasks.replay import Flight, NewRecord, ReplayCache, ReplayRecord
from component.tasks.request import (
    SMALL,
    THE_CALLER,
    CallerContext,
    Confirmation,
    OnAccepted,
    OnResult,
    Request,
    RequestKey,
    key_of,
    no_change,
)
from component.tasks.rows import TERMINAL, Row
from component.tasks.run import Admitted, AlreadyError, Run, context_of
from component.tasks.worker import Worker, ask_before
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.identifiers import check_identifier
from xep.jid import JID
from xep.stanza_error import StanzaError

T = TypeVar("T")

Answer: TypeAlias = Result | Accepted
Waits: TypeAlias = Generator[Callable[[], Awaitable[Any]], Any, T]
"""Steps that yield functions, which return what to wait for. So steps that end early leave no
coroutine that was never awaited.
"""
"""Yields what it waits for, and gets the result; it returns a T."""

ANSWERS: Final = (Result, Accepted)


class Admission:
    """Admits requests, and answers repetitions of earlier ones.

    Args:
        worker: runs skills on this instance.
        cache: the answers in memory, and the requests in progress.
        records: records the outcomes of requests, except those of models.
        accepted: called with the id of each task whose request is answered with `<accepted/>`.
        now: returns the time, for deadlines.

    Attributes:
        any_records: whether there may be replay records on disk.
    """

    def __init__(
        self,
        worker: Worker,
        cache: ReplayCache,
        records: TaskRecords,
        accepted: Callable[[str], None],
        now: Callable[[], datetime] = system.now,
    ) -> None:
        self._worker, runtime = worker, worker.runtime
        self._store, self._limits, self._skills = runtime, runtime.limits, runtime.skills
        self._gate, self._approvers = runtime.skills.gate, runtime.skills.approvers
        self._cache = cache
        self._records = records
        self._accepted = accepted
        self._now = now
        self._pacer = Pacer()
        self._perf_counter = system.current().perf_counter
        self.any_records = True

    def execute(
        self,
        request: Request,
        on_result: OnResult | None = None,
        internal: Skill | None = None,
        also: OnAccepted = no_change,
    ) -> Answer | Awaitable[Answer]:
        """Serve a request, at once if nothing about it waits.

        `on_result` is called when the skill has run on this instance, before the request is
        answered, and never for a repetition. `internal` is the skill, if it is one of the service
        itself, which nobody sees, and which no rule of the policy is about. `also` changes the
        database in the transaction that accepts a request with the mode `async`, and not for a
        repetition.

        Raises the StanzaErrors of the specification's error table; the awaitable may raise them
        too.
        """
        steps = self._admit(request, on_result, internal, also)
        try:
            first = next(steps)
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer
        return _wait(steps, first)

    def _admit(
        self,
        request: Request,
        on_result: OnResult | None,
        internal: Skill | None,
        also: OnAccepted,
    ) -> Waits[Answer]:
        # Row 2, else `malformed`: identifiers (COM-017); the decoder has checked the rest.
        if request.name is not None or request.context is not None or request.earlier:
            _check_identifiers(request)

        # Row 3, else `unknown-skill`, or why the agent whose model asks must not use the skill.
        skill = internal or self._gate.visible(request)
        if skill is None:
            self._records.refused(request, "unknown or hidden skill")
            raise errors.unknown_skill()
        if internal is None:
            request = self._gate.passed(request, skill)
        may_ask = request.confirmation is not None or (
            internal is None and self._approvers.needed(request, skill)
        )

        # Row 4: a repetition gets the recorded answer, or `conflict`.
        small = request.size < SMALL
        key = key_of(request) if small else (yield from self._in_turn(request, key_of))
        at_once = skill.at_once and not may_ask and request.mode != "async"
        # Then the key includes the content, and no record on disk has this content.
        volatile = at_once and request.name is None and request.session is None
        known, flight = yield from self._enter(key, on_disk=not volatile)
        if flight is None:
            assert known is not None, "a request is new, or has an answer"
            return known

        try:
            # Rows 5 to 8 check what few requests have.
            if request.has_terms or self._gate.needs_grants(request.principal):
                request = yield from self._check_terms(request, skill)

            # Row 9, else `invalid-param` or `malformed`.
            try:
                if small:
                    arguments = arguments_of(request, skill)
                else:
                    read = partial(arguments_of, skill=skill)
                    arguments = yield from self._in_turn(request, read)
                if skill.complete is not None:
                    arguments = yield partial(completed, request, skill, arguments)
            except InvalidParam as error:
                raise error_of(skill, error) from error

            # Row 10, else `confirmation-unavailable`.
            if may_ask:
                request = yield from self._confirmed(request, skill, arguments)

            # Row 11, else `retry`. The limit of open tasks is checked when a new one is committed.
            self._let_in(request.principal, flight)

            if request.caller_context is THE_CALLER:  # it asks the agent at the address
                caller = CallerContext(self._skills.agent_at(request.target))
                request = msgspec.structs.replace(request, caller_context=caller)
            asks = request.confirmation is not None or request.undecided
            if not skill.at_once or asks or request.mode == "async":
                admitted = Admitted(request, skill, arguments, key, flight, on_result, also)
                return cast("Answer", (yield partial(self._serve, admitted)))
            outcome = self._run_at_once(request, skill, arguments, on_result)
            flight.land(outcome)  # an error is an outcome, too (RPL-013)
            return replay.return_or_raise(outcome)
        except BaseException:
            # Repetitions try again themselves; a run that has started lands the flight later.
            if not self._worker.serves(flight):
                flight.land(None)
            raise

    def _check_terms(self, request: Request, skill: Skill) -> Waits[Request]:
        """Check what few requests have; return the request with the budget that is left for it."""
        # Row 5, else as `delegation.check` says.
        if request.delegation is not None:
            self._gate.check_delegation(request, skill)
        if self._gate.has_grants(request):
            assert self._gate.check_grants is not None, "has_grants demands it"
            request = yield partial(self._gate.check_grants, request, skill)

        # Row 6, else `unknown-task`.
        if request.earlier:
            who, at, tasks = request.principal, request.target, request.earlier
            read = partial(self._store.storage.read, lambda db: queries.earlier(db, who, at, tasks))
            if not (yield read):
                raise errors.unknown_task()

        # Row 7, else `mode-unavailable`: a skill with a queue has to wait for its turn.
        if request.mode == "inline" and skill.queue is not None:
            raise errors.mode_unavailable("inline")

        # The same row, else `unknown-skill`.
        if request.version not in (None, skill.version):
            raise errors.unknown_skill_version(skill.version)

        # Row 8, else `deadline-expired`.
        if request.deadline is not None and request.deadline <= self._now():
            raise errors.deadline_expired()
        return request

    def _let_in(self, principal: JID, flight: Flight) -> None:
        self._skills.let_in(principal)
        if flight.unwanted:  # it was cancelled while something was found out about it
            raise errors.busy(self._limits.retry_after_s)

    def _confirmed(self, request: Request, skill: Skill, arguments: Arguments) -> Waits[Request]:
        """Return the request with the confirmation that is needed, if one is."""
        needed = request.confirmation
        if needed is None:
            try:
                found = self._approvers.at_once(request, skill)
                if found is UNKNOWN and (request.origin != "iq" or request.mode == "inline"):
                    found = yield partial(self._approvers.find, request, skill)
                if isinstance(found, Confirmation) and request.mode == "inline":
                    raise errors.confirmation_unavailable()
            except StanzaError:
                self._records.refused(request, "no one can confirm it")
                raise
            if found is None:
                return request
            check_size(request.size)
            if found is UNKNOWN:
                action_of(skill, arguments)  # refuse now a request that no one can confirm
                return msgspec.structs.replace(request, undecided=True)
            assert isinstance(found, Confirmation)
            needed = found
        return msgspec.structs.replace(request, confirmation=needed)

    def _in_turn(self, request: Request, work: Callable[[Request], T]) -> Waits[T]:
        """Do work on the parameters of a large request in its turn."""
        yield partial(self._pacer.enter, str(request.principal))
        try:
            return work(request)
        finally:
            self._pacer.leave()

    # Repetitions.

    async def repeated(self, request: Request) -> Answer | None:
        """Return the recorded answer to a request; None if it is new.

        Waits for the first request, if that is still in progress. Raises StanzaError: the recorded
        error, `conflict`, `busy`, or `outcome-unknown`.
        """
        known, flight = await _all_of(self._enter(key_of(request)))
        if flight is not None:
            flight.land(None)
        return known

    async def task_of(self, key: str) -> str:
        """Return the task of a request, which is made for work that has none yet (CAN-010).

        Raises StanzaError: `unknown-task`, also if the request is still judged, which is refused
        then; and `busy`, if no task can be made.
        """
        flight, run = self._cache.under_way(key), self._worker.of_request(key)
        if run is not None and run.request.mode != "inline":
            with suppress(AlreadyError):
                await run.announce()
                return run.task
        if flight is not None:
            flight.unwanted = True
        found = await self._store.storage.read(partial(replay.find, key=key))
        if found is None or found.task is None:
            raise errors.unknown_task()
        return found.task

    def _enter(
        self, key: RequestKey, *, on_disk: bool = True
    ) -> Waits[tuple[Answer | None, Flight | None]]:
        """Return the answer to a repetition, from memory or disk; or the flight of a new request,
        for which repetitions wait from now on.

        Raises StanzaError: the recorded error, `conflict`, `busy`, or `outcome-unknown`.
        """
        while True:
            remembered = self._cache.get(key)
            if remembered is not None:
                return remembered, None
            flight = self._cache.flight(key)
            if flight is None:
                break
            answer = yield flight.wait
            if answer is not None:
                return replay.return_or_raise(answer), None
        flight = self._cache.begin(key)
        if not (on_disk and self.any_records):
            return None, flight
        try:
            found = yield partial(self._store.storage.read, partial(replay.find, key=key.text))
            if found is None:
                return None, flight
            answered = yield partial(self._recorded, found, key)
        except BaseException:
            flight.land(None)
            raise
        flight.land(None)
        return answered, None

    async def _recorded(self, found: ReplayRecord, key: RequestKey) -> Answer:
        """Return the answer to a repetition whose replay record was found on disk.

        Raises StanzaError: the recorded error, `conflict`, `busy`, or `outcome-unknown`.
        """
        replay.check_same_content(found.digest, key.digest)
        if found.answer is not None:
            answer = replay.decode_answer(found.answer)
            self._cache.put(key, answer, found.left_ms / 1000)
            return replay.return_or_raise(answer)
        mine = found.owner == self._store.instance
        if mine or found.alive:
            if found.task is None and mine:
                # Its run has ended without an answer, or there would be a flight.
                raise errors.outcome_unknown()
            raise errors.busy(self._limits.retry_after_s)
        if found.task is None:
            raise errors.outcome_unknown()
        return await self._announce(found.task)

    async def _announce(self, task: str) -> Answer:
        """Answer with a task of a dead instance that had not answered with it yet."""

        def op(tx: Transaction) -> str | Accepted:
            row = rows.load_or_raise(tx, task)
            ended = replay.answer_of(tx, task)
            if ended is not None:
                return ended  # it has ended since the record was read
            accepted = changes.accepted_as(row, "accepted", self._limits)
            replay.accept_record(tx, task, accepted)
            tx.publish(*changes.reveal(tx, row))
            return accepted

        answered = await self._store.commit(op, tasks=(task,))
        if isinstance(answered, str):
            return replay.return_or_raise(replay.decode_answer(answered))
        run = self._worker.of(task)
        if run is not None and run.row is not None:
            run.row.promoted = 1
        return answered

    # New work.

    def _run_at_once(
        self, request: Request, skill: Skill, arguments: Arguments, on_result: OnResult | None
    ) -> Result | StanzaError:
        """Run a skill that never waits; return its result or its error."""
        context = context_of(request, skill) if skill.wants_context else None
        counts = request.caller_context.asker == "caller"
        began = self._perf_counter()
        try:
            self._skills.check(request, skill, "")
            made = call_inline(skill, arguments, context)
        except (InvalidParam, SkillFailed, CapabilityMissing) as error:
            if counts:
                self._ran(request, "failed", self._perf_counter() - began)
            return with_receipt(self._store.make_receipt, request, error_of(skill, error))
        if on_result is not None and made.taints is not None:
            on_result(made.taints)
        if counts:
            self._ran(request, "done", made.duration)
        result = result_of(skill, made)
        if request.delegation is not None:
            result = with_costs(result, Amount())  # it asks no model and no other agent
        return with_receipt(self._store.make_receipt, request, result)

    def _ran(self, request: Request, outcome: str, seconds: float) -> None:
        """Record that a skill has run at once."""
        if request.delegation is None:
            self._records.ran(request.principal, request.skill, outcome, seconds)
        else:
            self._records.answered(request, outcome, seconds)

    async def _serve(self, admitted: Admitted) -> Answer:
        """Run a skill within the inline limit or as a task, and record the outcome."""
        if admitted.request.caller_context.asker == "caller":
            answer = await self._recorded_answer(admitted)
        else:
            answer = await self._answer(admitted)
        if isinstance(answer, Accepted):
            self._accepted(answer.task)
        return answer

    async def _recorded_answer(self, admitted: Admitted) -> Answer:
        began = self._perf_counter()
        outcome, task, detail = "failed", "", ""
        try:
            answer = await self._answer(admitted)
            if isinstance(answer, Accepted):
                outcome, task = "accepted", answer.task
            elif not answer.is_error:
                outcome = "done"
        except StanzaError as error:
            detail = error.application[0].xml.local if error.application else error.condition
            raise
        finally:
            seconds = self._perf_counter() - began
            self._records.answered(admitted.request, outcome, seconds, task, detail)
        return answer

    async def _answer(self, admitted: Admitted) -> Answer:
        flight, request, skill = admitted.flight, admitted.request, admitted.skill
        assert flight is not None, "only what leaves no record has none"
        if self._store.draining:
            raise errors.busy(self._limits.retry_after_s)
        self.any_records = True
        waits = skill.queue is not None or request.mode == "async"
        asks = request.confirmation is not None or request.undecided
        with self._worker.beginning():
            if waits or asks:
                found = await self._accept(admitted, flight)
            else:
                found = await self._begin(admitted, flight)
        if found is not None:
            flight.land(None)
            return await self._recorded(found, admitted.key)
        if flight.answer is None:
            # The service stops, or has lost the task: a repetition gets the outcome later.
            raise errors.busy(self._limits.retry_after_s)
        return replay.return_or_raise(flight.answer)

    async def _begin(self, admitted: Admitted, flight: Flight) -> ReplayRecord | None:
        """Start a run and wait until its flight has landed; or return its existing record."""
        if not admitted.skill.repeatable:
            found = await self._store.commit(lambda tx: self._record(tx, admitted, flight))
            if found is not None:
                return found
        return await self._until_answered(self._worker.execute(admitted), flight)

    def _record(self, tx: Transaction, admitted: Admitted, flight: Flight) -> ReplayRecord | None:
        principal = str(admitted.request.principal)
        flight.recorded = flight.expires(tx.steady)
        new = NewRecord(principal=principal, owner=tx.instance, expires=flight.recorded)
        found = replay.record(tx, admitted.key, new)
        if found is None:
            self._store.records.check(tx, principal)
            self._store.open_tasks.check(tx, admitted.request.share)
        return found

    async def _until_answered(self, run: Run, flight: Flight) -> ReplayRecord | None:
        """Wait for the end of a run; turn it into a task when its IQ cannot wait any longer."""
        mode, deadline = run.request.mode, run.request.deadline
        limit = self._limits.inline_s
        left = None
        if deadline is not None:
            due = rows.milliseconds(deadline)
            left = (due - await self._store.storage.read(lambda db: db.settled)) / 1000
        if flight.unwanted:
            limit = 0.0  # it was cancelled before it had a run; now it can be cancelled as a task
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
                if await run.announce():
                    return None
            except AlreadyError as already:
                return already.found
        await flight.wait()
        return None

    async def _accept(self, admitted: Admitted, flight: Flight) -> ReplayRecord | None:
        """Accept a request as a task, and start it if a slot is free and no confirmation is
        needed.
        """
        request, skill = admitted.request, admitted.skill
        task, principal = leases.new_instance(), str(request.principal)
        async with self._pacer.turn(principal, request.size):
            stored = changes.stored_request(request, admitted.arguments, self._limits)
        asks = request.confirmation is not None
        direct = not asks and skill.queue is None
        slot = self._worker.try_slot(request.share) if direct else None

        def op(tx: Transaction) -> tuple[Row, Accepted, bool]:
            self._store.open_tasks.check(tx, request.share, stored)
            row = changes.new_row(tx, task, request, skill, stored)
            row.promoted = 1
            if slot is not None and not request.undecided:
                begun = changes.begin(tx, row, tx.instance, atomic=skill.atomic, new=True)
                tx.publish(begun)
            else:
                if slot is not None:
                    row.owner, row.fence = tx.instance, 1
                rows.put(tx, row)
            question = ask_before(tx, row, admitted, self._store.standing) if asks else None
            if question is not None:
                tx.publish(question)
            if row.state in TERMINAL:
                raise errors.deadline_expired()
            accepted = changes.accepted_as(row, row.state, self._limits)
            new = NewRecord(
                principal=principal,
                owner=tx.instance,
                expires=flight.expires(tx.steady),
                task=task,
                answer=accepted,
            )
            found = replay.record(tx, admitted.key, new)
            if found is not None:
                raise AlreadyError(found)
            self._store.records.check(tx, principal)
            admitted.also(tx, task)
            if question is None and slot is None:
                tx.wake_others()
            return row, accepted, question is None

        try:
            row, accepted, begins = await self._store.commit(op)
        except BaseException as error:
            if slot is not None:
                slot.release()
            if isinstance(error, AlreadyError):
                return error.found
            raise
        flight.land(accepted)
        if slot is not None and request.undecided:
            self._worker.take_up_soon(row, slot)
        elif slot is not None:
            self._worker.execute(msgspec.structs.replace(admitted, flight=None), row, slot)
        elif begins:
            self._worker.wake(request.share)
        return None


def _check_identifiers(request: Request) -> None:
    if request.name is not None:
        check_identifier("execute", "request", request.name)
    if request.context is not None:
        check_identifier("execute", "context", request.context)
    for earlier in request.earlier:
        check_identifier("earlier", "task", earlier)


async def _wait(steps: Waits[T], waiting: Callable[[], Awaitable[Any]]) -> T:
    """Wait for what the steps yield until they return."""
    while True:
        try:
            try:
                value = await waiting()
            except BaseException as error:  # noqa: BLE001 - raised again by the steps
                waiting = steps.throw(error)
            else:
                waiting = steps.send(value)
        except StopIteration as ended:
            result: T = ended.value
            return result


async def _all_of(steps: Waits[T]) -> T:
    try:
        first = next(steps)
    except StopIteration as ended:
        result: T = ended.value
        return result
    return await _wait(steps, first)


class Pacer:
    """Gives turns to the principals in rotation; the work of a turn does not wait.

    It limits work that blocks the event loop for a millisecond or more to one piece in each
    iteration. Otherwise sixty-four requests of 200 KB that arrive together would all be decoded,
    compared and encoded in one iteration, during which nothing else is served. A worker thread
    would not help, because the work holds the interpreter's lock.
    """

    def __init__(self) -> None:
        self._busy = False
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()

    async def enter(self, principal: str) -> None:
        """Wait for a turn."""
        if not self._busy:
            self._busy = True
            try:
                await anyio.lowlevel.checkpoint()
            except BaseException:
                self.leave()
                raise
            return
        mine = anyio.Event()
        self._waiting.setdefault(principal, deque()).append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():
                self.leave()
            else:
                self._remove(principal, mine)
            raise

    def leave(self) -> None:
        """End a turn. The next one begins in the next iteration of the event loop."""
        if not self._waiting:
            self._busy = False
            return
        principal, events = next(iter(self._waiting.items()))
        events.popleft().set()
        if events:
            self._waiting.move_to_end(principal)
        else:
            del self._waiting[principal]

    def _remove(self, principal: str, event: anyio.Event) -> None:
        events = self._waiting[principal]
        events.remove(event)
        if not events:
            del self._waiting[principal]

    @asynccontextmanager
    async def turn(self, principal: str, size: int) -> AsyncIterator[None]:
        """Wait for a turn to process `size` bytes of a principal; small data does not wait."""
        if size < SMALL:
            yield
            return
        await self.enter(principal)
        try:
            yield
        finally:
            self.leave()
