"""One question for several calls of one answer of a model: a yes allows exactly these calls.

The question is the confirmation of a skill that does nothing, `several-calls`, whose parameters are
the calls: the digest covers each of them with its version and all of its parameters (CNF-018). When
the person has approved, each call is executed as any other, without another question, provided that
it is still one of those approved (CNF-040, CNF-041).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from component.agent.protocol import Caller, Waiting
from component.models.messages import ToolCall
from component.policy.flows import Decision
from component.skills import InvalidParam, Skill
from component.tasks.admission import ANSWERS
from component.tasks.gate import Approvers, arguments_of, completed
from component.tasks.questions import action_of
from component.tasks.request import Confirmation, Request
from component.tasks.service import TaskService
from component.tasks.several_calls import SEVERAL_CALLS, ConfirmedCall, joint, listed, name_of, same
from xep.fluux_agent.confirm import Action, parameters_of
from xep.fluux_agent.execute import Accepted, Result
from xep.stanza_error import StanzaError


class CallToConfirm(ConfirmedCall, frozen=True):
    """A call of a model that its person must confirm."""

    call: ToolCall
    decision: Decision
    confirmation: Confirmation
    request: Request


class JointConfirmations:
    """Asks people about several calls at once.

    Args:
        approvers: determines which calls a person must confirm, and who.
        tasks: the durable work, which has the questions.
    """

    def __init__(self, approvers: Approvers, tasks: TaskService) -> None:
        self._approvers = approvers
        self._tasks = tasks

    async def to_confirm(
        self, caller: Caller, call: ToolCall, skill: Skill, request: Request, decision: Decision
    ) -> CallToConfirm | None:
        """Return a call if the person of the turn, and nobody else, must confirm it.

        None also if nobody can, or the arguments are invalid: the call itself has this result. The
        same if a standing approval can be used: the call itself uses it.

        Raises StorageError.
        """
        context = msgspec.structs.replace(
            request.caller_context,
            asker="misled model" if decision.verdict == "confirm" else "model",
            chosen=decision.chosen,
            reserved=(),
        )
        request = msgspec.structs.replace(request, caller_context=context)
        try:
            found = await self._approvers.find(request, skill)
            if found is None or not found.is_only_of(caller.request.principal.bare):
                return None
            action = await _action_of(request, skill)
        except (StanzaError, InvalidParam):
            return None
        asked = msgspec.structs.replace(request, confirmation=found)
        if await self._tasks.has_standing_approval(asked, skill, action):
            return None
        return CallToConfirm(skill, parameters_of(action), call, decision, found, request)

    async def ask(
        self, caller: Caller, calls: Sequence[CallToConfirm], *, session: str, again: bool
    ) -> Waiting | Result | None:
        """Ask the person about these calls; return the task that waits for the answer.

        A repetition, which the `session` identifies, asks nothing; its Result means that the calls
        are approved. With `again`, only a question that was asked before is looked for. None: the
        calls cannot be asked about together. Raises StorageError.
        """
        chosen = _chosen(calls)
        first = calls[0].request
        request = msgspec.structs.replace(
            first,
            skill=SEVERAL_CALLS.name,
            json=msgspec.Raw(msgspec.json.encode(listed(calls))),
            session=session,
            caller_context=msgspec.structs.replace(
                first.caller_context,
                asker="misled model" if chosen else "model",
                chosen=chosen,
            ),
            confirmation=joint([one.confirmation for one in calls]),
        )
        try:
            if again:
                answer = await self._tasks.repeated(request)
            else:
                running = self._tasks.execute(request, internal=SEVERAL_CALLS)
                answer = running if isinstance(running, ANSWERS) else await running
        except StanzaError:  # too many lines to show, for example; then each is asked about alone
            return None
        return Waiting(answer.task, question=True) if isinstance(answer, Accepted) else answer


async def values_of(request: Request, skill: Skill) -> dict[str, Any]:
    """Return all parameters of a call, with defaults. Raises StanzaError, InvalidParam,
    StorageError.
    """
    return parameters_of(await _action_of(request, skill))


async def _action_of(request: Request, skill: Skill) -> Action:
    arguments = await completed(request, skill, arguments_of(request, skill))
    return action_of(skill, arguments)


async def approves(result: Result, request: Request, skill: Skill) -> bool:
    """Return whether an approval, the result of `SEVERAL_CALLS`, covers exactly this call."""
    approved: Mapping[str, Any] = json.loads(result.outputs[0].text)
    try:
        values = await values_of(request, skill)
    except (StanzaError, InvalidParam):
        return False
    return any(
        label.partition(". ")[2] == name_of(skill) and same(values, each)
        for label, each in approved.items()
    )


def _chosen(calls: Sequence[CallToConfirm]) -> tuple[str, ...]:
    """Return the names of the parameters that the model has chosen, with the numbers of calls."""
    return tuple(
        [
            f"{name} (in {number})"
            for number, one in enumerate(calls, start=1)
            for name in one.decision.chosen
        ]
    )
