"""Runs the skill of one call, says how it ended, and implements its Context on a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

import anyio
from msgspec.structs import replace

from component.features.workers.messages import (
    Asked,
    CallMessage,
    Declined,
    Outcome,
    Records,
    encode,
)
from component.sandbox.messages import Failure, Result, trace_of
from component.skills.calling import Threads, call
from component.skills.context import Context
from component.skills.errors import (
    CALL_ERRORS,
    Denied,
    SkillFailed,
    UsageError,
)
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
    in_step,
)
from component.skills.outputs import Output, SkillResult
from component.skills.params import prepare
from component.skills.skill import Skill
from component.tasks.journal import Recorded, Steps, json_of, model_step, result_of, run_step

T = TypeVar("T")

_PROGRESS_S: Final = 0.5
"""Least number of seconds between two reports of progress."""

Report = Callable[[float, str], Awaitable[None]]


class WorkerHost(PartialHost):
    """Performs the operations of one call.

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
        self._task = anyio.get_current_task().id if skill.kind == "async" else None
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
        if isinstance(operation, RunStep | AskPrincipal | AskModel) and self._skill.atomic:
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
            " worker: only the service starts tasks (docs/how-to/workers.md)."
        )

    async def _do_progress(self, report: ReportProgress) -> None:
        now = anyio.current_time()
        if now - self._reported >= _PROGRESS_S:
            self._reported = now
            await self._report(report.fraction, report.text)

    async def _do_output(self, part: PublishPart) -> None:
        """Keep a part of an artifact; the service gets it with the result."""
        artifact = self._outputs.setdefault(part.name, _Artifact(part.media_type))
        if artifact.ended or artifact.media_type != part.media_type:
            what = "has had its last part" if artifact.ended else "has another media type"
            raise ValueError(f"the artifact {part.name!r} {what}")
        artifact.texts.append(part.text)
        artifact.ended = part.last

    async def _do_step(self, operation: RunStep, work: Work[bytes]) -> bytes:
        """Run a step, or return its result if it ran in an earlier call of the same execution."""
        step, recorded = self._steps.find(operation, branch=self._in_branch())
        if recorded is None:
            outer = in_step.set(True)
            try:
                key = self._steps.key_of(step.name)
                made, error = await run_step(operation.name, work, key, effects=False)
            finally:
                in_step.reset(outer)
            recorded = self._steps.done[step.name] = Recorded(made, step.input)
            if error is not None:
                raise error
        return json_of(recorded)

    async def _do_ask(self, asked: AskPrincipal) -> bytes:
        if in_step.get():
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

    async def _do_llm(self, asked: AskModel, _check: object) -> str:
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

    async def _do_sleep(self, sleep: Sleep) -> None:
        """Wait. Unlike in the service, the call goes on meanwhile."""
        await anyio.sleep(sleep.seconds)


class _Artifact:
    def __init__(self, media_type: str) -> None:
        self.media_type = media_type
        self.texts: list[str] = []
        self.ended = False


class Runtime(NamedTuple):
    """What calls run with: threads for plain skills, and the functions for their contexts."""

    threads: Threads
    provide: Callable[[Skill, Context], None]


async def execute(
    skill: Skill, message: CallMessage, seconds: float, runtime: Runtime, report: Report
) -> Outcome:
    """Run a skill for at most so many seconds, and return its outcome."""
    host = WorkerHost(skill, message, report)
    context = Context(
        principal=message.principal,
        sender=message.sender,
        skill=message.skill,
        agent=message.agent,
        taints=message.taints,
        trace=message.trace,
        host=host,
    )
    runtime.provide(skill, context)
    try:
        arguments = prepare(skill, (), message.arguments)
        share = runtime.threads.share(message.principal)
        made = await call(skill, arguments, context, share, timeout=seconds)
        return _bounded(skill, Result.of(_with_outputs(made, host)), message.most_bytes)
    except CALL_ERRORS as error:
        # A skill may have caught Parked, and gone on with something else.
        return host.asked or _failure(skill, error)
    except Parked:
        pass
    except BaseExceptionGroup as group:
        # A task group in the skill wraps Parked in a group.
        rest = group.split(Parked)[1]
        if rest is not None:
            raise rest from None
    assert host.asked is not None, "only questions interrupt a skill here"
    return _bounded(skill, host.asked, message.most_bytes)


def _with_outputs(made: SkillResult, host: WorkerHost) -> SkillResult:
    """Add the artifacts that were published; one that the skill also returned appears once."""
    published = host.outputs
    given = [one for one in made.outputs if one not in published]
    if not published:
        return made
    if len(given) == 1 and given[0].name is None:
        given = [replace(given[0], name="output")]  # as the service names it
    return replace(made, outputs=(*published, *given))


def _bounded(skill: Skill, outcome: Result | Asked, most_bytes: int) -> Outcome:
    size = len(encode(outcome))
    if size <= most_bytes:
        return outcome
    return Failure(
        "load",
        f"its result has {size:,} bytes, and at most {most_bytes:,} are sent to the service"
        " (workers.max_result_bytes).",
    )


def _failure(skill: Skill, error: Exception) -> Outcome:
    match error:
        case SkillFailed(__cause__=Denied() as denied):
            return Declined(denied.reason)
        case SkillFailed(__cause__=UsageError() as usage):
            return Failure("load", str(usage))
        case SkillFailed(reason=str() as reason) if reason:
            return Failure("load", reason)
        case SkillFailed(__cause__=MemoryError() as cause):
            text = f"The skill {skill.name} needs more memory than there is."
            return Failure("memory", text, trace=trace_of(cause))
    return Failure.of(error)
