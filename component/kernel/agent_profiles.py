"""The profile of an agent for a person: its declaration, its files, and the chosen persona."""

import math
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec

from component.agent.protocol import Away, Profile
from component.agent.registry import Agents
from component.agent.requests import TurnRequest
from component.budget.book import smaller
from component.config import Settings
from component.config.agents import AgentEntry
from component.config.llm import Tier
from component.kernel.environment import Environment
from component.kernel.options import agent_titles, limited_in_usd, own_models
from component.memory_directory.layout import SessionKey
from component.models.building import Models
from component.models.offered_tools import RefusedTools
from component.models.protocol import Model
from component.personas.packages import Persona, PersonaText, tier_of
from component.personas.workspace import Character, with_persona
from component.policy.flows import narrowed_capabilities
from component.policy.globs import narrowed
from xep.jid import JID

_CLOSE_S: Final = 60.0
"""Seconds after which models that were replaced are closed, if no call uses them."""


class AgentProfiles:
    """Puts together the profiles of agents, and gives them their models.

    Args:
        environment: the settings, in which `llm` is set; the skills of people, and the memories.
        zone_of: gives the name of the time zone of a person.

    Attributes:
        titles: the names of the agents that people see, by the names of the agents.
        refused_tools: the tools that their models refuse.

    Raises ModelRefusedError: what a model needs is not installed.
    """

    def __init__(
        self,
        environment: Environment,
        agents: Agents,
        zone_of: Callable[[JID], Awaitable[str]],
    ) -> None:
        settings = environment.settings
        self._memories = environment.memories
        self._agents = agents
        self._view = environment.catalog.view
        self._admins = environment.catalog.admins
        self._zone_of = zone_of
        self.titles = agent_titles(settings)
        self.refused_tools = RefusedTools(settings.storage.path)
        self._make = environment.make_model
        self._models = self._make_models(settings)
        self._given_up: list[Models] = []
        """Models that are not used any more, unless by turns that run."""
        self._replaced = anyio.Event()

    def model(self, tier: Tier, of: str = "") -> Model:
        """Return the model of a tier; with `of` that of an agent with a model of its own."""
        return self._models.get(tier, of)

    def model_for(self, profile: Profile) -> Model:
        """Return the model that an agent with this profile uses."""
        return self.model(profile.tier, profile.model_of)

    def replace(self, settings: Settings) -> None:
        """Use the models of these settings from now on; those that are the same stay, and turns
        that run keep theirs. Raises ModelRefusedError, before anything is changed.
        """
        models = self._make_models(settings, self._models)
        self._given_up.append(self._models)
        self._models = models
        self.titles = agent_titles(settings)
        self._replaced.set()

    def _make_models(self, settings: Settings, before: Models | None = None) -> Models:
        assert settings.llm is not None, "there is a model"
        return Models(
            settings.llm,
            own_models(settings),
            in_usd=limited_in_usd(settings),
            refused=self.refused_tools.add,
            make=self._make,
            before=before,
        )

    async def run(self) -> None:
        """Look up sizes and prices of the models before the first request needs them, and close
        those that are replaced, until cancelled.
        """
        while True:
            await self._models.prepare()
            for models in self._given_up:
                await models.close_idle()
            with anyio.move_on_after(_CLOSE_S if self._given_up else math.inf):
                await self._replaced.wait()
            self._replaced = anyio.Event()

    async def aclose(self) -> None:
        """Close the connections to the models."""
        for models in (*self._given_up, self._models):
            await models.aclose()

    async def profile(
        self, key: SessionKey, request: TurnRequest | None = None, *, received: bool = True
    ) -> Profile | Away:
        """Return the profile of an agent for a person, or for a request in a room, or why it does
        not answer. Raises StorageError.

        `received` says that it is for a message, which makes an idle agent active.
        """
        entry = self._agents.entries.get(key.agent)
        note = self._agents.message_received
        away = await note(key.agent) if received else self._agents.away(key.agent)
        if entry is None:
            return Away(away or "There is no such agent.")
        if away is None:
            return await self._profile(key, entry, request)
        known = self._agents.get(key.agent)
        if known is not None and known.state == "paused":
            return Away(away, begun=await self._profile(key, entry, request))
        return Away(away)

    async def described(self, key: SessionKey) -> tuple[Model, tuple[str, ...]]:
        """Return the model of an agent for a person, and the files that shape it. Raises
        StorageError.
        """
        entry = self._agents.entries.get(key.agent)
        persona, character = await self._character(key, entry)
        if entry is None:
            return self.model("standard"), character.sources
        return self.model(*_model_of(entry, persona)), character.sources

    async def _profile(
        self, key: SessionKey, entry: AgentEntry, request: TurnRequest | None
    ) -> Profile:
        room = None if request is None else request.room
        principal = key.who if request is None or room is None else request.principal
        persona, character = await self._character(key, entry, "" if room is None else room.persona)
        return msgspec.structs.replace(
            self.outline(entry, principal, persona),
            **msgspec.structs.asdict(character),
            zone=await self._zone_of(key.who),
            for_admin=key.who in self._admins,
        )

    def outline(self, entry: AgentEntry, principal: JID, persona: Persona | None = None) -> Profile:
        """Return the profile of an agent with a persona, without any texts: what it may use on
        behalf of a principal, and its model. Never waits.
        """
        tier, model_of = _model_of(entry, persona)
        profile = Profile(
            agent=entry.name,
            title=self.titles[entry.name],
            tier=tier,
            model_of=model_of,
            temperature=entry.temperature,
            capabilities=entry.capabilities,
            skills=entry.skills,
            max_iterations=entry.max_iterations,
            spawn=entry.spawn,
        )
        if persona is None:
            return profile
        skills, capabilities = persona.skills, persona.capabilities
        if skills is not None:
            skills = narrowed(skills, entry.skills, self._view(principal).names())
        if capabilities is not None:
            capabilities = narrowed_capabilities(capabilities, entry.capabilities)
        return msgspec.structs.replace(
            profile,
            skills=entry.skills if skills is None else skills,
            capabilities=entry.capabilities if capabilities is None else capabilities,
            read_only=persona.read_only,
            max_tokens=persona.max_tokens_per_message,
            max_iterations=smaller(persona.max_iterations, entry.max_iterations),
        )

    async def drafted(self, key: SessionKey, draft: PersonaText) -> Profile:
        """Return the profile of a sub-agent that has the texts and the rights of its parent with
        a persona that is not a package yet. Raises MemoryStoreError.
        """
        entry = self._agents.entries[key.agent.partition("/")[0]]
        character = await self._memories.workspace.read(key, declared=entry)
        persona = Persona(**draft.described, folder=self._memories.layout.approved_personas)
        return msgspec.structs.replace(
            self.outline(entry, key.who, persona),
            **msgspec.structs.asdict(with_persona(character, draft)),
            agent=key.agent,
            above=(entry.name,),
        )

    async def _character(
        self, key: SessionKey, entry: AgentEntry | None, named: str = ""
    ) -> tuple[Persona | None, Character]:
        persona = await self._memories.personas.active(key, named)
        folder = None if persona is None else persona.folder
        return persona, await self._memories.workspace.read(key, persona=folder, declared=entry)


def _model_of(entry: AgentEntry, persona: Persona | None) -> tuple[Tier, str]:
    """Return the tier of an agent with this persona, and whose own model it has; "" for none."""
    own = entry.llm is not None
    tier = tier_of(persona, entry.tier, own_model=own)
    return tier or entry.tier, entry.name if own and not tier else ""


def cost_of(model: Model, tier: Tier) -> str:
    """Return what a model costs, for people."""
    price_in, price_out = (
        price * 1_000_000 for price in (model.usd_per_token_in, model.usd_per_token_out)
    )
    price = f"{price_in:g} USD per million tokens read and {price_out:g} USD written"
    return f"{model.name} (tier {tier}), {price if price_in or price_out else 'without a price'}"
