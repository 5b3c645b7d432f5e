"""What a skill may know about the call it serves, and what it may say while it runs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeVar

from component.policy.taint import Taint
from component.skills.outputs import TEXT

T = TypeVar("T")

Work: TypeAlias = Callable[[str], Awaitable[T]]
"""What a step does, given its idempotency key."""


class Parked(BaseException):
    """The call waits for a person: its function is left, and begins anew with the answer.

    No `Exception`, so that `except Exception` in a skill lets it pass. It is never to be caught.
    """


class Host(Protocol):
    """Who runs the call durably: what `Context` hands on. See there for what each does."""

    @property
    def key(self) -> str:
        """The idempotency key of the whole call."""

    async def progress(self, fraction: float, text: str) -> None:
        """Tell how far the work is."""

    async def output(self, name: str, text: str, media_type: str, *, last: bool) -> None:
        """Show a part of an artifact."""

    async def step(self, name: str, work: Work[T], type: type[T], *, repeatable: bool) -> T:  # noqa: A002
        """Do a step once."""

    async def ask(self, question: str, schema: type[T], expires_s: float | None) -> T:
        """Ask the principal."""


class Context:
    """One call, as the skill sees it.

    A skill asks for it by annotating a parameter with this class; it is passed in and is no part
    of the skill's schema. It belongs to one call and must not be kept after it.

    All that is async here can be used in a plain function too:
    `anyio.from_thread.run(context.progress, 0.5, "half way")`, and with arguments by name
    `anyio.from_thread.run(functools.partial(context.step, "pay", pay, str, repeatable=True))`.

    `principal` is the bare JID that policy decided on, `sender` the full address the call came
    from, `skill` the name the skill was called by, `agent` the agent that was asked or that calls
    it itself: its localpart, or `parent/id` for a sub-agent. `taints` say whose texts
    that agent's model has been shown, if it is a model that calls, and `trace` joins what is
    recorded of its turn. `key` is an idempotency key of
    this call: the same whenever the call is run again after an interruption.
    """

    __slots__ = (
        "_deadline",
        "_host",
        "_report",
        "agent",
        "key",
        "principal",
        "sender",
        "skill",
        "taints",
        "trace",
    )

    def __init__(
        self,
        *,
        principal: str,
        sender: str,
        skill: str,
        agent: str = "",
        taints: tuple[Taint, ...] = (),
        trace: str = "",
        report: Callable[[float, str], Awaitable[None]] | None = None,
        host: Host | None = None,
    ) -> None:
        """Take who asks for what; `report` passes progress on, and None means nobody listens.

        `host` is who runs the call durably, if anybody does: without it steps are just done, and
        nobody can be asked.
        """
        self.principal = principal
        self.sender = sender
        self.skill = skill
        self.agent = agent
        self.taints = taints
        self.trace = trace
        self.key = secrets.token_hex(16) if host is None else host.key
        self._report = report if host is None else host.progress
        self._host = host
        self._deadline: float | None = None

    async def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the work is, from 0 to 1, with a short text for people.

        Callers of a task are told at most once a second; what comes faster is joined.
        Raises ValueError when the fraction is not between 0 and 1.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress goes from 0 to 1, not {fraction}")
        if self._report is not None:
            await self._report(fraction, text)

    async def output(
        self, name: str, text: str, media_type: str = TEXT, *, last: bool = False
    ) -> None:
        """Show the next part of an artifact while it grows; the artifact is its parts in order.

        `last` says that no more parts follow. The result holds every artifact shown this way, so
        it need not be returned again. All parts of one artifact have one media type.

        Raises ValueError for a part after the last one, another media type, or more text than one
        answer can carry.
        """
        if self._host is not None:
            await self._host.output(name, text, media_type, last=last)

    async def step(
        self,
        name: str,
        work: Work[T],
        type: type[T],  # noqa: A002 - it is one
        *,
        repeatable: bool = False,
    ) -> T:
        """Do `work(key)` once, and return its recorded result, as `type`, ever after.

        A call that is run again, after an interruption or an answer, passes the steps it has done
        without doing them. Steps are known by their names; a second use of a name is another step.
        `key` is an idempotency key that stays the same when the step runs again.

        The beginning of a step is recorded too, unless it is `repeatable` or the skill is: one that
        was interrupted ends the task with `outcome-unknown` instead of running a second time.

        Raises SkillError as the work raised it, StepFailed when it raised anything else (the cause
        is there in the first life only), and UsageError in a skill that is neither `durable=True`
        nor read-only or idempotent.
        """
        if self._host is not None:
            return await self._host.step(name, work, type, repeatable=repeatable)
        return await work(self.key)

    async def ask(self, question: str, schema: type[T], *, expires_s: float | None = None) -> T:
        """Ask the principal, and return the answer.

        `schema` is a Struct, a dataclass or another type whose JSON Schema is an object; its fields
        become those of a form. The question lapses after `expires_s` seconds (a day unless the
        settings say otherwise), and with it the task. Never ask for secrets.

        Nothing waits meanwhile: the function is left at this place (by `Parked`, which it must not
        catch) and begins anew when the answer is there.

        Raises Denied when the principal declines, and UsageError in a skill that is neither
        `durable=True` nor read-only or idempotent, or where nobody can be asked.
        """
        if self._host is not None:
            return await self._host.ask(question, schema, expires_s)
        from component.skills.errors import UsageError  # noqa: PLC0415 - nobody else needs it

        raise UsageError(f"The skill {self.skill} asked a question where nobody can be asked.")

    def remaining(self) -> float | None:
        """Return the seconds left before the call is given up (0 when over), None for no limit."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - time.monotonic())

    def shorten(self, seconds: float) -> None:
        """Give the call at most so many seconds from now. For the executor."""
        # The monotonic clock and not the event loop's: a worker thread has no event loop to ask.
        deadline = time.monotonic() + seconds
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
