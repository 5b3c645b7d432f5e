"""When a run writes, and what follows from it: one commit at a time, under one lock.

What it writes is in `component.tasks.commits`. A run that has lost its task is left and says
nothing to anybody.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal

import anyio
import msgspec

from component.skills.context import Parked
from component.storage.database import Database
from component.tasks import admit, commits, leases, replay
from component.tasks.commits import AlreadyError
from component.tasks.confirmation import lapses
from component.tasks.errors import LostError
from component.tasks.keeper import Keeper
from component.tasks.outcomes import checked
from component.tasks.parts import Parts
from component.tasks.protocol import Call, Question
from component.tasks.questions import ask_input, put_question
from component.tasks.replay import Answer, Flight
from component.tasks.rows import Change, Row, change, load_owned
from component.tasks.states import TERMINAL
from component.tasks.steps import Steps
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output, Result
from xep.fluux_agent.task import Progress
from xep.stanza_error import StanzaError

Stop = Literal["cancel", "deadline", "limit", "lost", "drain"]
"""Why a run is ended: its caller asked; its time is over; the IQ's time is over and the mode is
inline; it has lost its task; the service ends."""

_PROGRESS_S: Final = 1.0
"""Progress that comes faster than this is joined (EVT-013)."""


class Book:
    """What one run has on disk, and where it stands.

    Methods that a skill waits for raise Parked where the skill is to be left: the run is over, is
    being stopped, or waits for a person.

    Args:
        keeper: the engine.
        call: what was asked for.
        task: the id that its task has, or would have.
        grown: called when it gets rows.
        flight: who waits for the answer to its request, if anybody may.
        row: its row, if it has one; it is running, and ours.
        journal: what is recorded of its steps.
        parts: the artifacts that it has shown.

    Attributes:
        repeatable: whether the skill may run twice.
        atomic: whether it is one step as a whole, which must not run twice.
        scope: what the skill runs in; cancelled when it is stopped.
        stopped: why it is being stopped.
        refused: what it ends with, whatever its skill gives.
        parked: whether it waits for a person.
        over: whether it has ended, one way or the other.
    """

    def __init__(
        self,
        keeper: Keeper,
        call: Call,
        task: str,
        grown: Callable[[], None],
        *,
        flight: Flight | None,
        row: Row | None,
        journal: leases.Journal | None,
        parts: Sequence[Output],
    ) -> None:
        self._keeper = keeper
        self._call = call
        self._task = task
        self._grown = grown
        self._flight = flight
        self.row = row
        self.repeatable = call.skill.annotations.repeatable
        self.atomic = not self.repeatable and not call.skill.durable
        self.steps = Steps(task, journal)
        if self.atomic:
            self.steps.under_way.add(admit.ATOMIC)
        self.parts = Parts(parts, keeper.limits.result_bytes)
        self.scope = anyio.CancelScope()
        self.stopped: Stop | None = None
        self.refused: StanzaError | None = None
        self.parked = False
        self.over = False
        self._lock = anyio.Lock()
        self._recording: set[anyio.CancelScope] = set()
        """Steps whose end is being written."""
        self._progress: Progress | None = None
        self._told_progress = -_PROGRESS_S
        self._flushing = False

    # The end of it.

    def stop(self, why: Stop) -> None:
        """End the run, as soon as its skill lets it."""
        if self.stopped is None:
            self.stopped = why
        self.scope.cancel()

    def stay(self) -> None:
        """Leave the skill if its run is over or has to end."""
        if self.over or self.parked or self.refused or self.stopped in ("lost", "drain"):
            raise Parked

    def give_up(self) -> None:
        """Write no more of what steps have done."""
        for recording in tuple(self._recording):
            recording.cancel()

    async def end(self, ended: Answer | None) -> None:
        """Write how the run ended, and answer who still waits; None: it was cancelled, or is open.

        Raises LostError.
        """
        async with self._lock:
            self.over = True
            if self.stopped == "lost" or self.parked:
                return
            if isinstance(ended, Result):
                whole = self.parts.completed(ended)
                ended = checked(self._call.skill, whole, self._keeper.limits.result_bytes)
            if self.refused is not None:
                ended = self.refused
            if self.row is not None:
                await self._end_task(ended)
            elif ended is not None:
                if not self.repeatable:
                    await self._keeper.keep(
                        partial(
                            replay.answer_record,
                            key=self._call.key,
                            answer=ended,
                            principal=str(self._call.principal),
                        )
                    )
                    self._keeper.kept(str(self._call.principal), replay.size_of(ended))
                self._land(ended)

    async def _end_task(self, ended: Answer | None) -> None:
        row = self._held()
        op = partial(
            commits.end,
            row=row,
            ended=ended,
            drained=self.stopped == "drain",
            unbegun=self.steps.unbegun,
            progress=self._progress,
            repeatable=self.repeatable,
            retention_ms=self._keeper.limits.retention_ms,
        )
        made = await self._keeper.keep(op)
        if made:
            self._committed(made, ended=ended)

    # Steps.

    async def begin(self, step: str) -> None:
        """Commit that a step with effects begins."""
        async with self._lock:
            self.stay()
            if self.row is None:
                await self._get_rows(visible=False, step=step)
                self._begun(step)
                return
            row = self._held()
            retention_ms = self._keeper.limits.retention_ms
            op = partial(commits.begin_step, row=row, step=step, retention_ms=retention_ms)
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
            self.steps.unbegun.append(step)
            raise Parked
        self.steps.under_way.add(step)

    async def done(self, step: str, record: str) -> None:
        """Commit that a step is done, even if the run is being stopped meanwhile."""
        with anyio.CancelScope(shield=True) as recording, self._recorded(recording):
            async with self._lock:
                if self.row is not None and not self.parked:
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
                self.steps.done[step] = record
                self.steps.under_way.discard(step)

    @contextmanager
    def _recorded(self, scope: anyio.CancelScope) -> Iterator[None]:
        """Nothing but `give_up` ends the writing of what a step has done."""
        self._recording.add(scope)
        try:
            yield
        finally:
            self._recording.discard(scope)

    # Questions.

    async def ask(self, step: str, text: str, schema: msgspec.Raw, seconds: float) -> None:
        """Park the task with a question, whose answer is the record of `step`."""
        input_id = leases.new_instance()

        def op(database: Database, row: Row) -> tuple[Change, Question | None]:
            expires = lapses(database.now, seconds, row.deadline)
            made = ask_input(database, row, step, text, schema, id=input_id, expires=expires)
            return made, put_question(database, row)

        async with self._lock:
            self.stay()
            if self.row is None or not self.row.visible:
                await self._get_rows(visible=True)
            if self.row is not None and self.row.state not in TERMINAL:
                await self._park(op)

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
        self.parked = asked[0].row.state == "input-required"
        self._committed([asked[0]], asked[1])

    # What it shows while it runs.

    async def show(self, part: Output) -> None:
        """Keep a part of an artifact, and tell of it."""
        async with self._lock:
            self.stay()
            if self.row is None:
                self.parts.shown(part)
                return
            await self._change(lambda db, row: admit.add_part(db, row, part))
            self.parts.shown(part)

    async def progress(self, progress: Progress) -> None:
        """Tell how far the work is, at most once a second."""
        self._progress = progress
        wait = self._told_progress + _PROGRESS_S - anyio.current_time()
        if wait <= 0:
            await self._flush()
        elif not self._flushing:
            self._flushing = True
            self._keeper.later(wait, self._flush_later)

    async def _flush(self) -> None:
        async with self._lock:
            progress = self._progress
            if progress is None or self.row is None or self.over or self.parked:
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

    async def _change(self, op: Callable[[Database, Row], Change]) -> None:
        """Write a change of the running task. Under the lock."""
        row = self._held()
        try:
            made = await self._keeper.keep(lambda db: op(db, load_owned(db, row.id, row.token)))
        except LostError:
            self.stop("lost")
            raise Parked from None
        self._committed([made])

    # Rows.

    async def reveal(self) -> bool:
        """Become a task that its caller knows of, and answer the request so.

        See `component.tasks.run.Run.reveal`.
        """
        async with self._lock:
            if self.over or self.parked or self.stopped is not None:
                return False
            if self.row is not None and self.row.visible:
                return True
            keep = self._keeper.write if self.repeatable else self._keeper.keep
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

    async def _get_rows(self, *, visible: bool, step: str | None = None) -> None:
        """Get rows for the skill's sake, or leave it where that is refused. Under the lock."""
        try:
            await self._grow(self._keeper.keep, visible=visible, step=step)
        except StanzaError as error:
            if any(isinstance(one, errors.Retry) for one in error.application):
                self.stop("lost")  # a refusal that may pass is nobody's recorded answer
            else:
                self.refused = error
            raise Parked from None
        except (AlreadyError, LostError):
            self.stop("lost")
            raise Parked from None

    async def _grow(
        self, keep: Callable[..., Any], *, visible: bool, step: str | None = None
    ) -> None:
        """Get rows, in which `step` has begun, or be seen by the rows there are. Under the lock."""
        mine, limits = self.row, self._keeper.limits
        op: Callable[[Database], commits.Grown]
        if mine is not None:
            op = partial(commits.reveal, row=mine, limits=limits)
        else:
            op = partial(
                commits.become_task,
                call=self._call,
                task=self._task,
                request=admit.request_row(self._call, limits),
                limits=limits,
                owner=self._keeper.instance,
                repeatable=self.repeatable,
                atomic=self.atomic,
                visible=visible,
                journal=dict(self.steps.done),
                parts=self.parts.all,
                progress=self._progress,
                step=step,
            )
        row, accepted, changes = await keep(op)
        self.row = row
        if mine is None:
            self._progress = None
            self._grown()
        elif self._progress is not None:  # said while nobody could see it
            self._keeper.later(0, self._flush_later)
        if visible:
            self._land(accepted)
        self._keeper.tell(changes)
        self._keeper.look_at(row.due)

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
        if not self.over:
            # The deadline was reached at this commit: there is nothing left to run for.
            self.stop("lost")
            raise Parked

    def _land(self, answer: Answer) -> None:
        if self._flight is not None:
            self._flight.land(answer)

    def _held(self) -> Row:
        assert self.row is not None
        return self.row
