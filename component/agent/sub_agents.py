"""Sub-agents: agents that do a piece of the work of another one, as tasks.

A sub-agent has at most the rights of its parent, spends from its parent's budget, and has its own
conversation and memory. It runs one turn, as a task of the skill `agent.work`
(`component.kernel.agent_work`). The tool `spawn_agent` starts such tasks for a model
(`component.tools.spawning`).
"""

import hashlib
from typing import Annotated, Final

import msgspec

from component.agent.history import in_order
from component.agent.protocol import Caller, Profile
from component.agent.requests import RoomRequest
from component.config.llm import Tier
from component.policy.flows import AgentLimits
from component.policy.globs import within
from component.policy.taint import Taint

SPAWN: Final = "spawn_agent"
_LABEL_CHARACTERS: Final = 24


class Spawn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `spawn_agent`."""

    task: Annotated[
        str,
        msgspec.Meta(
            description="What it is to do, with all that it has to know: it sees nothing else of"
            " this conversation.",
            min_length=1,
        ),
    ]
    role: Annotated[
        str,
        msgspec.Meta(
            description="One or two words on what it is, such as researcher.",
            max_length=64,
            pattern=r"^[^\r\n]*$",
        ),
    ] = "helper"
    instructions: Annotated[str, msgspec.Meta(description="What it must keep to.")] = ""
    skills: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="Names of the tools it may call; all of yours unless given."),
    ] = ()
    capabilities: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="What it may touch; all that you may unless given."),
    ] = ()
    tier: Annotated[
        Tier | None, msgspec.Meta(description="Which kind of model it uses; yours unless given.")
    ] = None


class AgentWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parameters of `agent.work`: a sub-agent, and what it has to do.

    Its task has the principal, the limits of the parent, and the budget that pays.

    Attributes:
        turn: the id of its turn.
        agent: its name, `parent/id`.
        text: what it is to do.
        role: what it is, in one or two words.
        instructions: what it must keep to.
        skills: patterns of the names of the skills that it may call; empty for those of its parent.
        capabilities: the patterns of the capabilities that it may use, likewise.
        tier: the kind of model that it uses, and `model_of` the agent whose own model it is; None
            for the model of the agent that people know.
        taints: those of everything that the author of `text` had read, if a model is the author.
        room: the request in a room that it works for.
        said: the messages of the person in the conversation that it works for.
        written: what the person and the operator have written there.
    """

    turn: str
    agent: str
    text: str
    role: str = "helper"
    instructions: str = ""
    skills: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    tier: Tier | None = None
    model_of: str = ""
    taints: tuple[Taint, ...] = ()
    room: RoomRequest | None = None
    said: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


def spawned(caller: Caller, call_id: str, spawn: Spawn) -> AgentWork:
    """Return the work of the sub-agent that a model asks for by a call."""
    turn = turn_of(caller.turn, call_id)
    room = caller.request.room
    if room is not None:  # it sees nothing of the conversation but its task
        room = msgspec.structs.replace(room, overheard=(), stanza_id="")
    return AgentWork(
        turn=turn,
        agent=name_of(caller.agent, spawn.role, turn),
        text=spawn.task,
        role=spawn.role,
        instructions=spawn.instructions,
        skills=spawn.skills,
        capabilities=spawn.capabilities,
        tier=spawn.tier or caller.profile.tier,
        model_of="" if spawn.tier else caller.profile.model_of,
        # An agent that has read texts of strangers may pass on their instructions.
        taints=in_order(caller.taints),
        room=room,
        said=caller.said,
        written=caller.written,
    )


def turn_of(above: str, key: str) -> str:
    """Return the id of the turn of a sub-agent: the same for the same call of a turn or task."""
    return hashlib.sha256(f"{above} {key}".encode()).hexdigest()[:32]


def name_of(parent: str, role: str, turn: str) -> str:
    """Return the name of a sub-agent."""
    label = "".join(c for c in role.casefold() if c.isascii() and c.isalnum())
    return f"{parent}/{label[:_LABEL_CHARACTERS] or 'helper'}-{turn[:8]}"


def beyond(spawn: Spawn, parent: Profile) -> str | None:
    """Return what a sub-agent is to have and its parent has not; None if there is nothing."""
    for what, asked, had in (
        ("tool", spawn.skills, parent.skills),
        ("capability", spawn.capabilities, parent.capabilities),
    ):
        one = within(asked, had)
        if one is not None:
            return f"{what} {one}"
    return None


def profile_of(work: AgentWork, parent: Profile) -> Profile:
    """Return the profile of a sub-agent. `parent` has the rights of its parent, and the model of
    the agent that people know.
    """
    ancestors = work.agent.split("/")[:-1]
    above = tuple(["/".join(ancestors[:end]) for end in range(len(ancestors), 0, -1)])
    mine = parent.limited(AgentLimits(work.skills or ("*",), work.capabilities or ("*",)))
    tier, model_of = (parent.tier, parent.model_of)
    if work.tier is not None:
        tier, model_of = work.tier, work.model_of
    return Profile(
        agent=work.agent,
        title=work.role,
        identity=(
            f"You are {work.role}, a sub-agent of {above[0]}. What you answer is read by that"
            " agent, which asked you, and by nobody else."
        ),
        personality="Answer to the point, with everything that was asked for and nothing more.",
        instructions=work.instructions,
        tier=tier,
        model_of=model_of,
        capabilities=mine.capabilities,
        skills=mine.skills,
        above=above,
        zone=parent.zone,
        read_only=mine.read_only,
        unconfirmed=mine.unconfirmed,
    )
