"""What the agents and personas are that a person can use: what each can do, costs and may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from component.agent.protocol import Profile
from component.agent.registry import State
from component.budget.protocol import BudgetLimits
from component.config.agents import AgentEntry, Budget
from component.kernel.agent_profiles import cost_of
from component.kernel.agents import AgentSubsystem
from component.memory_directory.layout import SessionKey
from component.personas.packages import Persona
from component.policy.flows import AgentLimits
from component.policy.globs import pattern
from component.skills import Skill
from component.skills.foreign_texts import trusted_line
from xep.jid import JID

if TYPE_CHECKING:
    from component.kernel.kernel import Kernel  # the command line, which loads this, has none

_SHOWN: Final = 8
"""Skills and capabilities in the short form; the others are counted."""
_LONGEST_LINE: Final = 150
_HOW_TO_CHOOSE: Final = (
    "/agents and a name shows everything about one; /persona and a name chooses."
)
_NO_LIMITS: Final = AgentLimits()


class UsableSkill(msgspec.Struct, frozen=True):
    """A skill that an agent can use for a person. `asks` says that it asks the person first."""

    name: str
    about: str = ""
    asks: bool = False


class ListedAgent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent or a persona of an agent, as it is for one person.

    Attributes:
        name: the name of the agent, or the id of the persona.
        address: where the agent is; empty for a persona.
        state: of the agent, for admins, and for others if it is paused; empty for a persona.
        chosen: whether the person has chosen the persona.
        own: whether the person has created the persona for herself.
        cost: the model and its price, for people.
        limits: the budgets that apply, for people.
        others: the number of skills of agents elsewhere, which `skills` does not have.
        capabilities: those that its skills need.
    """

    kind: Literal["agent", "persona"]
    name: str
    title: str
    description: str = ""
    address: str = ""
    state: State | Literal[""] = ""
    chosen: bool = False
    own: bool = False
    cost: str = ""
    limits: str = ""
    skills: tuple[UsableSkill, ...] = ()
    others: int = 0
    capabilities: tuple[str, ...] = ()
    read_only: bool = False


class AgentListing:
    """Lists the agents that a person reaches, and the personas that one of them has for her."""

    def __init__(self, kernel: Kernel, agents: AgentSubsystem) -> None:
        self._catalog = kernel.environment.catalog
        self._personas = kernel.environment.memories.personas
        self._addresses = kernel.stream.addresses
        self._agents = agents

    async def rows(
        self, agent: str, principal: JID, owner: JID, limits: AgentLimits = _NO_LIMITS
    ) -> Sequence[ListedAgent]:
        """Return the agents, then the personas of `agent`. Raises StorageError.

        `owner` is the person, or a room, whose personas these are. `limits` narrow what each can
        do, in a room.
        """
        profiles, entries = self._agents.profiles, self._agents.agents.entries
        found = []
        for entry in entries.values():
            state = self._shown_state(entry.name, is_admin=principal in self._catalog.admins)
            if state is not None and self._is_reached(entry.name):
                outline = profiles.outline(entry, principal).limited(limits)
                found.append(self._row(entry, principal, outline, state))
        key = SessionKey(agent, owner)
        active = await self._personas.active(key)
        for persona in await self._personas.list(key):
            outline = profiles.outline(entries[agent], principal, persona).limited(limits)
            row = self._row(entries[agent], principal, outline)
            found.append(_of_persona(row, persona, active))
        return found

    def _is_reached(self, name: str) -> bool:
        return self._addresses.address_of(name).local in self._catalog.profiles

    def _shown_state(self, name: str, *, is_admin: bool) -> State | Literal[""] | None:
        """Return the state of an agent that somebody sees; None if that person has no use for the
        agent any more.
        """
        known = self._agents.agents.get(name)
        state = "" if known is None else known.state
        if is_admin or state == "paused":
            return state
        return None if state == "killed" else ""

    def _row(
        self,
        entry: AgentEntry,
        principal: JID,
        profile: Profile,
        state: State | Literal[""] = "",
    ) -> ListedAgent:
        skills, others = self._usable(principal, profile.limits)
        return ListedAgent(
            kind="agent",
            name=entry.name,
            title=profile.title,
            description=entry.description,
            address=str(self._addresses.address_of(entry.name)),
            state=state,
            cost=cost_of(self._agents.profiles.model_for(profile), profile.tier),
            limits=_limits_text(self._agents.budgets.limits, entry.name),
            skills=tuple(map(self._described, skills)),
            others=others,
            capabilities=tuple(sorted({each for skill in skills for each in skill.capabilities})),
            read_only=profile.read_only,
        )

    def _usable(self, principal: JID, limits: AgentLimits) -> tuple[Sequence[Skill], int]:
        """Return the skills of this service that somebody with these limits can use, and how many
        there are of agents elsewhere, which are not made for this.
        """
        view = self._catalog.view(principal)
        mine = [
            skill
            for skill in view.made()
            if limits.refusal(skill.name, skill.capabilities, read_only=skill.annotations.read_only)
            is None
        ]
        named = pattern(limits.skills).fullmatch
        made = frozenset(skill.name for skill in view.made())
        others = sum(1 for name in view.names() if name not in made and named(name))
        return mine, others

    def _described(self, skill: Skill) -> UsableSkill:
        about = trusted_line(skill, _LONGEST_LINE)
        always = self._catalog.asking(skill.name).when == "always"
        return UsableSkill(skill.name, about, skill.annotations.destructive or always)


