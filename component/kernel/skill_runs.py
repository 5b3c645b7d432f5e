"""Runs a skill for the caller of a command."""

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Final, TypeAlias

import msgspec

from component import system
from component.commands import Asking, CommandError, CommandResult
from component.skills.skill import Skill
from component.task_messages.sentences import of_result
from component.tasks.admission import Answer
from component.tasks.request import NO_JSON, Request
from xep.fluux_agent.execute import Accepted, Param

Execute: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]
"""Runs a skill; see `component.tasks.admission.Admission.execute`."""

_ID_BYTES: Final = 16


def request_of(
    asking: Asking,
    skill: Skill,
    command: str,
    params: Sequence[Param] = (),
    json: msgspec.Raw = NO_JSON,
) -> Request:
    """Return the request of a caller that a command makes; the same for a repetition of the
    command. Raises CommandError for the operator.
    """
    if asking.principal is None or asking.at is None:
        raise CommandError("This works only over XMPP.")
    return Request(
        skill=skill.name,
        principal=asking.principal,
        requester=asking.client or asking.principal,
        target=asking.at,
        params=tuple(params),
        json=json,
        session=f"{command} {asking.session or system.token_hex(_ID_BYTES)}",
        origin="message",
        lang=asking.lang,
    )


async def run_skill(execute: Execute, request: Request, skill: Skill) -> CommandResult:
    """Return what a skill has returned, or that it continues as a task. Raises StanzaError."""
    answer = execute(request)
    if isawaitable(answer):
        answer = await answer
    if not isinstance(answer, Accepted):
        said = of_result(skill.title, answer)
        only_read = skill.annotations.read_only
        return CommandResult(said.text, only_read=only_read, files=said.files)
    if answer.state == "input-required":
        text = f"{skill.title} waits for an answer. I'll send you the result."
    else:
        text = (
            f"{skill.title} takes a while. I'll send you the result; /tasks shows how it is going."
        )
    return CommandResult(text, task=answer.task)
