"""Performs the operations of a skill in a confined child: the service records them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from component.sandbox.messages import StepEnded
from component.skills.errors import (
    CapabilityMissing,
    Denied,
    InvalidParam,
    SkillError,
    StepFailed,
    UsageError,
)
from component.skills.host import HostError, HostFunctions
from component.skills.model_answers import CAPABILITY
from component.skills.operations import (
    AskModel,
    AskPrincipal,
    PartialHost,
    PublishPart,
    ReportProgress,
    RunStep,
    Sleep,
    Work,
)

if TYPE_CHECKING:
    from component.sandbox.guest import Guest

_in_step: Final[ContextVar[bool]] = ContextVar("in_step", default=False)
"""Whether the work of a step runs."""


class DurableParts(PartialHost):
    """Sends the operations of a skill in a child to the service.

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

    def unsupported(self, method: str) -> UsageError:
        """Return the error for what a confined skill cannot do."""
        return UsageError(
            f"A confined skill cannot use context.{method}: it would run other skills with the"
            " rights of its caller. An admin can approve the skill as trusted."
        )

    async def _progress(self, report: ReportProgress) -> None:
        await self._guest.ask(report, type=type(None))

    async def _output(self, part: PublishPart) -> None:
        try:
            await self._guest.ask(part, type=type(None))
        except HostError as error:
            raise ValueError(str(error)) from error

    async def _llm(self, asked: AskModel, _check: Callable[[str], object]) -> str:
        if AskModel not in self._functions.handlers:
            raise CapabilityMissing(self._skill, CAPABILITY)
        return await self._guest.ask(asked, branch=self._in_branch(), type=str)

    async def _step(self, step: RunStep, work: Work[bytes]) -> bytes:
        raised: list[Exception] = []

        async def run(idempotency_key: str) -> StepEnded:
            outer = _in_step.set(True)
            try:
                return StepEnded(0, await work(idempotency_key))
            except Exception as error:  # noqa: BLE001 - the service records it
                raised.append(error)
                return _ended(error)
            finally:
                _in_step.reset(outer)

        try:
            value = await self._guest.ask(step, branch=self._in_branch(), type=object, work=run)
        except (SkillError, StepFailed, UsageError) as error:
            if not raised:
                raise
            if isinstance(error, StepFailed):
                raise error from raised[0]
            raise raised[0] from None
        return msgspec.json.encode(value)

    async def _ask(self, asked: AskPrincipal) -> bytes:
        if _in_step.get():
            raise UsageError("A skill asks a question before a step, and passes it the answer.")
        answer = await self._guest.ask(asked, branch=self._in_branch(), type=object)
        return msgspec.json.encode(answer)

    async def _sleep(self, sleep: Sleep) -> None:
        await self._guest.ask(sleep, branch=self._in_branch(), type=type(None))

    handlers = {  # noqa: RUF012 - the base says that it is of the class
        ReportProgress: _progress,
        PublishPart: _output,
        RunStep: _step,
        AskPrincipal: _ask,
        Sleep: _sleep,
        AskModel: _llm,
    }

    def _in_branch(self) -> bool:
        return self._task is not None and anyio.get_current_task().id != self._task


def _ended(error: Exception) -> StepEnded:
    """Return how a step ended that raised an exception."""
    if isinstance(error, Denied | InvalidParam | UsageError):
        return StepEnded(0, error=str(error), kind="usage")
    if isinstance(error, SkillError):
        return StepEnded(0, error=str(error), kind="refused")
    return StepEnded(0, error=f"{type(error).__name__}: {error}")
