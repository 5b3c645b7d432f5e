"""A goal in words as a task: it runs one turn of the agent and ends with what the agent said."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from component.budget.protocol import Payer
from component.kernel.triggers import Trigger, Work, taints_of, title_of
from component.link.messages.inbound import Conversation
from component.policy.flows import TRUSTED, AgentLimits
from component.policy.taint import Taint, worst
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import SkillError
from component.skills.outputs import Output, SkillResult
from component.skills.skill import Skill
from component.store.waiters import is_turn_pending
from component.tasks.outputs import part_of
from xep.jid import JID

if TYPE_CHECKING:
    from component.agent.conversations import Conversations
    from component.agent.requests import Outcome

GOAL: Final = "agent.goal"
"""The name of the skill. It is hidden: only triggers start it."""
_TIMEOUT_S: Final = 6 * 3600.0
_WAITS_S: Final = (5.0, 10.0, 30.0)
"""Seconds until the next attempt while a person has too many requests waiting; the last repeats."""
_LONGEST_DATA: Final = 20_000
_FAILED: Final = "The agent could not do this; the log of the service says why."


class Goal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parameters of the skill: the turn, and what started it."""

    turn: str
    text: str
    source: str
    name: str
    taint: Taint | None = None
    taints: tuple[Taint, ...] = ()
    limits: AgentLimits = AgentLimits()
    payer: Payer | None = None
    budget_usd: float | None = None


def turn_of(trigger: Trigger) -> str:
    """Return the id of the turn that a trigger starts: the same for the same trigger."""
    parts = msgspec.json.encode((trigger.source, trigger.name, trigger.key))
    return hashlib.sha256(parts).hexdigest()[:32]


def goal_of(trigger: Trigger, work: Work) -> Goal:
    """Return the parameters of the task for work that has a goal.

    A goal that a model has written has the label of what that model had read, although the person
    has confirmed its text.
    """
    return Goal(
        turn=turn_of(trigger),
        text=_prompt(trigger, work.goal or ""),
        source=trigger.source,
        name=trigger.name,
        taint=worst((trigger.taint, *work.taints)),
        taints=taints_of(trigger, work),
        limits=work.limits,
        payer=work.payer,
        budget_usd=None if work.budget_usd is None else float(work.budget_usd),
    )


def goal_skill(conversations: "Conversations", address_of: Callable[[str], JID]) -> Skill:
    """Return the skill that runs a goal in the conversation of an agent (by its name) with the
    principal.
    """
    # Imported only where there is a model: a service without one starts faster.
    from component.agent.conversations import TooManyWaitingError  # noqa: PLC0415
    from component.agent.requests import TurnRequest, WorkStarter  # noqa: PLC0415

    @own_skill(
        name=GOAL,
        title="Goal",
        description="Run one turn of an agent in a person's conversation.",
        hidden=True,
        durable=True,
        destructive=False,
        timeout=_TIMEOUT_S,
    )
    async def goal(context: Context, goal: Goal) -> SkillResult:
        person = JID.parse(context.principal)
        request = TurnRequest(
            id=goal.turn,
            starter=WorkStarter(goal.source, goal.name),
            conversation=Conversation(address_of(context.agent), person),
            principal=person,
            at=JID.parse(context.address),
            text=goal.text,
            taint=goal.taint,
            taints=goal.taints,
            limits=goal.limits,
            payer=goal.payer,
            budget_usd=goal.budget_usd,
        )

        attempts = 0
        while True:
            try:
                outcome = await conversations.perform(request)
            except TooManyWaitingError:
                await context.sleep(_WAITS_S[min(attempts, len(_WAITS_S) - 1)], key=attempts)
                attempts += 1
            else:
                break
        if outcome is None:
            await context.wait_for_event(goal.turn, partial(is_turn_pending, turn=goal.turn))
        return _result_of(outcome)

    return goal


def _result_of(outcome: "Outcome") -> SkillResult:
    """Return the answer of the agent. Raises SkillError with the reason if it gave none."""
    if outcome.kind in ("answered", "silent"):
        files = [part for file in outcome.files if (part := part_of(file)) is not None]
        taints = tuple([one for one in outcome.taints if one not in TRUSTED])
        return SkillResult((Output(outcome.text), *files), taints=taints)
    if outcome.kind == "stopped":
        raise SkillError("It was stopped.")
    raise SkillError(_FAILED if outcome.kind == "failed" else outcome.text)


def _prompt(trigger: Trigger, goal: str) -> str:
    """Return the text of the turn: that no person is writing now, the goal, and the event."""
    note = (
        f"[This is not a message of the person: it was started by the {trigger.source}"
        f" {title_of(trigger)!r}. Do what it says below now, without asking whether to do it. The"
        " person gets your answer as a notification; answer [[silent]] if there is nothing to"
        " tell.]"
    )
    lines = [note, goal.strip()]
    data = bytes(trigger.data)
    if data not in (b"null", b"{}"):
        shown = data.decode("utf-8", "replace")
        if len(shown) > _LONGEST_DATA:
            shown = shown[:_LONGEST_DATA] + "…"
        lines.append(f"What happened, as JSON:\n{shown}")
    return "\n".join(lines)
