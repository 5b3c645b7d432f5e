"""Drafts of agents: what may be given to one, its trial, and the report for its author."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from component import DEFAULT_AGENT, system
from component.agent.history import in_order
from component.features.proposals.agent_draft import (
    AgentDraft,
    CheckedAgent,
    Rights,
    agent_prompt,
    check_agent,
)
from component.features.proposals.drafts import DraftError, Drafts, Tried
from component.kernel.agent_profiles import cost_of
from component.kernel.agent_trials import Trial, TrialAnswer
from component.kernel.agents import AgentSubsystem
from component.kernel.environment import Environment
from component.policy.flows import AgentLimits
from component.policy.taint import Taint
from component.skill_directories.proposals import AnsweredPrompt, Proposal, persona_digest
from component.skills import Skill, View
from component.skills.context import Context
from component.skills.errors import SkillError, printable
from component.store.errors import StorageError
from xep.jid import JID

_MOST_LISTED: Final = 100
_LONGEST_ANSWER: Final = 600
_NOT_NOW: Final = "Agents cannot be tried at the moment."


class AgentDesigner:
    """Makes the drafts of agents that people and models ask for."""

    def __init__(self, environment: Environment, agents: AgentSubsystem, most_bytes: int) -> None:
        self._catalog = environment.catalog
        self._personas = environment.memories.personas
        self._agents = agents
        self._most_bytes = most_bytes

    async def drafts(self, context: Context, description: str) -> AgentDrafts:
        """Return the drafts of one who asks, which get a part of that one's rights."""
        agent = context.agent.partition("/")[0] or DEFAULT_AGENT
        entry = self._agents.agents.entries[agent]
        view = self._catalog.view(JID.parse(context.principal))
        own = AgentLimits(entry.skills, entry.capabilities)
        rights = Rights(view=view.get, limits=(own, context.limits), tier=entry.tier)
        names = await _ordered(view, description)
        usable = (skill for name in names if (skill := rights.skill(name)) is not None)
        listed = [skill for skill, _ in zip(usable, range(_MOST_LISTED), strict=False)]
        return AgentDrafts(context, description, rights, listed, self)

    def check(self, draft: AgentDraft, rights: Rights) -> CheckedAgent:
        """Check a draft. Blocks. Raises DraftError."""
        checked = check_agent(draft, rights, self._most_bytes)
        if self._personas.is_for_all(checked.persona.id, approved=False):
            raise DraftError(f"A persona called {checked.title} exists: choose another name.")
        return checked

    async def answer(self, checked: CheckedAgent, trial: Trial) -> TrialAnswer:
        """Return the answer of a draft to a message. Raises StorageError."""
        return await self._agents.trials.answer(checked.persona, trial)

    def cost(self, checked: CheckedAgent, rights: Rights) -> str:
        """Return what the model of a draft costs, for people."""
        tier = checked.persona.tier or rights.tier
        return cost_of(self._agents.profiles.model(tier), tier)


async def _ordered(view: View, description: str) -> Sequence[str]:
    """Return the names of all skills; if they are many, those with words of a description first."""
    names = view.names()
    if len(names) <= _MOST_LISTED:
        return names
    words = frozenset(re.findall(r"\w{3,}", description.casefold()))
    ranked, _ = await system.in_thread(view.ranked, words, frozenset(names))
    return (*ranked, *sorted(frozenset(names).difference(ranked)))


class AgentDrafts(Drafts[AgentDraft, CheckedAgent]):
    """Drafts of an agent, for one call of the skill.

    Attributes:
        taints: those of what the caller and the models have read.
    """

    schema = AgentDraft

    def __init__(
        self,
        context: Context,
        description: str,
        rights: Rights,
        listed: Sequence[Skill],
        designer: AgentDesigner,
    ) -> None:
        self.taints: set[Taint] = set(context.taints)
        self._context = context
        self._description = description
        self._rights = rights
        self._listed = listed
        self._designer = designer

    def prompt(self, last: AgentDraft | None, problem: str) -> str:
        """See `Drafts`."""
        return agent_prompt(self._description, self._listed, last, problem)

    def prepare(self, draft: AgentDraft) -> CheckedAgent:
        """See `Drafts`."""
        return self._designer.check(draft, self._rights)

    async def try_out(self, prepared: CheckedAgent) -> Tried:
        """See `Drafts`."""
        answers = [await self._answer(prepared, prompt) for prompt in prepared.tests]
        return Tried(
            digest=persona_digest(prepared.text),
            answers=tuple(answers),
            cost=self._designer.cost(prepared, self._rights),
            taints=in_order(self.taints),
        )

    async def _answer(self, prepared: CheckedAgent, prompt: str) -> AnsweredPrompt:
        context = self._context

        async def answer(key: str) -> TrialAnswer:
            trial = Trial(
                turn=hashlib.sha256(key.encode()).hexdigest()[:32],
                agent=context.agent.partition("/")[0] or DEFAULT_AGENT,
                principal=JID.parse(context.principal),
                text=prompt,
                taints=context.taints,
                limits=context.limits,
                paid_by=context.paid_by,
            )
            try:
                return await self._designer.answer(prepared, trial)
            except StorageError as error:
                raise SkillError(_NOT_NOW) from error

        said = await context.step(
            "try", answer, TrialAnswer, repeatable=True, input=[prepared.text, prompt]
        )
        if said.failed:
            raise SkillError(f"Nothing was proposed: the agent could not be tried. {said.text}")
        self.taints.update(said.taints)
        return AnsweredPrompt(prompt, printable(said.text, _LONGEST_ANSWER), said.used)

    def said(self, prepared: CheckedAgent, proposal: Proposal) -> str:
        """See `Drafts`."""
        persona = prepared.persona
        warning = ""
        if sources := ", ".join(proposal.untrusted_sources):
            warning = f"\nWarning: texts of strangers were read for this ({sources})."
        return (
            f"{persona.name} is proposed: {persona.description}\n"
            f"It may {'; '.join(prepared.uses) or 'use no skills'}.\n"
            f"It costs: {proposal.cost}.\n"
            "It was tried, and could only read:\n"
            + "\n".join(each.sentence() for each in proposal.answers)
            + f"{warning}\nIt can be used with /persona {persona.id} when an admin has approved it"
            f" (xmpp-agent skills approve {prepared.name})."
        )
