"""Sub-agents: a tool by which an agent delegates a part of its work to another agent.

A sub-agent has at most the capabilities and skills of its parent, spends from the parent's budget,
and has its own conversation and memory. It runs within the call that spawned it, so cancelling the
parent's turn cancels the sub-agent, too. It has a journal like every turn: after a crash the call
is repeated, and the sub-agent continues where it was interrupted.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import anyio
import msgspec
import structlog

from component.agent.engine import Answered, Engine
from component.agent.history import in_order
from component.agent.protocol import Caller, Profile, ToolResult, Waiting
from component.agent.requests import MessageStarter
from component.agent.run import TurnInput
from component.agent.tool_calls import Parked
from component.audit.protocol import AuditEvent, Recorder
from component.config.agents import Loop
from component.config.llm import Tier
from component.memory_directory.layout import SessionKey
from component.models.messages import ToolCall
from component.models.protocol import Tool
from component.policy.flows import TRUSTED
from component.policy.globs import within
from component.policy.taint import worst

_log = structlog.get_logger("component.agent")

NAME: Final = "spawn_agent"
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


class Children:
    """Implements `component.agent.protocol.Tools` for one tool: `spawn_agent`."""

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
        """Return the tool if the caller may have sub-agents and is not at the maximum depth."""
        deep = caller.agent.count("/") >= self._loop.depth
        return () if deep or not caller.profile.spawn else (self._tool,)

    def together(self, _caller: Caller, _name: str) -> bool:
        """Return True: sub-agents work in parallel."""
        return True

    async def confirm_together(
        self, _caller: Caller, _calls: Sequence[ToolCall], *, again: bool
    ) -> Mapping[str, ToolResult | Waiting]:
        """Return nothing: nobody has to confirm a sub-agent."""
        del again
        return {}

    async def call(
        self, caller: Caller, call_id: str, _name: str, arguments: str
    ) -> ToolResult | Waiting:
        """Run a sub-agent, or continue it."""
        if not self.offered(caller):
            return ToolResult("Sub-agents are not allowed here.", is_error=True)
        try:
            spawn = msgspec.json.decode(arguments, type=Spawn)
        except (ValueError, RecursionError) as error:
            self.refused(caller, NAME)
            return ToolResult(f"No sub-agent was made: {error}.", is_error=True)
        for what, asked, had in (
            ("tool", spawn.skills, caller.profile.skills),
            ("capability", spawn.capabilities, caller.profile.capabilities),
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
        """Record that a request for a sub-agent was rejected."""
        self._record(caller, caller.agent, "refused", "the arguments cannot be read")

    async def outcome(self, caller: Caller, call: ToolCall, _task: str) -> ToolResult | Waiting:
        """Continue a sub-agent whose task has ended."""
        return await self.call(caller, call.id, call.name, call.arguments)

    async def pending(self, caller: Caller, call: ToolCall, _task: str) -> Sequence[str] | None:
        """Return the tasks of the calls of a sub-agent."""
        try:
            spawn = msgspec.json.decode(call.arguments, type=Spawn)
        except (ValueError, RecursionError):
            return ()
        return await self._engine.pending(self._ask(caller, call.id, spawn))

    async def retract(self, _caller: Caller, _tasks: Sequence[str]) -> bool:
        """Return False: the tasks of a sub-agent are those of skills."""
        return False

    async def give_up(self, caller: Caller, call: ToolCall, _task: str | None) -> None:
        """Stop a sub-agent and the tasks that it waits for."""
        try:
            spawn = msgspec.json.decode(call.arguments, type=Spawn)
        except (ValueError, RecursionError):
            return
        ask = self._ask(caller, call.id, spawn)
        await self._engine.stop(ask)
        self._record(caller, ask.profile.agent, "killed", spawn.role)

    def _ask(self, caller: Caller, call_id: str, spawn: Spawn) -> TurnInput:
        turn = hashlib.sha256(f"{caller.turn} {call_id}".encode()).hexdigest()[:32]
        label = "".join(c for c in spawn.role.casefold() if c.isascii() and c.isalnum())
        agent = f"{caller.agent}/{label[:_LABEL_CHARACTERS] or 'helper'}-{turn[:8]}"
        room = caller.request.room
        if room is not None:  # it sees nothing of the conversation but its task
            room = msgspec.structs.replace(room, overheard=(), stanza_id="")
        said = msgspec.structs.replace(
            caller.request,
            id=turn,
            starter=MessageStarter(caller.request.requester),
            text=spawn.task,
            # An agent that has read texts of strangers may pass on their instructions.
            taint=worst(caller.taints) or "person",
            taints=in_order(caller.taints),
            room=room,
        )
        return TurnInput(
            id=turn,
            key=SessionKey(agent, said.owner),
            profile=_profile(caller.profile, agent, spawn),
            messages=(said,),
            starter=said.starter,
            resumed=True,
            may_archive=False,
            paid_by=caller.paid_by or caller.turn,
            operator=caller.operator,
            said=caller.said,
            written=caller.written,
        )

    def _turn_of(self, caller: Caller) -> anyio.CapacityLimiter:
        key = (caller.turn, caller.agent)
        limiter = self._at_work.get(key)
        if limiter is None:
            for idle in [k for k, each in self._at_work.items() if not each.borrowed_tokens]:
                if not self._at_work[idle].statistics().tasks_waiting:
                    del self._at_work[idle]
            limiter = self._at_work[key] = anyio.CapacityLimiter(self._loop.children)
        return limiter

    def _told(
        self, caller: Caller, ask: TurnInput, outcome: Answered | Parked
    ) -> ToolResult | Waiting:
        if isinstance(outcome, Parked):
            return Waiting(outcome.tasks[0], outcome.question, outcome.room)
        ended = "failed" if outcome.excused else "ended"
        self._record(caller, ask.profile.agent, ended, "")
        taints = frozenset(outcome.taints) - TRUSTED
        return ToolResult(
            outcome.text or "It has nothing to say.",
            outcome.excused,
            worst(taints),
            files=outcome.files,
            taints=in_order(taints),
        )

    def _record(self, caller: Caller, agent: str, outcome: str, detail: str) -> None:
        self._recorder.record(
            AuditEvent(
                kind="agent",
                outcome=outcome,
                principal=str(caller.request.principal),
                agent=caller.agent,
                trace=caller.turn,
                subject=agent,
                detail=detail,
            )
        )


def _profile(parent: Profile, agent: str, spawn: Spawn) -> Profile:
    return Profile(
        agent=agent,
        title=spawn.role,
        identity=(
            f"You are {spawn.role}, a sub-agent of {parent.agent}. What you answer is read by that"
            " agent, which asked you, and by nobody else."
        ),
        personality="Answer to the point, with everything that was asked for and nothing more.",
        instructions=spawn.instructions,
        tier=spawn.tier or parent.tier,
        model_of="" if spawn.tier else parent.model_of,
        capabilities=spawn.capabilities or parent.capabilities,
        skills=spawn.skills or parent.skills,
        above=(parent.agent, *parent.above),
        zone=parent.zone,
        read_only=parent.read_only,
        unconfirmed=parent.unconfirmed,
    )


def _schema() -> dict[str, object]:
    schema = msgspec.json.schema(Spawn)
    definitions: dict[str, dict[str, object]] = schema["$defs"]
    return definitions["Spawn"]
