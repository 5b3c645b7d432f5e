"""Sub-agents: a tool by which an agent lets another one work on a part of what it was asked.

A sub-agent has at most the capabilities and skills of the one above it, spends from its budget, and
has a conversation and a memory of its own. It lives inside the call that spawned it: what cancels
the turn above cancels it too. It keeps a journal like every turn, so that after a crash the call is
made again and it goes on where it was.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Final

import anyio
import msgspec
import structlog

from component.agent.calling import Parked
from component.agent.engine import Answered, Engine
from component.agent.profile import Profile
from component.agent.protocol import Caller, ToolResult, Waiting
from component.agent.run import Ask
from component.audit.protocol import Event, Recorder
from component.memory.lines import SessionKey
from component.models.protocol import Tool, ToolCall
from component.policy.narrower import within
from component.policy.taint import Taint
from component.settings.agents import Loop
from component.settings.llm import Tier

_log = structlog.get_logger("component.agent")

NAME: Final = "spawn_agent"
_LABEL_CHARACTERS: Final = 24
_WORST: Final[tuple[Taint, ...]] = ("web", "peer", "file", "person")


class Spawn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sub-agent is spawned for, and with what."""

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


class Children:
    """Implements `component.agent.protocol.Tools` for one tool: `spawn_agent`.

    Args:
        engine: runs the turns of sub-agents as well.
        loop: how deep and how many.
        recorder: where each is recorded.
    """

    def __init__(self, engine: Engine, loop: Loop, recorder: Recorder) -> None:
        self._engine = engine
        self._loop = loop
        self._recorder = recorder
        self._at_work: dict[tuple[str, str], anyio.CapacityLimiter] = {}
        self._tool = Tool(
            name=NAME,
            description=(
                "Let a sub-agent do a piece of the work by itself, and get its answer. Several can"
                " work at the same time: call it more than once in one answer."
            ),
            parameters=msgspec.Raw(msgspec.json.encode(_schema())),
        )

    def offered(self, caller: Caller) -> Sequence[Tool]:
        """The tool, to who may have sub-agents and is not too deep below somebody already."""
        deep = caller.agent.count("/") >= self._loop.depth
        return () if deep or not caller.spawn else (self._tool,)

    def together(self, _caller: Caller, _name: str) -> bool:
        """Sub-agents work beside each other."""
        return True

    async def call(
        self, caller: Caller, call_id: str, _name: str, arguments: str
    ) -> ToolResult | Waiting:
        """Let a sub-agent work, or go on."""
        if not self.offered(caller):
            return ToolResult("Sub-agents are not allowed here.", is_error=True)
        try:
            spawn = msgspec.json.decode(arguments, type=Spawn)
        except (ValueError, RecursionError) as error:
            self.refused(caller, NAME)
            return ToolResult(f"No sub-agent was made: {error}.", is_error=True)
        for what, asked, had in (
            ("tool", spawn.skills, caller.skills),
            ("capability", spawn.capabilities, caller.capabilities),
        ):
            beyond = within(asked, had)
            if beyond is not None:
                self._record(caller, caller.agent, "refused", f"{what} {beyond}")
                return ToolResult(
                    f"No sub-agent was made: you do not have the {what} {beyond} yourself.",
                    is_error=True,
                )
        ask = self._ask(caller, call_id, spawn)
        async with self._turn_of(caller):
            self._record(caller, ask.profile.agent, "spawned", spawn.role)
            outcome = await self._engine.turn(ask)
        return self._told(caller, ask, outcome)

    def refused(self, caller: Caller, _name: str) -> None:
        """Record that no sub-agent was made."""
        self._record(caller, caller.agent, "refused", "what it is to do cannot be read")

    async def outcome(self, caller: Caller, call: ToolCall, _task: str) -> ToolResult | Waiting:
        """Let a sub-agent go on whose task is over."""
        return await self.call(caller, call.id, call.name, call.arguments)

    async def give_up(self, caller: Caller, call: ToolCall, _task: str | None) -> None:
        """End a sub-agent, and all that it is at or waits for."""
        try:
            spawn = msgspec.json.decode(call.arguments, type=Spawn)
        except (ValueError, RecursionError):
            return
        ask = self._ask(caller, call.id, spawn)
        await self._engine.stop(ask)
        self._record(caller, ask.profile.agent, "killed", spawn.role)

    def _ask(self, caller: Caller, call_id: str, spawn: Spawn) -> Ask:
        turn = hashlib.sha256(f"{caller.turn} {call_id}".encode()).hexdigest()[:32]
        label = "".join(c for c in spawn.role.casefold() if c.isascii() and c.isalnum())
        agent = f"{caller.agent}/{label[:_LABEL_CHARACTERS] or 'helper'}-{turn[:8]}"
        above = [caller.agent]
        while "/" in above[-1]:
            above.append(above[-1].rpartition("/")[0])
        said = msgspec.structs.replace(
            caller.incoming,
            id=turn,
            body=spawn.task,
            msg_id=None,
            # Who has been shown what strangers wrote may pass on their orders.
            taint=next((one for one in _WORST if one in caller.taints), "person"),
        )
        return Ask(
            id=turn,
            key=SessionKey(agent, said.principal),
            profile=_profile(caller, agent, spawn, tuple(above)),
            messages=(said,),
            resumed=True,
            may_archive=False,
            paid_by=caller.paid_by or caller.turn,
        )

    def _turn_of(self, caller: Caller) -> anyio.CapacityLimiter:
        """At most so many sub-agents of one agent work at the same time; others wait."""
        key = (caller.turn, caller.agent)
        limiter = self._at_work.get(key)
        if limiter is None:
            for idle in [k for k, each in self._at_work.items() if not each.borrowed_tokens]:
                if not self._at_work[idle].statistics().tasks_waiting:
                    del self._at_work[idle]
            limiter = self._at_work[key] = anyio.CapacityLimiter(self._loop.children)
        return limiter

    def _told(self, caller: Caller, ask: Ask, outcome: Answered | Parked) -> ToolResult | Waiting:
        if isinstance(outcome, Parked):
            return Waiting(outcome.tasks[0], question=outcome.question)
        ended = "failed" if outcome.excused else "ended"
        self._record(caller, ask.profile.agent, ended, "")
        taint = next((one for one in _WORST[:-1] if one in outcome.taints), None)
        return ToolResult(outcome.text or "It has nothing to say.", outcome.excused, taint)

    def _record(self, caller: Caller, agent: str, outcome: str, detail: str) -> None:
        self._recorder.record(
            Event(
                kind="agent",
                outcome=outcome,
                principal=str(caller.incoming.principal),
                agent=caller.agent,
                trace=caller.turn,
                subject=agent,
                detail=detail,
            )
        )


def _profile(caller: Caller, agent: str, spawn: Spawn, above: tuple[str, ...]) -> Profile:
    return Profile(
        agent=agent,
        title=spawn.role,
        identity=(
            f"You are {spawn.role}, a sub-agent of {above[0]}. What you answer is read by that"
            " agent, which asked you, and by nobody else."
        ),
        personality="Answer to the point, with everything that was asked for and nothing more.",
        instructions=spawn.instructions,
        tier=spawn.tier or caller.tier,
        model_of="" if spawn.tier else caller.model_of,
        capabilities=spawn.capabilities or caller.capabilities,
        skills=spawn.skills or caller.skills,
        above=above,
    )


def _schema() -> dict[str, object]:
    schema = msgspec.json.schema(Spawn)
    definitions: dict[str, dict[str, object]] = schema["$defs"]
    return definitions["Spawn"]
