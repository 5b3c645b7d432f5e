"""What the loop knows of an agent: its character, and within what it works."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from component.memory.lines import SessionKey
from component.settings.llm import Tier


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as it is for one person, for the time of a turn.

    `agent` is its localpart, or `parent/id` of a sub-agent, `above` the agents above that, the
    nearest first; `title` is the name that it gives itself. `identity`, `personality` and
    `instructions` are texts for the model, from the declaration, the workspace or a persona;
    empty ones have a default. `context` is what it knows of its field, `user` and `memory` are what
    it keeps in files about the person. `max_iterations` replaces that of the settings, `max_tokens`
    bounds an answer below theirs. `model_of` names the agent whose own model it uses, if it is none
    of a tier. `spawn` says whether it may have sub-agents.
    """

    agent: str
    title: str = ""
    identity: str = ""
    personality: str = ""
    instructions: str = ""
    context: str = ""
    user: str = ""
    memory: str = ""
    tier: Tier = "standard"
    model_of: str = ""
    temperature: float | None = None
    capabilities: tuple[str, ...] = ("*",)
    skills: tuple[str, ...] = ("*",)
    max_iterations: int | None = None
    max_tokens: int | None = None
    spawn: bool = True
    above: tuple[str, ...] = ()


class Away(msgspec.Struct, frozen=True):
    """The agent does not answer now: it is paused, killed or unknown. `sentence` says so.

    `begun` is how it is for what it has begun before, if it may finish that.
    """

    sentence: str
    begun: Profile | None = None


Profiles: TypeAlias = Callable[[SessionKey], Awaitable[Profile | Away]]
"""Finds out how an agent is for a person. Raises StorageError."""
