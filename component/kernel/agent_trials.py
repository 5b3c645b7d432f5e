"""Tries a persona that nobody uses yet: one message to it, and its answer.

It answers as a sub-agent of the agent, with a conversation and a memory of its own that are deleted
afterwards. Whatever rights it would have, it only reads, and nobody is asked for a confirmation.
"""

from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from component.agent.engine import Engine
from component.agent.history import in_order
from component.agent.requests import TurnRequest, WorkStarter
from component.agent.run import TurnInput
from component.agent.tool_calls import Parked
from component.budget.protocol import TurnBudget
from component.conversations.lines import Called
from component.kernel.agent_profiles import AgentProfiles
from component.kernel.memory import Memories
from component.link.messages.inbound import Conversation
from component.memory_directory.layout import SessionKey
from component.personas.packages import PersonaText
from component.policy.flows import AgentLimits
from component.policy.taint import Taint, worst
from xep.jid import JID

_LONGEST_S: Final = 120.0
_LATE: Final = "It did not answer within two minutes."
_WAITS: Final = "It waits for a task, and a trial does not."


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A message to the persona, and who wants to know the answer.

    Attributes:
        turn: the id of the turn; a trial with the same id continues after an interruption.
        agent: the name of the agent that would have the persona.
        taints, limits: of the model that has asked for the trial, if one did.
        paid_by: the turn or task whose budget pays.
    """

    turn: str
    agent: str
    principal: JID
    text: str
    taints: tuple[Taint, ...] = ()
    limits: AgentLimits = AgentLimits()
    paid_by: str = ""


class TrialAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a message.

    Attributes:
        used: the names of the tools that were called, in order.
        failed: whether the text is a sentence of the service, because the model gave no answer.
    """

    text: str
    used: tuple[str, ...] = ()
    failed: bool = False
    taints: tuple[Taint, ...] = ()


class AgentTrials:
    """Tries personas."""

    def __init__(
        self,
        engine: Engine,
        profiles: AgentProfiles,
        memories: Memories,
        address_of: Callable[[str], JID],
    ) -> None:
        self._engine = engine
        self._profiles = profiles
        self._memories = memories
        self._address_of = address_of

    async def answer(self, written: PersonaText, trial: Trial) -> TrialAnswer:
        """Return the answer of a persona. Raises StorageError."""
        # Named as sub-agents are, so that what a killed process leaves is deleted like theirs.
        key = SessionKey(f"{trial.agent}/trial-{trial.turn[:8]}", trial.principal)
        profile = await self._profiles.drafted(key, written)
        rights = msgspec.structs.replace(trial.limits, read_only=True, unconfirmed=True)
        request = TurnRequest(
            id=trial.turn,
            starter=WorkStarter("proposal", written.id),
            conversation=Conversation(self._address_of(trial.agent), trial.principal),
            principal=trial.principal,
            text=trial.text,
            taint=worst(trial.taints) or "person",
            taints=in_order(trial.taints),
            limits=rights,
        )
        ask = TurnInput(
            id=trial.turn,
            key=key,
            profile=msgspec.structs.replace(profile.limited(rights), spawn=False),
            messages=(request,),
            starter=request.starter,
            resumed=True,
            may_archive=False,
            budget=TurnBudget(trial.paid_by) if trial.paid_by else None,
        )
        try:
            return await self._outcome(ask)
        finally:
            folder = self._memories.layout.agent_directory(key.agent)
            with anyio.CancelScope(shield=True):
                await self._memories.remove_sub_agent(folder)

    async def _outcome(self, ask: TurnInput) -> TrialAnswer:
        outcome = None
        with anyio.move_on_after(_LONGEST_S):
            outcome = await self._engine.turn(ask)
        lines = await self._engine.sessions.turn(ask.key, ask.id)
        used = tuple([line.name for line in lines if isinstance(line, Called)])
        if outcome is None or isinstance(outcome, Parked):
            await self._engine.stop(ask)
            return TrialAnswer(text=_LATE if outcome is None else _WAITS, used=used)
        return TrialAnswer(
            text=outcome.text, used=used, failed=outcome.excused, taints=outcome.taints
        )
