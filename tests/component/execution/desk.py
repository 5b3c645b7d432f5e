"""A whole service that executes skills, for requests and for the calls of a model."""

import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from component.agent.protocol import Caller, ToolResult, Tools, Waiting
from component.audit.lines import Line
from component.commands.pause_gate import PauseGate
from component.execution import SkillExecutor
from component.policy.flows import Flow
from component.skills import Registry, Skill
from component.storage.database import Database
from component.tasks.service import TaskService
from tests.component.agent.world import message
from tests.kit import Kit, Script, service
from xep.fluux_agent.confirm import Decision
from xep.jid import JID

AT = JID.parse("assistant@agent.example.com")
WHO = JID.parse("alice@a.example/phone")


class Desk:
    """A whole service that executes skills for Alice: `async with desk.running()`.

    Args:
        skills: what it offers, besides the skills of every service.
        flows: what data of strangers may reach.
        timeout_s: how long a call of a tool may take.
        admins: bare JIDs.
        features: what Alice's client announces.
        policy: the other keys of `[policy]`; `rules` are those of `component.policy`.

    Attributes:
        service: the durable work.
        registry: the skills.
        skills: besides those of every service.
        tools: these and those as tools.
        executor: runs skills.
        pause_gate: rejects requests while the service is paused.
        kit: the service.
        tools_ended: the tasks that a call continued as, and that have ended.
        events: the audit log, once the service has stopped.
    """

    kit: Kit
    service: TaskService
    registry: Registry
    tools: Tools
    executor: SkillExecutor
    pause_gate: PauseGate

    def __init__(
        self,
        *skills: Skill,
        flows: Sequence[Flow] = (),
        timeout_s: float = 120,
        admins: Sequence[str] = (),
        features: Sequence[str] = (),
        **policy: Any,
    ) -> None:
        rules = [msgspec.structs.asdict(rule) for rule in policy.pop("rules", ())]
        given = [msgspec.structs.asdict(flow) for flow in flows]
        self._settings = {
            "server": {"component_domain": AT.domain},
            "agent": {"allowed_domains": ["a.example", "b.example"], "admins": admins},
            "loop": {"tool_timeout_s": timeout_s},
            "policy": {"rules": rules, "flows": given, **policy},
        }
        self.skills = skills
        self._features = features
        self.tools_ended: list[str] = []
        self.events: list[Line] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the service, with Alice at its server."""
        with tempfile.TemporaryDirectory() as directory:
            async with service(
                Path(directory), self._settings, model=Script(), skills=self.skills
            ) as kit:
                kit.peer(str(WHO), features=self._features)
                agents, tasks = kit.kernel.agents, kit.kernel.tasks
                assert agents is not None
                self.kit, self.tools, self.service = kit, agents.tools, tasks.service
                self.registry = kit.service.catalog.registry
                self.executor, self.pause_gate = tasks.executor, tasks.pause_gate
                told = tasks.tool_ended

                def tool_ended(task: str) -> None:
                    self.tools_ended.append(task)
                    told(task)

                tasks.tool_ended = tool_ended
                yield
                self.events = await kit.audited()

    @property
    def sent(self) -> list[str]:
        """The stanzas that the service has sent."""
        return [xml for direction, xml in self.kit.stanzas if direction == "received"]

    @property
    def told(self) -> list[str]:
        """The messages that the service has sent."""
        return [xml for xml in self.sent if xml.startswith("<message ")]

    async def rows(self) -> list[int]:
        """Return the number of tasks, events, replay records, questions and steps."""

        def count(database: Database) -> list[int]:
            return [
                int(database.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
                for table in ("tasks", "events", "replay", "inputs", "journal")
            ]

        return await self.kit.kernel.storage.read(count)

    def of(self, kind: str) -> list[tuple[str, str]]:
        """Return outcome and subject of the recorded events of a kind."""
        return [(event.outcome, event.subject) for event in self.events if event.kind == kind]

    async def call(
        self, name: str, call_id: str = "0.a", caller: Caller | None = None, **arguments: Any
    ) -> ToolResult | Waiting:
        text = json.dumps(arguments)
        return await self.tools.call(caller or a_caller(), call_id, name, text)

    async def decide(self, task: str, value: Any) -> None:
        (question,) = await self.service.open_questions(WHO.bare, AT)
        assert question.task == task
        await self.service.decide(WHO.bare, AT, Decision(id=question.id, value=value))


def a_caller(turn: str = "t1", agent: str = "assistant", **more: Any) -> Caller:
    said = message(turn, "Do it.", WHO.bare, sender=WHO, target=AT, taint=None)
    return Caller(request=said, agent=agent, turn=turn, **more)
