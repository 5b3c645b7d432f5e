"""Implements the Context of a skill on a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, NoReturn, TypeVar

import anyio
import msgspec

from component.features.workers.messages import Asked, CallMessage, Records
from component.skills.durable import ChildResult, Parked, Work
from component.skills.errors import Denied, InvalidParam, SkillError, StepFailed, UsageError
from component.skills.model_answers import CAPABILITY, ModelOutcome, ModelQuestion
from component.skills.outputs import Output
from component.skills.schema import object_schema
from component.skills.skill import Skill
from component.tasks.journal import (
    Recorded,
    StepId,
    Steps,
    described,
    failed,
    refused,
    result_of,
    succeeded,
)

T = TypeVar("T")

_PROGRESS_S: Final = 0.5
"""Least number of seconds between two reports of progress."""

_in_step: ContextVar[bool] = ContextVar("in_step", default=False)

Report = Callable[[float, str], Awaitable[None]]


class WorkerHost:
    """Serves the Context of one call.

    Args:
        skill: the skill.
        message: its call.
        report: reports progress.

    Attributes:
        asked: what the skill asks the service for; it is interrupted for that.
        resumes: always false: a call that is stopped is not resumed.
    """

    def __init__(self, skill: Skill, message: CallMessage, report: Report) -> None:
        self.asked: Asked | None = None
        self.resumes = False
        self._skill = skill
        self._key = message.key
        self._report = report
        done = {name: Recorded(*each) for name, each in message.records.items()}
        self._steps = Steps(message.key)
        self._steps.done = done
        self._task = anyio.get_current_task().id
        self._outputs: dict[str, _Artifact] = {}
        self._reported = -_PROGRESS_S

    @property
    def key(self) -> str:
        """The idempotency key of the whole call."""
        return self._key

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The artifacts that were published."""
        return tuple(
            Output("".join(one.texts), one.media_type, name) for name, one in self._outputs.items()
        )

    async def progress(self, fraction: float, text: str) -> None:
        """Report progress; reports in quick succession are dropped."""
        now = anyio.current_time()
        if now - self._reported >= _PROGRESS_S:
            self._reported = now
            await self._report(fraction, text)

    async def output(self, name: str, text: str, media_type: str, *, last: bool) -> None:
        """Keep a part of an artifact; the service gets it with the result."""
        artifact = self._outputs.setdefault(name, _Artifact(media_type))
        if artifact.ended or artifact.media_type != media_type:
            what = "has had its last part" if artifact.ended else "has another media type"
            raise ValueError(f"the artifact {name!r} {what}")
        artifact.texts.append(text)
        artifact.ended = last

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
        """Run a step, or return its result if it ran in an earlier call of the same execution."""
        self._require_steps("step")
        step = self._steps.step(name, key, input, branch=self._in_branch())
        if step.name in self._steps.done:
            return result_of(self._steps.done[step.name], type)
        outer = _in_step.set(True)
        try:
            made = succeeded(await work(self._steps.key_of(step.name)))
        except (Denied, InvalidParam, UsageError):
            raise
        except SkillError as error:
            self._record(step, refused(error))
            raise
        except Exception as error:
            self._record(step, failed(error, effects=False))
            raise StepFailed(f"The step {name!r} failed: {described(error)}") from error
        finally:
            _in_step.reset(outer)
        return result_of(self._record(step, made), type)

    def _record(self, step: StepId, result: str) -> Recorded:
        recorded = self._steps.done[step.name] = Recorded(result, step.input)
        return recorded

    async def ask(
        self,
        question: str,
        schema: type[Any] | Mapping[str, Any],
        expires_s: float | None,
        *,
        key: str | int | None,
    ) -> Any:
        """Ask the principal, through the service."""
        self._require_steps("ask")
        if _in_step.get():
            raise UsageError(
                f"The skill {self._skill.name} asks a question inside a step: ask before the step,"
                " and pass it the answer."
            )
        step = self._steps.question(question, key, branch=self._in_branch())
        if step.name in self._steps.done:
            wanted = dict[str, Any] if isinstance(schema, Mapping) else schema
            return result_of(self._steps.done[step.name], wanted)
        fields = schema if isinstance(schema, Mapping) else object_schema(schema)
        shown = msgspec.json.encode(fields)
        raise self._park(Asked(step.name, question, shown, expires_s, records=self._records()))

    async def llm(self, question: ModelQuestion, *, key: str | int | None) -> str:
        """Ask a model, through the service."""
        if CAPABILITY not in self._skill.capabilities:
            raise UsageError(
                f"The skill {self._skill.name} uses context.llm, for which it must declare"
                f' capabilities=["{CAPABILITY}"].'
            )
        self._require_steps("llm")
        asked = [question.prompt, question.schema]
        step = self._steps.step("llm", key, asked, branch=self._in_branch())
        if step.name not in self._steps.done:
            raise self._park(
                Asked(
                    step.name,
                    question.prompt,
                    bytes(question.schema),
                    max_tokens=question.max_tokens,
                    records=self._records(),
                )
            )
        return result_of(self._steps.done[step.name], ModelOutcome).answer()

    def _park(self, asked: Asked) -> Parked:
        if self.asked is None:
            self.asked = asked
        return Parked()

    def _records(self) -> Records:
        return {name: (one.result, one.input) for name, one in self._steps.done.items()}

    async def sleep(self, seconds: float, *, key: str | int | None) -> None:
        """Wait. Unlike in the service, the call goes on meanwhile."""
        await anyio.sleep(seconds)

    async def start(
        self, skill: str, params: Mapping[str, Any], *, delay_s: float, key: str | int | None
    ) -> str:
        """Refuse: workers start no tasks."""
        self._refuse("start")

    async def wait(
        self, tasks: Sequence[str], *, eager: bool, key: str | int | None
    ) -> list[ChildResult]:
        """Refuse: workers start no tasks."""
        self._refuse("wait")

    async def wait_for_turn(self, turn: str) -> NoReturn:
        """Refuse: only goals wait for turns."""
        self._refuse("wait_for_turn")

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(
            f"The skill {self._skill.name} uses context.{what}, which is not possible on a worker:"
            " only the service starts tasks (docs/workers.md)."
        )

    def _require_steps(self, what: str) -> None:
        if not (self._skill.durable or self._skill.annotations.repeatable):
            raise UsageError(
                f"The skill {self._skill.name} uses context.{what}, for which it must be able to"
                " run again from its beginning: declare it with durable=True and put all its"
                " effects into steps, or read_only=True or idempotent=True if that is what it is."
            )

    def _in_branch(self) -> bool:
        return self._skill.kind == "async" and anyio.get_current_task().id != self._task


class _Artifact:
    def __init__(self, media_type: str) -> None:
        self.media_type = media_type
        self.texts: list[str] = []
        self.ended = False
