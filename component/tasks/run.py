"""One life of a call: the skill runs, and what it does is made durable as far as it must be.

A run has no rows until it needs some: for a step with effects, for a question, or because it takes
longer than its IQ may. The skill does not notice. Every write names the token of the task; a run
that has lost its task is left and says nothing to anybody.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final, Literal, Protocol, TypeVar

import anyio
import msgspec
import structlog

from component.skills.context import Context, Parked, Work
from component.skills.errors import (
    Denied,
    InvalidParam,
    SkillError,
    SkillFailed,
    SkillTimeout,
    StepFailed,
    UsageError,
)
from component.skills.native import call as call_skill
from component.skills.schema import object_schema
from component.skills.threads import Threads
from component.storage.database import Database
from component.tasks import admit, leases, replay
from component.tasks.admit import Limits
from component.tasks.confirmation import lapses
from component.tasks.errors import LostError
from component.tasks.outcomes import checked, error_of, result_of
from component.tasks.parts import Parts
from component.tasks.protocol import Call, Question
from component.tasks.questions import ask_input, put_question
from component.tasks.replay import Answer, Flight
from component.tasks.rows import Change, Row, change, load_owned
from component.tasks.states import TERMINAL
from xep.binding.escaping import without_forbidden
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.fluux_agent.task import Progress
from xep.stanza_error import StanzaError

T = TypeVar("T")
Stop = Literal["cancel", "deadline", "limit", "lost", "drain"]
"""Why a run is ended: its caller asked; its time is over; the IQ's time is over and the mode is
inline; it has lost its task; the service ends."""

_PROGRESS_S: Final = 1.0
"""Progress that comes faster than this is joined (EVT-013)."""

_log = structlog.get_logger("component.tasks")


class Keeper(Protocol):
    """The engine, as a run sees it."""

    instance: str
    limits: Limits
    threads: Threads

    async def keep(self, op: Callable[[Database], T]) -> T:
        """Write, and keep trying: what a run has done must not be forgotten."""

    async def write(self, op: Callable[[Database], T]) -> T:
        """Write. Raises StorageError."""

    def tell(self, changes: Sequence[Change], question: Question | None = None) -> None:
        """Tell of what was committed."""

    def look_at(self, due: int | None) -> None:
        """The timer has something to look at, at that time."""

    def grown(self, run: "Run") -> None:
        """A run has become a task."""

    def later(self, seconds: float, work: Callable[[], Any]) -> None:
        """Do something after a while."""


class Run:
    """A call under way; the host of its Context.

    Args:
        keeper: the engine.
        call: what was asked for.
        task: the id that its task has, or would have.
        flight: who waits for the answer to its request, if anybody may.
        row: its row, if it has one; it is running, and ours.
        journal: what is recorded of its steps.
        parts: the artifacts that it has shown.
    """

    def __init__(
        self,
        keeper: Keeper,
        call: Call,
        task: str,
        *,
        flight: Flight | None = None,
        row: Row | None = None,
        journal: leases.Journal | None = None,
        parts: Sequence[Output] = (),
    ) -> None:
        self.call = call
        self.task = task
        self.flight = flight
        self.row = row
        self.stopped: Stop | None = None
        self._keeper = keeper
        self._repeatable = call.skill.annotations.repeatable
        self._atomic = not self._repeatable and not call.skill.durable
        self._journal = journal or leases.Journal({}, set())
        self._under_way: set[str] = {admit.ATOMIC} if self._atomic else set()
        self._unbegun: list[str] = []
        self._parts = Parts(parts, keeper.limits.result_bytes)
        self._used: Counter[str] = Counter()
        self._lock = anyio.Lock()
        self._scope = anyio.CancelScope()
        self._ending = anyio.CancelScope(shield=True)
        self._recording: set[anyio.CancelScope] = set()
        """Steps whose end is being written."""
        self._over = False
        self._parked = False
        self._refused: StanzaError | None = None
        self._progress: Progress | None = None
        self._told_progress = -_PROGRESS_S
        self._flushing = False

    # What the engine does with it.

    async def go(self) -> None:
        """Run to the end, or until it is stopped or has to wait for a person."""
        ended: Answer | None = None
        try:
            with self._scope:
                ended = await self._work()
            if self._scope.cancelled_caught:
                ended = self._interrupted()
            with self._ending:
                await self._end(ended)
        except LostError:
            self.stopped = "lost"
            _log.info("lost a task to another instance", task=self.task)
        finally:
            self._over = True
            if self.flight is not None:
                self.flight.land(None)

    def stop(self, why: Stop) -> None:
        """End it, as soon as its skill lets it."""
        if self.stopped is None:
            self.stopped = why
        self._scope.cancel()

    def give_up(self) -> None:
        """End it even where it waits to write its end. What is on disk stands."""
        self._scope.cancel()
        self._ending.cancel()
        for recording in tuple(self._recording):
            recording.cancel()

    async def reveal(self) -> bool:
        """Become a task that its caller knows of, and answer the request so (EXE-016).

        False if it has ended meanwhile. Raises StorageError, and StanzaError where there is no room
        for the task; then the run is stopped, for nobody would learn of its end.
        """
        async with self._lock:
            if self._over or self._parked or self.stopped is not None:
                return False
            if self.row is not None and self.row.visible:
                return True
            keep = self._keeper.write if self._repeatable else self._keeper.keep
            try:
                await self._grow(keep, visible=True)
            except LostError:
                self.stop("lost")
                return False
            except BaseException:
                if self.row is None:
                    self.stop("lost")
                raise
            return True

    # What the skill does with it: the Host of its Context.

    @property
    def key(self) -> str:
        """The idempotency key of the whole call."""
        return self._key_of(admit.ATOMIC)

    async def progress(self, fraction: float, text: str) -> None:
        """Tell how far the work is, at most once a second."""
        self._stay()
        self._progress = Progress(
            fraction=round(Decimal(repr(float(fraction))), 4), text=without_forbidden(text)
        )
        wait = self._told_progress + _PROGRESS_S - anyio.current_time()
        if wait <= 0:
            await self._flush()
        elif not self._flushing:
            self._flushing = True
            self._keeper.later(wait, self._flush_later)

    async def output(self, name: str, text: str, media_type: str, *, last: bool) -> None:
        """Show a part of an artifact."""
        self._stay()
        part = self._parts.next(name, without_forbidden(text), media_type, last=last)
        if part is None:
            return
        async with self._lock:
            self._stay()
            if self.row is None:
                self._parts.shown(part)
                return
            await self._change(lambda db, row: admit.add_part(db, row, part))
            self._parts.shown(part)

    async def step(self, name: str, work: Work[T], type: type[T], *, repeatable: bool) -> T:  # noqa: A002
        """Do a step once."""
        self._stay()
        self._usable("step")
        step = self._name(f".{name}")
        recorded = self._journal.done.get(step)
        if recorded is not None:
            return _recalled(recorded, type)
        effects = not (repeatable or self._repeatable)
        if effects:
            await self._begin(step)
        try:
            record = msgspec.json.encode({"value": await work(self._key_of(step))}).decode()
        except (Denied, InvalidParam, UsageError):
            raise
        except SkillError as error:
            record = msgspec.json.encode({"refused": str(error)}).decode()
            await self._done(step, record)
            raise
        except Exception as error:
            record = msgspec.json.encode({"failed": f"{type_name(error)}: {error}"}).decode()
            await self._done(step, record)
            raise StepFailed(f"The step {name!r} failed: {type_name(error)}: {error}") from error
        await self._done(step, record)
        return _recalled(record, type)

    async def ask(self, question: str, schema: type[T], expires_s: float | None) -> T:
        """Ask the principal; the run ends here, and another one begins with the answer."""
        self._stay()
        self._usable("ask")
        step = self._name(f"?{hashlib.sha256(question.encode()).hexdigest()[:16]}")
        recorded = self._journal.done.get(step)
        if recorded is not None:
            return _recalled(recorded, schema)
        described = msgspec.Raw(msgspec.json.encode(object_schema(schema)))
        if self.call.execute.mode == "inline":
            self._refused = errors.confirmation_unavailable()
            raise Parked
        input_id = replay_id()
        seconds = self._keeper.limits.ask_expires_s if expires_s is None else expires_s
        text = without_forbidden(question)

        def op(database: Database, row: Row) -> tuple[Change, Question | None]:
            expires = lapses(database.now, seconds, row.deadline)
            made = ask_input(database, row, step, text, described, id=input_id, expires=expires)
            return made, put_question(database, row)

        async with self._lock:
            self._stay()
            if self.row is None or not self.row.visible:
                await self._get_rows(visible=True)
            if self.row is not None and self.row.state not in TERMINAL:
                await self._park(op)
        raise Parked

    # How.

    async def _work(self) -> Answer | None:
        call = self.call
        context = Context(
            principal=str(call.principal),
            sender=str(call.requester),
            skill=call.skill.name,
            host=self,
        )
        try:
            made = await call_skill(
                call.skill,
                call.arguments,
                context,
                self._keeper.threads.share(context.principal),
            )
            return result_of(call.skill, made)
        except (InvalidParam, SkillFailed, SkillTimeout) as error:
            return None if self._left() else error_of(call.skill, error)
        except Parked:
            pass
        except BaseExceptionGroup as group:
            # A task group of the skill's wraps it; what else it holds is not for us.
            rest = group.split(Parked)[1]
            if rest is not None:
                raise rest from None
        if self._refused is None and self.stopped is not None and not self._parked:
            return self._interrupted()
        return self._refused

    def _left(self) -> bool:
        return self._parked or self._refused is not None or self.stopped == "lost"

    def _interrupted(self) -> StanzaError | None:
        """How a run ends that was stopped before its skill had ended; None: cancelled, or open."""
        match self.stopped:
            case "limit":
                return errors.timed_out(repeatable=self._repeatable)
            case "deadline":
                return errors.deadline_expired()
            case "cancel" | "drain" if self._under_way and self.row is not None:
                return errors.outcome_unknown()
            case "drain" if self.row is None:
                return errors.timed_out(repeatable=self._repeatable)
        return None

    async def _end(self, ended: Answer | None) -> None:
        async with self._lock:
            self._over = True
            if self.stopped == "lost" or self._parked:
                return
            if isinstance(ended, Result):
                whole = self._parts.completed(ended)
                ended = checked(self.call.skill, whole, self._keeper.limits.result_bytes)
            if self._refused is not None:
                ended = self._refused
            if self.row is not None:
                await self._end_task(ended)
            elif ended is not None:
                if not self._repeatable:
                    answer = ended
                    await self._keeper.keep(
                        lambda db: replay.answer_record(db, self.call.key, answer)
                    )
                self._land(ended)

    async def _end_task(self, ended: Answer | None) -> None:
        row, retention_ms = self._held(), self._keeper.limits.retention_ms

        def op(database: Database) -> list[Change]:
            mine = load_owned(database, row.id, row.token)
            for step in self._unbegun:
                database.execute(
                    "DELETE FROM journal WHERE task = ? AND step = ? AND done = 0", (row.id, step)
                )
            if ended is None and self.stopped == "drain":
                return leases.release(database, mine, retention_ms=retention_ms)
            made: list[Change] = []
            if self._progress is not None and mine.state == "running":
                made.append(change(database, mine, "running", self._progress))
            if mine.state in TERMINAL:
                return made
            if isinstance(ended, Result):
                to: Any = "completed"
            elif ended is None and mine.state == "cancelling":
                to = "cancelled"
            else:
                to = "failed"
            outcome = ended if not isinstance(ended, Accepted) else None
            if to == "failed" and outcome is None:
                outcome = errors.internal()
            made.append(
                replay.end(
                    *(database, mine, to, outcome),
                    repeatable=self._repeatable,
                    retention_ms=retention_ms,
                )
            )
            return made

        made = await self._keeper.keep(op)
        if made:
            self._committed(made, ended=ended)

    def _committed(
        self,
        made: Sequence[Change],
        question: Question | None = None,
        ended: Answer | None = None,
    ) -> None:
        """Take note of what this run has written, and tell of it; `ended` is how it was to end."""
        last = made[-1]
        self.row = last.row
        self._keeper.tell(made, question)
        self._keeper.look_at(last.row.due)
        if last.row.state not in TERMINAL:
            return
        if not last.row.visible:
            self._land(replay.ended_with(last, ended))
        if not self._over:
            # The deadline was reached at this commit: there is nothing left to run for.
            self.stop("lost")
            raise Parked

    def _land(self, answer: Answer) -> None:
        if self.flight is not None:
            self.flight.land(answer)

    async def _grow(
        self, keep: Callable[..., Any], *, visible: bool, step: str | None = None
    ) -> None:
        """Get rows, in which `step` has begun, or be seen by the rows there are. Under the lock."""
        call, limits, owner = self.call, self._keeper.limits, self._keeper.instance
        request = admit.request_row(call, limits)
        mine = self.row
        journal, shown, progress = dict(self._journal.done), self._parts.all, self._progress

        def op(database: Database) -> tuple[Row, Accepted, Sequence[Change]]:
            if mine is not None:
                row = load_owned(database, mine.id, mine.token)
                accepted = admit.accepted_as(row, "accepted", limits)
                changes = admit.reveal(database, row)
                replay.accept_record(database, row.id, accepted)
                return row, accepted, changes
            if self._repeatable:
                admit.refuse_crowd(database, str(call.principal), limits)
            row = admit.new_row(database, self.task, call, request, limits, visible=visible)
            accepted = admit.accepted_as(row, "accepted", limits)
            made = [admit.begin(database, row, owner, atomic=self._atomic, new=True)]
            made += admit.catch_up(database, row, journal, shown, progress)
            if step is not None and row.state == "running":
                admit.begin_step(database, row, step)
            answer = accepted if visible else None
            if self._repeatable:
                found = replay.record(
                    *(database, call.key, call.digest),
                    window_ms=limits.replay_ms,
                    owner=owner,
                    task=row.id,
                    answer=answer,
                )
                if found is not None:
                    raise AlreadyError(found)
            else:
                replay.answer_record(database, call.key, answer, task=row.id)
            return row, accepted, made

        row, accepted, changes = await keep(op)
        self.row = row
        if mine is None:
            self._progress = None
            self._keeper.grown(self)
        elif self._progress is not None:  # said while nobody could see it
            self._keeper.later(0, self._flush_later)
        if visible:
            self._land(accepted)
        self._keeper.tell(changes)
        self._keeper.look_at(row.due)

    async def _change(self, op: Callable[[Database, Row], Change]) -> None:
        """Write a change of the running task. Under the lock."""
        row = self._held()
        try:
            made = await self._keeper.keep(lambda db: op(db, load_owned(db, row.id, row.token)))
        except LostError:
            self.stop("lost")
            raise Parked from None
        self._committed([made])

    async def _park(self, op: Callable[[Database, Row], tuple[Change, Question | None]]) -> None:
        row = self._held()

        def guarded(database: Database) -> tuple[Change, Question | None] | None:
            mine = load_owned(database, row.id, row.token)
            return None if mine.state == "cancelling" else op(database, mine)

        try:
            asked = await self._keeper.keep(guarded)
        except LostError:
            self.stop("lost")
            return
        if asked is None:
            self.stop("cancel")
            return
        self._parked = asked[0].row.state == "input-required"
        self._committed([asked[0]], asked[1])

    async def _begin(self, step: str) -> None:
        """Commit that a step with effects begins."""
        async with self._lock:
            self._stay()
            if self.row is None:
                await self._get_rows(visible=False, step=step)
                self._begun(step)
                return
            row = self._held()
            limits = self._keeper.limits

            def op(database: Database) -> Change | None:
                mine = load_owned(database, row.id, row.token)
                if mine.deadline is not None and database.now >= mine.deadline:
                    late = errors.deadline_expired()
                    return replay.end(
                        *(database, mine, "failed", late), retention_ms=limits.retention_ms
                    )
                if mine.state == "cancelling":
                    return None
                admit.begin_step(database, mine, step)
                return None

            try:
                late = await self._keeper.keep(op)
            except LostError:
                self.stop("lost")
                raise Parked from None
            if late is not None:
                self._committed([late])
            self._begun(step)

    def _begun(self, step: str) -> None:
        """A step may go ahead, unless the run is being stopped: then nothing of it happens."""
        if self.stopped is not None:
            self._unbegun.append(step)
            raise Parked
        self._under_way.add(step)

    async def _get_rows(self, *, visible: bool, step: str | None = None) -> None:
        """Get rows for the skill's sake, or leave it where that is refused. Under the lock."""
        try:
            await self._grow(self._keeper.keep, visible=visible, step=step)
        except StanzaError as error:
            if any(isinstance(one, errors.Retry) for one in error.application):
                self.stop("lost")  # a refusal that may pass is nobody's recorded answer
            else:
                self._refused = error
            raise Parked from None
        except (AlreadyError, LostError):
            self.stop("lost")
            raise Parked from None

    async def _done(self, step: str, record: str) -> None:
        """Commit that a step is done, even if the run is being stopped meanwhile."""
        with anyio.CancelScope(shield=True) as recording, self._recorded(recording):
            async with self._lock:
                if self.row is not None and not self._parked:
                    row = self.row

                    def op(database: Database) -> None:
                        admit.end_step(
                            database, load_owned(database, row.id, row.token), step, record
                        )

                    try:
                        await self._keeper.keep(op)
                    except LostError:
                        self.stop("lost")
                        raise Parked from None
                self._journal.done[step] = record
                self._under_way.discard(step)

    @contextmanager
    def _recorded(self, scope: anyio.CancelScope) -> Iterator[None]:
        """Nothing but `give_up` ends the writing of what a step has done."""
        self._recording.add(scope)
        try:
            yield
        finally:
            self._recording.discard(scope)

    async def _flush(self) -> None:
        async with self._lock:
            progress = self._progress
            if progress is None or self.row is None or self._over or self._parked:
                return
            if not self.row.visible:
                return
            self._progress = None
            self._told_progress = anyio.current_time()
            await self._change(lambda db, row: change(db, row, row.state, progress))

    async def _flush_later(self) -> None:
        self._flushing = False
        try:
            await self._flush()
        except Parked:
            return  # the run has been stopped, and ends by itself

    def _held(self) -> Row:
        assert self.row is not None
        return self.row

    def _stay(self) -> None:
        """Leave the skill if its run is over or has to end."""
        if self._over or self._parked or self._refused or self.stopped in ("lost", "drain"):
            raise Parked

    def _usable(self, what: str) -> None:
        if self._atomic:
            raise UsageError(
                f"The skill {self.call.skill.name} uses context.{what}, for which it must be able"
                " to begin anew: declare it with durable=True and put all its effects into steps,"
                " or read_only=True or idempotent=True if that is what it is."
            )

    def _name(self, name: str) -> str:
        """The name of a step: a second use of it is another step, whatever comes between."""
        self._used[name] += 1
        count = self._used[name]
        return name if count == 1 else f"{name}#{count}"

    def _key_of(self, step: str) -> str:
        return hashlib.sha256(f"{self.task}/{step}".encode()).hexdigest()[:32]


class AlreadyError(Exception):
    """The request has a record already: another run is its own."""

    def __init__(self, found: replay.Found) -> None:
        self.found = found
        super().__init__("the request has a record already")


def replay_id() -> str:
    """An identifier that nobody guesses and that is never used again."""
    return leases.new_instance()


def type_name(error: Exception) -> str:
    """What a person calls an error."""
    return type(error).__name__


def _recalled(record: str, wanted: type[T]) -> T:
    """What a step gave, as it was recorded."""
    recorded = msgspec.json.decode(record)
    if "value" in recorded:
        return msgspec.convert(recorded["value"], wanted)
    if "declined" in recorded:
        raise Denied(recorded["declined"])
    if "refused" in recorded:
        raise SkillError(recorded["refused"])
    raise StepFailed(f"The step failed: {recorded.get('failed', 'nobody knows why')}")
