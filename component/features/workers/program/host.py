"""Implements the Context of a skill on a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import anyio

from component.features.workers.messages import Asked, CallMessage, Records
from component.skills.errors import UsageError
from component.skills.operations import (
    CAPABILITY,
    METHODS,
    AskModel,
    AskPrincipal,
    ModelOutcome,
    Operation,
    Parked,
    PartialHost,
    PublishPart,
    ReportProgress,
    RunStep,
    Sleep,
    Work,
)
from component.skills.outputs import Output
from component.skills.skill import Skill
from component.tasks.journal import Recorded, Steps, json_of, model_step, result_of, run_step

T = TypeVar("T")

_PROGRESS_S: Final = 0.5
"""Least number of seconds between two reports of progress."""

_in_step: ContextVar[bool] = ContextVar("in_step", default=False)

Report = Callable[[float, str], Awaitable[None]]


class WorkerHost(PartialHost):
    """Performs the operations of one call.

    Args:
        skill: the skill.
        message: its call.
        report: reports progress.

    Attributes:
        asked: what the skill asks the service for; it is interrupted for that.
    """

    def __init__(self, skill: Skill, message: CallMessage, report: Report) -> None:
        self.asked: Asked | None = None
        self.key = message.key
        self._skill = skill
        self._report = report
        done = {name: Recorded(*each) for name, each in message.records.items()}
        self._steps = Steps(message.key)
        self._steps.done = done
        self._task = anyio.get_current_task().id
        self._outputs: dict[str, _Artifact] = {}
        self._reported = -_PROGRESS_S

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The artifacts that were published."""
        return tuple(
            Output("".join(one.texts), one.media_type, name) for name, one in self._outputs.items()
        )

    async def perform(self, operation: Operation, *local: Callable[[str], Any]) -> Any:
        """Perform an operation, if the skill can run again where that is necessary."""
        if isinstance(operation, RunStep | AskPrincipal | AskModel) and not (
            self._skill.durable or self._skill.annotations.repeatable
        ):
            method = METHODS[type(operation)]
            raise UsageError(
                f"The skill {self._skill.name} uses context.{method}, for which it must be able to"
                " run again from its beginning: declare it with durable=True and put all its"
                " effects into steps, or read_only=True or idempotent=True if that is what it is."
            )
        return await super().perform(operation, *local)

    def unsupported(self, method: str) -> UsageError:
        """Return the error for what only the service does."""
        return UsageError(
            f"The skill {self._skill.name} uses context.{method}, which is not possible on a"
            " worker: only the service starts tasks (docs/workers.md)."
        )

    async def _progress(self, report: ReportProgress) -> None:
        """Report progress; reports in quick succession are dropped."""
        now = anyio.current_time()
        if now - self._reported >= _PROGRESS_S:
            self._reported = now
            await self._report(report.fraction, report.text)

    async def _output(self, part: PublishPart) -> None:
        """Keep a part of an artifact; the service gets it with the result."""
        artifact = self._outputs.setdefault(part.name, _Artifact(part.media_type))
        if artifact.ended or artifact.media_type != part.media_type:
            what = "has had its last part" if artifact.ended else "has another media type"
            raise ValueError(f"the artifact {part.name!r} {what}")
        artifact.texts.append(part.text)
        artifact.ended = part.last

    async def _step(self, operation: RunStep, work: Work[bytes]) -> bytes:
        """Run a step, or return its result if it ran in an earlier call of the same execution."""
        step, recorded = self._steps.find(operation, branch=self._in_branch())
        if recorded is None:
            outer = _in_step.set(True)
            try:
                key = self._steps.key_of(step.name)
                made, error = await run_step(operation.name, work, key, effects=False)
            finally:
                _in_step.reset(outer)
            recorded = self._steps.done[step.name] = Recorded(made, step.input)
            if error is not None:
                raise error
        return json_of(recorded)

    async def _ask(self, asked: AskPrincipal) -> bytes:
        """Ask the principal, through the service."""
        if _in_step.get():
            raise UsageError(
                f"The skill {self._skill.name} asks a question inside a step: ask before the step,"
                " and pass it the answer."
            )
        step, recorded = self._steps.find(asked, branch=self._in_branch())
        if recorded is not None:
            return json_of(recorded)
        raise self._park(
            Asked(step.name, asked.question, asked.schema, asked.expires_s, records=self._records())
        )

    async def _llm(self, asked: AskModel, _check: object) -> str:
        """Ask a model, through the service."""
        if CAPABILITY not in self._skill.capabilities:
            raise UsageError(
                f"The skill {self._skill.name} uses context.llm, for which it must declare"
                f' capabilities=["{CAPABILITY}"].'
            )
        step, recorded = self._steps.find(model_step(asked), branch=self._in_branch())
        if recorded is None:
            raise self._park(
                Asked(
                    step.name,
                    asked.prompt,
                    asked.schema,
                    max_tokens=asked.max_tokens,
                    records=self._records(),
                )
            )
        return result_of(recorded, ModelOutcome).answer()

    def _park(self, asked: Asked) -> Parked:
        if self.asked is None:
            self.asked = asked
        return Parked()

    def _records(self) -> Records:
        return {name: (one.result, one.input) for name, one in self._steps.done.items()}

    async def _sleep(self, sleep: Sleep) -> None:
        """Wait. Unlike in the service, the call goes on meanwhile."""
        await anyio.sleep(sleep.seconds)

    handlers = {  # noqa: RUF012 - the base says that it is of the class
        ReportProgress: _progress,
        PublishPart: _output,
        RunStep: _step,
        AskPrincipal: _ask,
        Sleep: _sleep,
        AskModel: _llm,
    }

    def _in_branch(self) -> bool:
        return self._skill.kind == "async" and anyio.get_current_task().id != self._task


class _Artifact:
    def __init__(self, media_type: str) -> None:
        self.media_type = media_type
        self.texts: list[str] = []
        self.ended = False
