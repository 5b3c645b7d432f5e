"""A world whose agent spawns sub-agents, which run as tasks."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from component.agent.conversations import Conversations
from component.agent.protocol import Caller, Profile, ToolResult, Waiting
from component.agent.sub_agents import SPAWN
from component.kernel.agent_work import agent_work_skill
from component.models.messages import ToolCall
from component.models.protocol import Completion, ModelRequest, Tool, Usage
from component.policy.flows import Flows
from component.skills import Registry
from component.store import Storage
from component.tasks.events import TaskRecords
from component.tasks.gate import Gate
from component.tasks.protocol import AGENT_WORK, Notice, QueueLimits
from component.tasks.request import Request
from component.tools.joint_confirmation import JointConfirmations
from component.tools.spawning import Spawning
from component.tools.tools import ToolExecutor
from tests.component.agent.world import AGENT, Mortal, Shop, World, message
from tests.component.tasks.world import Ear, living
from tests.component.tasks.world import World as Tasks
from xep.jid import JID


class ToolEar(Ear):
    """Reports the end of tasks that models wait for."""

    def __init__(self, family: "Family") -> None:
        super().__init__()
        self._family = family

    def changed(self, notice: Notice) -> Any:
        if notice.final and notice.request.origin == "tool":
            self._family.conversations.ended(notice.task.id)
        return super().changed(notice)

    def tasks_of(self, skill: str) -> list[str]:
        """The tasks of a skill that were heard of."""
        return list(dict.fromkeys(n.task.id for n in self.notices if n.task.skill == skill))


class FamilyTasks(Tasks):
    """The tasks of a family."""

    ear: ToolEar


class FamilyShop(Shop):
    """The tools of a shop, and that for sub-agents."""

    executor: ToolExecutor

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.offered_to: set[str] = set()

    def offered(self, caller: Caller) -> Sequence[Tool]:
        self.offered_to.add(caller.agent)
        return [*self.executor.offered(caller), *super().offered(caller)]

    def together(self, caller: Caller, name: str) -> bool:
        return name == SPAWN or super().together(caller, name)

    async def call(
        self, caller: Caller, call_id: str, name: str, arguments: str
    ) -> ToolResult | Waiting:
        if name == SPAWN:
            return await self.executor.call(caller, call_id, name, arguments)
        return await super().call(caller, call_id, name, arguments)

    async def outcome(self, caller: Caller, call: ToolCall, task: str) -> ToolResult | Waiting:
        if call.name == SPAWN:
            return await self.executor.outcome(caller, call, task)
        return await super().outcome(caller, call, task)

    async def retract(self, caller: Caller, tasks: Sequence[str]) -> bool:
        if any(one in self.tasks for one in tasks):
            return await super().retract(caller, tasks)
        return await self.executor.retract(caller, tasks)

    async def give_up(self, caller: Caller, call: ToolCall, task: str | None) -> None:
        if call.name == SPAWN:
            await self.executor.give_up(caller, call, task)
        else:
            await super().give_up(caller, call, task)


class Family(World):
    """A world whose agent spawns sub-agents, which are recognised by their instructions."""

    def __init__(self, path: Path, *spawns: dict[str, Any], **loop: Any) -> None:
        super().__init__(path, **loop)
        self.shop: FamilyShop = FamilyShop(self)
        self.spawns = spawns
        self.profile = Profile(agent="assistant", capabilities=("memory:*",), skills=("l*", "ask"))
        self.child: Any = lambda _request: "done below"
        self.brain.think = self.think
        self.shown: list[str] = []
        self.home = "here"
        self.tasks: FamilyTasks
        self.skills: Sequence[Any] = ()

    @asynccontextmanager
    async def built(self) -> AsyncIterator[Conversations]:
        async with super().built() as conversations:

            async def request_of(task: str) -> Request:
                return await self.tasks.service.request_of(task)

            work = agent_work_skill(
                *(self.engine, self.profiles, request_of),
                *(lambda agent: JID(agent, AGENT.domain), self.shop.offered),
            )

            @asynccontextmanager
            async def mortal() -> AsyncIterator[Storage]:
                yield cast("Storage", Mortal(self, self.storage))

            internal = {one.name: one for one in (work, *self.skills)}
            async with living(
                mortal,
                *internal.values(),
                ear=ToolEar(self),
                access_options={"internal": internal.get},
                records=TaskRecords(self.book),
                queues={AGENT_WORK: QueueLimits(self.loop.children)},
            ) as tasks:
                self.tasks = cast("FamilyTasks", tasks)
                service = self.tasks.service
                view = Registry(()).viewer(lambda _who: 0, lambda _key, _name: True)
                self.shop.executor = ToolExecutor(
                    *(service, view, Gate(view, Flows()), self.book),
                    JointConfirmations(cast("Any", None), service),
                )
                self.shop.executor.spawning = Spawning(work, self.loop, self.book)
                yield conversations

    async def think(self, request: ModelRequest) -> Completion:
        said = request.messages[-1]
        if "a sub-agent of" in request.messages[0].text:
            answer = self.child(request)
            if not isinstance(answer, str | Completion):
                answer = await answer
            return answer if isinstance(answer, Completion) else Completion.of(text=answer)
        if said.role == "tool":
            results = [m.text for m in request.messages if m.role == "tool"]
            self.shown += results
            return Completion.of(text="above", usage=Usage(tokens_in=1))
        return calling(*((SPAWN, spawn) for spawn in self.spawns))

    async def asked(self, conversations: Conversations, count: int = 1) -> None:
        await conversations.received(message("m1", "Do it."))
        await self.ear.hears(count)

    async def ended(self, task: str) -> None:
        """End a task of the shop."""
        await super().ended(task)
        self.tasks.service.requeued()

    async def is_parked(self, skill: str) -> bool:
        """Whether all tasks of a skill that run wait for others as rows."""
        found = await self.storage.read(
            lambda db: db.execute(
                "SELECT waits, owner FROM tasks WHERE skill = ? AND state = 'running'", (skill,)
            ).fetchall()
        )
        return bool(found) and all(waits and owner is None for waits, owner in found)

    async def states(self, skill: str) -> list[str]:
        """The states of the tasks of a skill, the oldest first."""
        found = await self.storage.read(
            lambda db: db.execute(
                "SELECT state FROM tasks WHERE skill = ? ORDER BY created, id", (skill,)
            ).fetchall()
        )
        return [state for (state,) in found]


def calling(*calls: tuple[str, dict[str, Any]]) -> Completion:
    made = [
        ToolCall(f"c{number}", name, json.dumps(arguments))
        for number, (name, arguments) in enumerate(calls)
    ]
    return Completion.of(text="", tool_calls=tuple(made), finish="tool_calls")
