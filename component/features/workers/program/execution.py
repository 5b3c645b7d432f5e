"""Runs the skill of one call, and says how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from component.features.workers.messages import Asked, CallMessage, Declined, Outcome, encode
from component.features.workers.program.host import Report, WorkerHost
from component.sandbox.messages import Failure, Result, trace_of
from component.skills.calling import Threads, call
from component.skills.context import Context
from component.skills.errors import (
    CALL_ERRORS,
    Denied,
    SkillFailed,
    UsageError,
)
from component.skills.operations import Parked
from component.skills.outputs import SkillResult
from component.skills.params import prepare
from component.skills.skill import Skill


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
