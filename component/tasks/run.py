"""One life of a call: the skill runs, and what it does is made durable as far as it must be.

A run has no rows until it needs some: for a step with effects, for a question, or because it takes
longer than its IQ may. The skill does not notice. What is written, and when, is its book's to know
(`component.tasks.book`).
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import TypeVar

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
from component.tasks import admit
from component.tasks.book import Book, Stop
from component.tasks.errors import LostError
from component.tasks.keeper import Keeper
from component.tasks.leases import Journal
from component.tasks.outcomes import error_of, result_of
from component.tasks.protocol import Call
from component.tasks.replay import Answer, Flight
from component.tasks.rows import Row
from component.tasks.steps import described, failed, gave, recalled, refused
from xep.binding.escaping import without_forbidden
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output
from xep.fluux_agent.task import Progress
from xep.stanza_error import StanzaError

T = TypeVar("T")

_log = structlog.get_logger("component.tasks")


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
        journal: Journal | None = None,
        parts: Sequence[Output] = (),
    ) -> None:
        self.call = call
        self.task = task
        self.flight = flight
        self._keeper = keeper
        self._book = Book(
            *(keeper, call, task, lambda: keeper.grown(self)),
            flight=flight,
            row=row,
            journal=journal,
            parts=parts,
        )
        self._steps = self._book.steps
        self._ending = anyio.CancelScope(shield=True)
        self._inside = 0
        """Steps under way, those that may be repeated included."""
        self._draining = False

    # What the engine does with it.

    @property
    def row(self) -> Row | None:
        """Its row, if it has one."""
        return self._book.row

    async def go(self) -> None:
        """Run to the end, or until it is stopped or has to wait for a person."""
        book, ended = self._book, None
        try:
            with book.scope:
                ended = await self._work()
            if book.scope.cancelled_caught:
                ended = self._interrupted()
            with self._ending:
                await book.end(ended)
        except LostError:
            book.stopped = "lost"
            _log.info("lost a task to another instance", task=self.task)
        finally:
            book.over = True
            if self.flight is not None:
                self.flight.land(None)

    def stop(self, why: Stop) -> None:
        """End it, as soon as its skill lets it."""
        self._book.stop(why)

    def drain(self) -> None:
        """The service ends: stop it as soon as nothing is lost by that.

        So it is where a durable skill is between its steps, and nobody waits for an answer: it
        goes on from there in another life.
        """
        self._draining = True
        self._leave_off()

    def _leave_off(self) -> None:
        row, between = self.row, self.call.skill.durable and not self._inside
        if self._draining and between and row is not None and row.visible:
            self.stop("drain")

    def give_up(self) -> None:
        """End it even where it waits to write its end. What is on disk stands."""
        self._book.scope.cancel()
        self._ending.cancel()
        self._book.give_up()

    async def reveal(self) -> bool:
        """Become a task that its caller knows of, and answer the request so (EXE-016).

        False if it has ended meanwhile. Raises StorageError, AlreadyError, and StanzaError where
        there is no room for the task; then the run is stopped, for nobody would learn of its end.
        """
        revealed = await self._book.reveal()
        self._leave_off()
        return revealed

    # What the skill does with it: the Host of its Context.

    @property
    def key(self) -> str:
        """The idempotency key of the whole call."""
        return self._steps.key_of(admit.ATOMIC)

    async def progress(self, fraction: float, text: str) -> None:
        """Tell how far the work is, at most once a second."""
        self._book.stay()
        await self._book.progress(
            Progress(
                fraction=round(Decimal(repr(float(fraction))), 4), text=without_forbidden(text)
            )
        )

    async def output(self, name: str, text: str, media_type: str, *, last: bool) -> None:
        """Show a part of an artifact."""
        self._book.stay()
        part = self._book.parts.next(name, without_forbidden(text), media_type, last=last)
        if part is not None:
            await self._book.show(part)

    async def step(self, name: str, work: Work[T], type: type[T], *, repeatable: bool) -> T:  # noqa: A002
        """Do a step once."""
        book = self._book
        book.stay()
        self._usable("step")
        step = self._steps.step_named(name)
        recorded = self._steps.done.get(step)
        if recorded is not None:
            return recalled(recorded, type)
        if not (repeatable or book.repeatable):
            await book.begin(step)
        self._inside += 1
        try:
            record = await self._do(name, step, work)
        finally:
            self._inside -= 1
            self._leave_off()
        return recalled(record, type)

    async def _do(self, name: str, step: str, work: Work[T]) -> str:
        """Do a step, and return what is recorded of it."""
        book = self._book
        try:
            record = gave(await work(self._steps.key_of(step)))
        except (Denied, InvalidParam, UsageError):
            raise
        except SkillError as error:
            await book.done(step, refused(error))
            raise
        except Exception as error:
            await book.done(step, failed(error))
            raise StepFailed(f"The step {name!r} failed: {described(error)}") from error
        await book.done(step, record)
        return record

    async def ask(self, question: str, schema: type[T], expires_s: float | None) -> T:
        """Ask the principal; the run ends here, and another one begins with the answer."""
        book = self._book
        book.stay()
        self._usable("ask")
        step = self._steps.question_named(question)
        recorded = self._steps.done.get(step)
        if recorded is not None:
            return recalled(recorded, schema)
        shown = msgspec.Raw(msgspec.json.encode(object_schema(schema)))
        if self.call.execute.mode == "inline":
            book.refused = errors.confirmation_unavailable()
            raise Parked
        seconds = self._keeper.limits.ask_expires_s if expires_s is None else expires_s
        await book.ask(step, without_forbidden(question), shown, seconds)
        raise Parked

    def _usable(self, what: str) -> None:
        if self._book.atomic:
            raise UsageError(
                f"The skill {self.call.skill.name} uses context.{what}, for which it must be able"
                " to begin anew: declare it with durable=True and put all its effects into steps,"
                " or read_only=True or idempotent=True if that is what it is."
            )

    # How.

    async def _work(self) -> Answer | None:
        book, call = self._book, self.call
        context = Context(
            principal=str(call.principal),
            sender=str(call.requester),
            skill=call.skill.name,
            agent=call.hand.agent,
            taints=call.hand.taints,
            trace=call.hand.trace,
            host=self,
        )
        try:
            made = await call_skill(
                call.skill,
                call.arguments,
                context,
                self._keeper.threads.share(context.principal),
                timeout=call.hand.timeout_s,
            )
            if call.told is not None and made.taints is not None:
                call.told(call.skill.taint_of(made))
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
        if book.refused is None and book.stopped is not None and not book.parked:
            return self._interrupted()
        return book.refused

    def _left(self) -> bool:
        book = self._book
        return book.parked or book.refused is not None or book.stopped == "lost"

    def _interrupted(self) -> StanzaError | None:
        """How a run ends that was stopped before its skill had ended; None: cancelled, or open."""
        book = self._book
        match book.stopped:
            case "limit":
                return errors.timed_out(repeatable=book.repeatable)
            case "deadline":
                return errors.deadline_expired()
            case "cancel" | "drain" if self._steps.under_way and book.row is not None:
                return errors.outcome_unknown()
            case "drain" if book.row is None:
                return errors.timed_out(repeatable=book.repeatable)
        return None
