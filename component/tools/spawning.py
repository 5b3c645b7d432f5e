"""The tool `spawn_agent`: a call of it is a request for a task of `agent.work`, a sub-agent."""

from typing import Final

import msgspec

from component.agent.protocol import Caller
from component.agent.sub_agents import SPAWN, AgentWork, Spawn, beyond, spawned
from component.audit.protocol import AuditEvent, Recorder
from component.config.agents import Loop
from component.models.protocol import Tool
from component.skills import Skill


class SpawnError(Exception):
    """No sub-agent is made; the text is a sentence for the model."""


class Spawning:
    """Offers sub-agents to agents, and makes their work out of calls.

    Args:
        work: returns the skill that does the work of a sub-agent; None where none can be made.
        loop: limits how deep they are nested.
    """

    def __init__(self, work: Skill, loop: Loop, recorder: Recorder) -> None:
        self.skill = work
        self._loop = loop
        self._recorder = recorder
        self.tool: Final = Tool(
            name=SPAWN,
            description=(
                "Let a sub-agent do a piece of the work by itself, and get its answer. Several can"
                " work at the same time: call it more than once in one answer."
            ),
            parameters=msgspec.Raw(msgspec.json.encode(_schema())),
        )

    def is_offered(self, caller: Caller) -> bool:
        """Whether the caller may have sub-agents and is not at the maximum depth."""
        return caller.profile.spawn and caller.agent.count("/") < self._loop.depth

    def work(self, caller: Caller, call_id: str, arguments: str) -> AgentWork:
        """Return the work of the sub-agent that is asked for. Raises SpawnError."""
        if not self.is_offered(caller):
            raise SpawnError("Sub-agents are not allowed here.")
        try:
            spawn = msgspec.json.decode(arguments, type=Spawn)
        except (ValueError, RecursionError) as error:
            self.refused(caller)
            raise SpawnError(f"No sub-agent was made: {error}.") from None
        more = beyond(spawn, caller.profile)
        if more is not None:
            self.record(caller, caller.agent, "refused", more)
            raise SpawnError(f"No sub-agent was made: you do not have the {more} yourself.")
        return spawned(caller, call_id, spawn)

    def refused(self, caller: Caller) -> None:
        """Record that the arguments of a call cannot be read."""
        self.record(caller, caller.agent, "refused", "the arguments cannot be read")

    def record(self, caller: Caller, agent: str, outcome: str, detail: str) -> None:
        """Record what has become of a request for a sub-agent."""
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


def _schema() -> dict[str, object]:
    schema = msgspec.json.schema(Spawn)
    definitions: dict[str, dict[str, object]] = schema["$defs"]
    return definitions["Spawn"]
