"""The profile of an agent for the loop: its character and its limits."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from component.memory.lines import SessionKey
from component.policy.flows import AgentLimits
from component.policy.globs import common
from component.settings.llm import Tier


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as it is for one person, during a turn.

    `agent` is its localpart, or `parent/id` of a sub-agent, `above` the ancestors of a sub-agent,
    the nearest first; `title` is the name that it gives itself. `identity`, `personality` and
    `instructions` are texts for the model, from the declaration, the workspace or a persona;
    empty ones have a default. `context` is its knowledge of its field, `user` and `memory` are its
    notes about the person, in files; `zone` is the name of the person's time zone.
    `max_iterations` replaces the value of the settings,
    `max_tokens` lowers their maximum for an answer. `model_of` is the agent whose own model it
    uses instead of that of a tier. `spawn` says whether it may have sub-agents.
    """

    agent: str
    title: str = ""
    identity: str = ""
    personality: str = ""
    instructions: str = ""
    context: str = ""
    user: str = ""
    memory: str = ""
    zone: str = "UTC"
    tier: Tier = "standard"
    model_of: str = ""
    temperature: float | None = None
    capabilities: tuple[str, ...] = ("*",)
    skills: tuple[str, ...] = ("*",)
    max_iterations: int | None = None
    max_tokens: int | None = None
    spawn: bool = True
    above: tuple[str, ...] = ()

    def limited(self, limits: AgentLimits) -> "Profile":
        """Return the profile with at most the rights of another agent, which has asked for its
        work.
        """
        if limits == AgentLimits():
            return self
        return msgspec.structs.replace(
            self,
            capabilities=common(self.capabilities, limits.capabilities),
            skills=common(self.skills, limits.skills),
        )


class Away(msgspec.Struct, frozen=True):
    """The agent does not answer now: it is paused, killed or unknown. `sentence` says so.

    `begun` is its profile for turns that have started before, if it may finish them.
    """

    sentence: str
    begun: Profile | None = None


Profiles: TypeAlias = Callable[[SessionKey], Awaitable[Profile | Away]]
"""Returns the profile of an agent for a person. Raises StorageError."""
