"""The work of a sub-agent as a task: it runs one turn, and ends with what the sub-agent answers.

Imported only where there is a model.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, TypeAlias

import anyio
import msgspec
import structlog

from component.agent.engine import Engine
from component.agent.history import in_order
from component.agent.protocol import Away, Caller, Profile
from component.agent.requests import MessageStarter, TurnRequest, WorkStarter
from component.agent.run import TurnInput
from component.agent.sub_agents import AgentWork, name_of, profile_of, turn_of
from component.agent.task_lines import TaskLines
from component.agent.tool_calls import Parked
from component.budget.protocol import BudgetExceededError
from component.config.llm import Tier
from component.link.messages.inbound import Conversation
from component.memory_directory.layout import SessionKey
from component.policy.flows import TRUSTED
from component.policy.taint import Taint, worst
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import RemoteError, SkillError
from component.skills.outputs import Output, SkillResult
from component.skills.skill import Skill
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.tasks import rows
from component.tasks.outputs import part_of
from component.tasks.protocol import AGENT_WORK
from component.tasks.request import Request
from xep.fluux_agent import errors
from xep.jid import JID

_log = structlog.get_logger("component.agent")

_TIMEOUT_S: Final = 6 * 3600.0
_ATTEMPTS: Final = 5
"""Runs of which each but the last is ended by a fault, such as an outage of the database."""

Profiles: TypeAlias = Callable[[SessionKey, TurnRequest], Awaitable[Profile | Away]]


def agent_work_skill(
    engine: Engine,
    profiles: Profiles,
    request_of: Callable[[str], Awaitable[Request]],
    address_of: Callable[[str], JID],
    offered: Callable[[Caller], object],
) -> Skill:
    """Return the skill that does the work of a sub-agent.

    Args:
        engine: runs its turn.
        profiles: returns the profile of the agent that people know.
        request_of: returns the request of a task.
        address_of: returns the address of an agent that people know.
        offered: returns the tools for an agent.
    """

    @own_skill(
        name=AGENT_WORK,
        title="Sub-agent",
        description="Run one turn of a sub-agent, which works for an agent of a person.",
        hidden=True,
        durable=True,
        destructive=False,
        timeout=_TIMEOUT_S,
        attempts=_ATTEMPTS,
        queue=AGENT_WORK,
    )
    async def agent_work(context: Context, work: AgentWork) -> SkillResult:
        asked = await request_of(context.task)
        request = _request(context, work, asked, address_of)
        parent = await _parent(context, request, profiles)
        # Its parent, which may have run elsewhere, has read the descriptions of these.
        offered(Caller(request=request, profile=parent, turn=work.turn))
        ask = _turn(context, work, asked, request, parent)
        try:
            outcome = await engine.turn(ask)
        except BudgetExceededError:
            raise RemoteError(errors.budget_exhausted()) from None
        except anyio.get_cancelled_exc_class():
            if not context.resumes:
                await _stop(engine, ask)
            raise
        if isinstance(outcome, Parked):
            await context.wait_for_first(outcome.tasks)
        text = Output(outcome.text or "It has nothing to say.")
        files = [part for file in outcome.files if (part := part_of(file)) is not None]
        taints = in_order(frozenset(outcome.taints) - TRUSTED)
        return SkillResult((text, *files), outcome.excused, taints=taints)

    return agent_work


async def _stop(engine: Engine, ask: TurnInput) -> None:
    """Give up the calls of a sub-agent that is cancelled; those that are tasks end with its own."""
    with anyio.CancelScope(shield=True):
        try:
            await engine.stop(ask)
        except StorageError as error:
            log_failure(_log, "a call of a cancelled sub-agent may go on", error, turn=ask.id)


def _request(
    context: Context, work: AgentWork, asked: Request, address_of: Callable[[str], JID]
) -> TurnRequest:
    """Return the request of a sub-agent. Raises SkillError: there are none for this work."""
    if context.delegation is not None:
        raise SkillError("Work that is done for another agent has no sub-agents.")
    caller = asked.caller_context
    taints = in_order({*work.taints, *context.taints})
    budget = caller.budget
    return TurnRequest(
        id=work.turn,
        starter=WorkStarter("task", work.role)
        if caller.unrequested
        else MessageStarter(asked.requester),
        conversation=Conversation(
            address_of(work.agent.partition("/")[0]),
            asked.principal if caller.room is None else caller.room,
            in_room=caller.room is not None,
            thread=asked.thread,
        ),
        principal=asked.principal,
        at=asked.target,
        text=work.text,
        taint=worst(taints) or "person",
        taints=taints,
        limits=context.limits,
        language=asked.lang,
        payer=None if budget is None else budget.payer,
        room=work.room,
    )


async def _parent(context: Context, request: TurnRequest, profiles: Profiles) -> Profile:
    """Return the profile of the agent that people know, with the name and the rights of the parent
    of a sub-agent. Raises SkillError: the agent does not work any more.
    """
    found = await profiles(request.session, request)
    if isinstance(found, Away):
        if found.begun is None:
            raise SkillError(found.sentence)
        found = found.begun
    return msgspec.structs.replace(found.limited(context.limits), agent=context.agent)


def _turn(
    context: Context, work: AgentWork, asked: Request, request: TurnRequest, parent: Profile
) -> TurnInput:
    budget = asked.caller_context.budget
    return TurnInput(
        id=work.turn,
        key=SessionKey(work.agent, request.owner),
        profile=profile_of(work, parent),
        messages=(request,),
        starter=request.starter,
        resumed=True,
        may_archive=False,
        budget=budget,
        operator=asked.caller_context.operator,
        said=work.said,
        written=work.written,
        task=context.task,
        may_get_more=budget is not None and budget.limit_usd is not None,
        lines=TaskLines(context),
    )


def working_for(database: Database) -> set[SessionKey]:
    """Return the agents that people know, with those for whom one of their sub-agents works now."""
    found = rows.select(database, f"WHERE skill = ? AND {rows.OPEN}", (AGENT_WORK,))
    keys: set[SessionKey] = set()
    for request in map(rows.request_of, found):
        context = request.caller_context
        who = request.principal if context.room is None else context.room
        keys.add(SessionKey(context.agent.partition("/")[0], who))
    return keys


def subagent_params(
    context: Context,
    key: str,
    text: str,
    *,
    role: str = "helper",
    instructions: str = "",
    skills: Collection[str] = (),
    capabilities: Collection[str] = (),
    tier: Tier | None = None,
    taints: Collection[Taint] = (),
) -> dict[str, Any]:
    """Return the parameters with which a skill of the service itself starts a sub-agent:
    `await context.start(AGENT_WORK, subagent_params(context, …))`.

    It has the rights of the task of `context` at most, and its budget. The outcome has the taints
    of all that it has read.

    Args:
        context: the context of the skill that starts it.
        key: tells the sub-agents of a task apart: the same key is the same sub-agent.
        text: what it is to do.
        taints: those of `text`, besides those of the task.

    The others are those of `AgentWork`.
    """
    turn = turn_of(context.task, key)
    work = AgentWork(
        turn=turn,
        agent=name_of(context.agent, role, turn),
        text=text,
        role=role,
        instructions=instructions,
        skills=tuple(skills),
        capabilities=tuple(capabilities),
        tier=tier,
        taints=in_order({*taints, *context.taints}),
    )
    return {"work": work}
