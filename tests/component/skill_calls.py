"""Calls a skill as a caller does: its parameters are validated, and its time is limited."""

from typing import Any

import msgspec

from component.policy.taint import Taint
from component.skills import Context, Output, Skill, SkillResult, call, prepare
from component.skills.calling import Threads


async def called(
    skill: Skill,
    params: dict[str, Any] | None = None,
    *,
    principal: str = "juliet@example.com",
    taints: tuple[Taint, ...] = (),
    agent: str = "assistant",
) -> SkillResult:
    """Call the skill with JSON parameters."""
    context = Context(
        principal=principal,
        sender=f"{principal}/x",
        skill=skill.name,
        agent=agent,
        taints=taints,
    )
    body = msgspec.Raw(msgspec.json.encode(params or {}))
    arguments = prepare(skill, (), body)
    return await call(skill, arguments, context, Threads(4, 4).share("ann"))


def text_of(result: SkillResult) -> str:
    """Return the text of the first part."""
    first = result.outputs[0]
    assert isinstance(first, Output)
    return first.text


def data_of(result: SkillResult) -> Any:
    """Return the JSON of the last part."""
    last = result.outputs[-1]
    assert isinstance(last, Output)
    return msgspec.json.decode(last.text)
