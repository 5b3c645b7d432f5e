"""A task service on a database of its own, that can be killed and started again."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import Any, cast

import anyio
import msgspec
from msgspec.structs import replace

from component.link.messages.delivery import Delivery
from component.policy import Policy
from component.policy.flows import Flows
from component.policy.policy import PeerRule
from component.skills import Skill, View
from component.skills.calling import Threads
from component.store import Storage
from component.tasks.events import TaskRecords
from component.tasks.gate import Approvers, AskModel, Gate, SkillAccess, no_model
from component.tasks.protocol import DeletedTask, Notice, Share, TaskLimits, nowhere
from component.tasks.request import Confirmation, Request, request_from
from component.tasks.rows import TERMINAL
from component.tasks.service import Clocks, TaskService
from component.tasks.standing import StandingApprovals
from tests.waiting import eventually
from xep.fluux_agent.execute import Accepted, Execute, Param, Params, Result
from xep.fluux_agent.task import Events, Task
from xep.jid import JID

ANN = JID.parse("ann@a.example/desk")
BOB = JID.parse("bob@a.example/desk")
AGENT = JID.parse("assistant@agent.example")

Open = Callable[..., AbstractAsyncContextManager[Storage]]

_ids = itertools.count()


def written(*, has_stanzas: bool = True) -> Delivery:
    """Return the delivery of a message that was written, or that needed no stanza."""
    delivery = Delivery()
    delivery.has_stanzas = has_stanzas
    delivery.conclude()
    return delivery


class Ear:
    """A listener that keeps what it hears, and can be deaf.

    Attributes:
        losses: how often the connection is lost before the server has handled what was sent.
        is_silent: whether no stanza tells anybody of the changes.
    """

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.deaf = False
        self.losses = 0
        self.forgotten: list[DeletedTask] = []
        self.holds = self.is_silent = False
        self.deliveries: list[Delivery] = []
        """Of the notices that were heard while it `holds` them."""
        self._heard = anyio.Event()

    async def handled(self) -> bool:
        """Return whether the connection still exists."""
        self.losses -= 1
        return self.losses < 0

    def changed(self, notice: Notice) -> Delivery | None:
        if self.deaf:
            return None
        self.notices.append(notice)
        self._heard.set()
        if not self.holds:
            return written(has_stanzas=not self.is_silent)
        self.deliveries.append(Delivery())
        return self.deliveries[-1]

    def told(self, notice: Notice) -> None:
        pass

    def released(self, task: str) -> None:
        pass

    def deleted(self, task: DeletedTask) -> None:
        self.forgotten.append(task)

    def of(self, task: str) -> list[Task]:
        return [notice.task for notice in self.notices if notice.task.id == task]

    async def until(self, test: Callable[[Notice], bool]) -> Notice:
        """The first notice, of those heard and those to come, that passes the test."""
        seen = 0
        with anyio.fail_after(120):
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
    """One run of a task service."""

    def __init__(self, storage: Storage, service: TaskService, ear: Ear, skills: dict[str, Skill]):
        self.storage = storage
        self.service = service
        self.ear = ear
        self.skills = skills
        self.allowed: Callable[[JID, Skill], bool] = lambda principal, skill: True
        self.ask_model: AskModel = no_model

    def call(
        self,
        skill: str,
        *,
        by: JID = ANN,
        id: str | None = None,  # noqa: A002
        confirm: Confirmation | None = None,
        undecided: bool = False,
        params: dict[str, str] | None = None,
        json: dict[str, Any] | None = None,
        **attributes: Any,
    ) -> Request:
        execute = Execute(
            skill=skill,
            params=tuple(Param(name=name, text=text) for name, text in (params or {}).items()),
            json_params=None
            if json is None
            else Params(json=msgspec.Raw(msgspec.json.encode(json))),
            **attributes,
        )
        request = request_from(
            execute,
            requester=by,
            principal=by.bare,
            target=AGENT,
            stanza_id=id or f"iq-{next(_ids)}",
        )
        return replace(request, confirmation=confirm, undecided=undecided)

    async def execute(self, request: Request) -> Result | Accepted:
        """As a handler does."""
        answer = self.service.execute(request)
        return answer if isinstance(answer, Result | Accepted) else await answer

    async def run(self, skill: str, **how: Any) -> Result | Accepted:
        return await self.execute(self.call(skill, **how))

    async def task(self, skill: str, **how: Any) -> str:
        accepted = await self.run(skill, mode="async", **how)
        assert isinstance(accepted, Accepted), accepted
        return accepted.task

    async def get(self, task: str, who: JID = ANN) -> Task:
        return await self.service.get(who.bare, AGENT, task)

    async def reaches(self, task: str, *states: str) -> Task:
        """The task, once it is in one of the states."""

        async def there() -> bool:
            return (await self.get(task)).state in states

        await eventually(there)
        return await self.get(task)

    async def events(self, task: str, who: JID = ANN) -> list[Task]:
        page = await self.service.events(who.bare, AGENT, Events(id=task, since=0))
        return list(page.tasks)

    async def scalar(self, sql: str, *values: Any) -> Any:
        row = await self.storage.read(lambda db: db.execute(sql, values).fetchone())
        return None if row is None else row[0]


class Nobody:
    """Approvers of whom nobody has to confirm anything."""

    def needed(self, _request: Request, _skill: Skill) -> bool:
        return False

    async def find(self, _request: Request, _skill: Skill) -> Confirmation | None:
        return None


class Offered:
    """The skills that a principal may use."""

    def __init__(self, skills: dict[str, Skill], may_use: Callable[[Skill], bool]) -> None:
        self._skills = skills
        self._may_use = may_use

    def get(self, name: str) -> Skill | None:
        found = self._skills.get(name)
        return found if found is not None and self._may_use(found) else None


@asynccontextmanager
async def living(
    open_storage: Open,
    *skills: Skill,
    ear: Ear | None = None,
    allowed: Callable[[JID, Skill], bool] | None = None,
    approvers: Any = None,
    clock: Callable[[], float] | None = None,
    clocks: Clocks | None = None,
    late: Callable[[], Sequence[str]] = tuple,
    share: Share = nowhere,
    access_options: Mapping[str, Any] = MappingProxyType({}),
    records: TaskRecords | None = None,
    standing: StandingApprovals | None = None,
    **limits: Any,
) -> AsyncIterator[World]:
    """A task service, until the end of the context, where it is killed: nothing is drained.

    The next process in the same data directory continues its work.
    """
    by_name = {skill.name: skill for skill in skills}
    policy = Policy(allowed_domains=["*"], peers=[PeerRule("elsewhere", "agent.elsewhere.example")])
    ear = ear or Ear()
    async with open_storage() as storage:
        world: World

        def may_use(principal: JID, skill: Skill) -> bool:
            return world.allowed(principal, skill)

        def view(who: JID) -> View:
            return cast("View", Offered(by_name, lambda skill: may_use(who, skill)))

        access = SkillAccess(
            find=by_name.get,
            gate=Gate(view, Flows(), policy=lambda: policy),
            may_use=may_use,
            approvers=cast("Approvers", approvers or Nobody()),
            threads=Threads(8, 4),
            names=lambda: tuple(by_name),
            late=late,
            share=share,
            ask_model=lambda *asked: world.ask_model(*asked),  # noqa: PLW0108 - tests replace it
            **access_options,
        )
        if clocks is None:
            clocks = Clocks() if clock is None else Clocks(boot_s=clock)
        bounds = TaskLimits(**limits)
        service = TaskService(
            *(storage, access, bounds, ear), records=records, clocks=clocks, standing=standing
        )
        world = World(storage, service, ear, by_name)
        if allowed is not None:
            world.allowed = allowed
        async with anyio.create_task_group() as group:
            await group.start(service.run)
            yield world
            group.cancel_scope.cancel()
