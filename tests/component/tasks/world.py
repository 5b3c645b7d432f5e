"""A room of tasks on a database of its own, that can be killed and started again."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import msgspec

from component.skills import AnySkill, prepare
from component.skills.threads import Threads
from component.storage import Storage
from component.tasks.admit import Limits
from component.tasks.protocol import Call, Confirmation, Notice
from component.tasks.replay import digest_of, key_of
from component.tasks.room import TaskRoom
from component.tasks.states import TERMINAL
from tests.waiting import eventually
from xep.fluux_agent.execute import Accepted, Execute, Param, Params, Result
from xep.fluux_agent.task import Events, Task
from xep.jid import JID

ANN = JID.parse("ann@a.example/desk")
BOB = JID.parse("bob@a.example/desk")
AGENT = JID.parse("assistant@agent.example")

Open = Callable[..., AbstractAsyncContextManager[Storage]]

_ids = itertools.count()


class Ear:
    """A listener that keeps what it hears, and can be deaf."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.deaf = False
        self.gone = anyio.Event()
        self.gone.set()
        self._heard = anyio.Event()

    def changed(self, notice: Notice) -> bool:
        if self.deaf:
            return False
        self.notices.append(notice)
        self._heard.set()
        return True

    async def sent(self) -> None:
        await self.gone.wait()

    def of(self, task: str) -> list[Task]:
        return [notice.task for notice in self.notices if notice.task.id == task]

    async def until(self, test: Callable[[Notice], bool]) -> Notice:
        """The first notice, of those heard and those to come, that passes the test."""
        seen = 0
        with anyio.fail_after(20):
            while True:
                for notice in self.notices[seen:]:
                    if test(notice):
                        return notice
                seen = len(self.notices)
                self._heard = anyio.Event()
                await self._heard.wait()
        raise AssertionError

    async def ended(self, task: str) -> Task:
        said = await self.until(lambda one: one.task.id == task and one.task.state in TERMINAL)
        return said.task

    async def in_state(self, task: str, state: str) -> Task:
        said = await self.until(lambda one: one.task.id == task and one.task.state == state)
        return said.task


class World:
    """One life of a room."""

    def __init__(self, storage: Storage, room: TaskRoom, ear: Ear, skills: dict[str, AnySkill]):
        self.storage = storage
        self.room = room
        self.ear = ear
        self.skills = skills
        self.allowed: Callable[[JID, AnySkill], bool] = lambda principal, skill: True

    def call(
        self,
        skill: str,
        *,
        by: JID = ANN,
        id: str | None = None,  # noqa: A002
        confirm: Confirmation | None = None,
        params: dict[str, str] | None = None,
        json: dict[str, Any] | None = None,
        **attributes: Any,
    ) -> Call:
        execute = Execute(
            skill=skill,
            params=tuple(Param(name=name, text=text) for name, text in (params or {}).items()),
            json_params=None
            if json is None
            else Params(json=msgspec.Raw(msgspec.json.encode(json))),
            **attributes,
        )
        found = self.skills[skill]
        texts = [(param.name, param.text) for param in execute.params]
        raw = None if json is None else msgspec.json.encode(json)
        return Call(
            principal=by.bare,
            requester=by,
            target=AGENT,
            skill=found,
            arguments=prepare(found, texts, raw),
            execute=execute,
            key=key_of(by, AGENT, execute.request, id or f"iq-{next(_ids)}"),
            digest=digest_of(execute),
            confirmation=confirm,
        )

    async def execute(self, call: Call) -> Result | Accepted:
        """As a handler does."""
        answer = self.room.remembered(call.key, call.digest)
        if answer is None:
            answer = await self.room.repeated(call.key, call.digest)
        if answer is None:
            answer = await self.room.execute(call)
        return answer

    async def run(self, skill: str, **how: Any) -> Result | Accepted:
        return await self.execute(self.call(skill, **how))

    async def task(self, skill: str, **how: Any) -> str:
        accepted = await self.run(skill, mode="async", **how)
        assert isinstance(accepted, Accepted), accepted
        return accepted.task

    async def get(self, task: str, who: JID = ANN) -> Task:
        return await self.room.get(who.bare, AGENT, task)

    async def reaches(self, task: str, *states: str) -> Task:
        """The task, once it is in one of the states."""

        async def there() -> bool:
            return (await self.get(task)).state in states

        await eventually(there)
        return await self.get(task)

    async def events(self, task: str, who: JID = ANN) -> list[Task]:
        page = await self.room.events(who.bare, AGENT, Events(id=task, since=0))
        return list(page.tasks)

    async def scalar(self, sql: str, *values: Any) -> Any:
        row = await self.storage.read(lambda db: db.execute(sql, values).fetchone())
        return None if row is None else row[0]


@asynccontextmanager
async def living(
    open_storage: Open,
    *skills: AnySkill,
    ear: Ear | None = None,
    allowed: Callable[[JID, AnySkill], bool] | None = None,
    **limits: Any,
) -> AsyncIterator[World]:
    """A room, until the end of the context, where it is killed: nothing is drained.

    Whoever comes next in the same data directory takes its work up.
    """
    by_name = {skill.name: skill for skill in skills}
    ear = ear or Ear()
    async with open_storage() as storage:
        world: World

        def may_use(principal: JID, skill: AnySkill) -> bool:
            return world.allowed(principal, skill)

        room = TaskRoom(storage, by_name.get, may_use, Threads(8, 4), Limits(**limits), ear)
        world = World(storage, room, ear, by_name)
        if allowed is not None:
            world.allowed = allowed
        async with anyio.create_task_group() as group:
            await group.start(room.run)
            yield world
            group.cancel_scope.cancel()
