"""The durable parts of a call in a confined child: the service records them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import anyio
import msgspec

from component.sandbox.messages import (
    AskLlm,
    AskOutput,
    AskPerson,
    AskSleep,
    AskStep,
    StepEnded,
)
from component.skills.durable import ChildResult, Work
from component.skills.errors import (
    CapabilityMissing,
    Denied,
    InvalidParam,
    SkillError,
    StepFailed,
    UsageError,
)
from component.skills.host import HostError, HostFunctions
from component.skills.model_answers import CAPABILITY, ModelQuestion
from component.skills.schema import object_schema

if TYPE_CHECKING:
    from component.sandbox.guest import Guest

T = TypeVar("T")

_in_step: Final[ContextVar[bool]] = ContextVar("in_step", default=False)
"""Whether the work of a step runs."""


class DurableParts:
    """Implements `component.skills.durable.DurableHost` in a child.

    Args:
        guest: asks the service.
        functions: those of the service that the skill may use.
        skill: the name of the skill.
        key: the idempotency key of the call.
        task: the id of the event loop's task that runs the skill; None for a plain function, whose
            thread does one thing after another.
    """

    def __init__(
        self, guest: Guest, functions: HostFunctions, skill: str, key: str, task: int | None
    ) -> None:
        self._guest = guest
        self._skill = skill
        self._functions = functions
        self._task = task
        self.key = key
        self.resumes = False

    async def progress(self, fraction: float, text: str) -> None:
        """See `Context.progress`."""
        await self._functions.progress(fraction, text)

    async def output(self, name: str, text: str, media_type: str, *, last: bool) -> None:
        """See `Context.output`."""
        try:
            await self._guest.ask(AskOutput, name, text, media_type, last, type=type(None))
        except HostError as error:
            raise ValueError(str(error)) from error

    async def llm(self, question: ModelQuestion, *, key: str | int | None) -> str:
        """See `Context.llm`."""
        if self._functions.llm is None:
            raise CapabilityMissing(self._skill, CAPABILITY)
        schema = bytes(question.schema).decode()
        branch = self._in_branch()
        values = (question.prompt, schema, question.max_tokens, branch, key)
        return await self._guest.ask(AskLlm, *values, type=str)

    async def step(
        self,
        name: str,
        work: Work[T],
        type: type[T],  # noqa: A002 - as in the Protocol
        *,
        repeatable: bool,
        key: str | int | None,
        input: object,  # noqa: A002 - as in the Protocol
    ) -> T:
        """See `Context.step`."""
        raised: list[Exception] = []

        async def run(idempotency_key: str) -> StepEnded:
            outer = _in_step.set(True)
            try:
                return StepEnded(0, msgspec.json.encode(await work(idempotency_key)))
            except Exception as error:  # noqa: BLE001 - the service records it
                raised.append(error)
                return _ended(error)
            finally:
                _in_step.reset(outer)

        encoded = b"" if input is None else msgspec.json.encode(input, order="deterministic")
        try:
            value = await self._guest.ask(
                *(AskStep, name, repeatable, encoded, self._in_branch(), key),
                type=object,
                work=run,
            )
        except (SkillError, StepFailed, UsageError) as error:
            if not raised:
                raise
            if isinstance(error, StepFailed):
                raise error from raised[0]
            raise raised[0] from None
        return msgspec.convert(value, type)

    async def ask(
        self,
        question: str,
        schema: type[Any] | Mapping[str, Any],
        expires_s: float | None,
        *,
        key: str | int | None,
    ) -> Any:
        """See `Context.ask`."""
        if _in_step.get():
            raise UsageError("A skill asks a question before a step, and passes it the answer.")
        fields = schema if isinstance(schema, Mapping) else object_schema(schema)
        answer = await self._guest.ask(
            *(AskPerson, question, msgspec.json.encode(fields).decode(), expires_s),
            *(self._in_branch(), key),
            type=dict[str, Any],
        )
        return answer if isinstance(schema, Mapping) else msgspec.convert(answer, schema)

    async def sleep(self, seconds: float, *, key: str | int | None) -> None:
        """See `Context.sleep`."""
        await self._guest.ask(AskSleep, seconds, self._in_branch(), key, type=type(None))

    async def start(
        self, skill: str, params: Mapping[str, Any], *, delay_s: float, key: str | int | None
    ) -> str:
        """Refuse."""
        _refuse("start")

    async def wait(
        self, tasks: Sequence[str], *, eager: bool, key: str | int | None
    ) -> list[ChildResult]:
        """Refuse."""
        _refuse("wait")

    async def wait_for_turn(self, turn: str) -> NoReturn:
        """Refuse."""
        _refuse("wait_for_turn")

    def _in_branch(self) -> bool:
        return self._task is not None and anyio.get_current_task().id != self._task


def _refuse(what: str) -> NoReturn:
    raise UsageError(
        f"A confined skill cannot use context.{what}: it would run other skills with the rights of"
        " its caller. An admin can approve the skill as trusted."
    )


def _ended(error: Exception) -> StepEnded:
    """Return how a step ended that raised an exception."""
    if isinstance(error, Denied | InvalidParam | UsageError):
        return StepEnded(0, error=str(error), kind="usage")
    if isinstance(error, SkillError):
        return StepEnded(0, error=str(error), kind="refused")
    return StepEnded(0, error=f"{type(error).__name__}: {error}")