def _of_persona(row: ListedAgent, persona: Persona, active: Persona | None) -> ListedAgent:
    is_active = active is not None and (active.id, active.own) == (persona.id, persona.own)
    return msgspec.structs.replace(
        row,
        kind="persona",
        name=persona.id,
        title=f"{persona.icon} {persona.name}".strip(),
        description=persona.description,
        address="",
        chosen=is_active,
        own=persona.own,
    )


def _limits_text(limits: BudgetLimits, agent: str) -> str:
    named = (
        (limits.task, "for one answer"),
        (limits.principal, "a day for you"),
        (limits.agents.get(agent), "a day for this agent"),
        (limits.day, "a day for everybody together"),
    )
    found = [
        f"{amount} {what}"
        for budget, what in named
        if budget is not None
        for amount in _amounts(budget)
    ]
    return f"at most {', '.join(found)}" if found else ""


def _amounts(budget: Budget) -> Iterator[str]:
    if budget.tokens is not None:
        yield f"{budget.tokens:,} tokens"
    if budget.usd is not None:
        yield f"{budget.usd:g} USD"


def listing_text(rows: Sequence[ListedAgent]) -> str:
    """Return all of them for people, each in short."""
    return "\n".join((*map(_short, rows), _HOW_TO_CHOOSE))


def _short(row: ListedAgent) -> str:
    can = _shown([skill.name for skill in row.skills], row.others)
    lines = [f"- {_headline(row)}", f"  can: {can or 'talk only'}", f"  costs: {_costs(row)}"]
    may = [_shown(row.capabilities)] if row.capabilities else []
    may += ["only reads"] if row.read_only else []
    asks = [skill.name for skill in row.skills if skill.asks]
    may += [f"asks you before {_shown(asks)}"] if asks else []
    return "\n".join((*lines, f"  may: {'; '.join(may) or 'nothing outside itself'}"))


def whole_text(row: ListedAgent) -> str:
    """Return everything about one of them for people."""
    lines = [_headline(row), f"Costs: {_costs(row)}"]
    if row.capabilities:
        lines.append(f"Capabilities of its skills: {', '.join(row.capabilities)}")
    lines += ["It uses only skills that only read."] if row.read_only else []
    lines.append("Its skills:" if row.skills else "It has no skills of its own.")
    for skill in row.skills:
        about = f": {skill.about}" if skill.about else ""
        lines.append(f"- {skill.name}{about}{' (asks you first)' if skill.asks else ''}")
    lines += [f"and {row.others:,} skills of other agents"] if row.others else []
    return "\n".join(lines)


def _headline(row: ListedAgent) -> str:
    marks = [row.address or f"/persona {row.name}"]
    marks += [row.state] if row.state else []
    marks += ["yours"] if row.own else []
    marks += ["chosen now"] if row.chosen else []
    about = f": {row.description}" if row.description else ""
    return f"{row.title} ({', '.join(marks)}){about}"


def _costs(row: ListedAgent) -> str:
    return "; ".join(filter(None, (row.cost, row.limits)))


def _shown(names: Sequence[str], others: int = 0) -> str:
    shown, more = names[:_SHOWN], len(names[_SHOWN:])
    parts = [", ".join(shown)] if shown else []
    parts += [f"{more} more"] if more else []
    parts += [f"{others:,} of other agents"] if others else []
    return " and ".join(parts)
