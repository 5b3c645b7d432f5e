"""Starts the work of schedules, watches and webhooks as tasks, each once."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
import structlog

from component.kernel import started_work
from component.kernel.environment import Environment
from component.kernel.goals import goal_of
from component.kernel.started_work import Started
from component.kernel.tasks import TaskSubsystem
from component.kernel.triggers import Trigger, Work, taints_of
from component.skills import Skill
from component.store.database import Database
from component.tasks.gate import ITS_PARAMETERS
from component.tasks.request import CallerContext, OnAccepted, Request
from xep.fluux_agent.execute import Accepted, Result
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.kernel")

_NOT_ADMITTED: Final = "{principal} may not use this service any more."
_NO_SKILL: Final = "There is no skill called {skill} that {principal} may use."
_LATE: Final = "There is no skill called {skill} yet. Sources are not ready: {sources}."
_NO_MODEL: Final = "A goal needs a language model, and none is set up: add [llm] to the settings."
_MOST_NAMED: Final = 5


class TaskStarter:
    """Starts work as tasks.

    A trigger is recognised by the request name that is made of it, so of several instances one
    records its task, and by its row in `started_work`, which is kept longer.

    Args:
        goal: the skill that runs a goal; None where no model is set up.
        address_of: the address from which an agent (by its name) writes to a person, who may have
            asked for the work at a certain address.

    Attributes:
        on_recorded: called when work was recorded or refused. Never waits.
    """

    def __init__(
        self,
        environment: Environment,
        tasks: TaskSubsystem,
        goal: Skill | None,
        address_of: Callable[[str, JID, JID | None], JID],
    ) -> None:
        self._storage = environment.storage
        self._catalog = environment.catalog
        self._tasks = tasks
        self._goal = goal
        self._address_of = address_of
        self.on_recorded: list[Callable[[], None]] = []

    async def start(
        self, trigger: Trigger, work: Work, also: Callable[[Database], object] | None = None
    ) -> str | None:
        """Record the work as a task once for each (source, name, key) of a trigger.

        When this returns, the task is on disk, whatever happens to this process. Returns the
        task's id, or None if the same trigger was recorded before, by this or another instance.
        `also` changes the database in the transaction that records the trigger, if it was not
        recorded before this call; it may be called more than once.

        Raises:
            StorageError: the database refuses; try again later.
            StanzaError: the work was refused. If its type is `wait`, try again later: new work is
                paused, or sources of skills are not ready. Otherwise trying again does not help
                before something changes: the principal has lost the right, the budget is spent,
                the skill does not exist. Its text is a sentence for people.
        """
        if await self._storage.read(partial(started_work.is_recorded, trigger=trigger)):
            return None
        accepted: list[str] = []

        def record(database: Database, task: str | None, failure: str | None = None) -> None:
            if also is not None:
                also(database)
            entry = Started(trigger=trigger, work=work, task=task, failure=failure)
            started_work.record(database, entry)

        def record_task(database: Database, task: str) -> None:
            record(database, task)
            accepted[:] = [task]

        try:
            # In one transaction: a task that was made, and is not recorded, would report to nobody.
            task = await self._submit(trigger, work, record_task)
        except StanzaError as error:
            if error.type != "wait":
                reason = error.text or f"It was refused: {error.condition}."
                await self._storage.write(partial(record, task=None, failure=reason))
                self._recorded(trigger, reason=reason)
            raise
        if accepted != [task]:
            return None  # another instance has started it
        self._recorded(trigger, task=task)
        return task

    def _recorded(self, trigger: Trigger, **result: str) -> None:
        for call in self.on_recorded:
            call()
        _log.info(
            "work was started" if "task" in result else "work was refused",
            source=trigger.source,
            name=trigger.name,
            key=trigger.key,
            **result,
        )

    async def _submit(self, trigger: Trigger, work: Work, also: OnAccepted) -> str:
        """Make the task; return its id. A repetition gets the same one."""
        if not self._catalog.admits(work.principal):
            raise StanzaError("forbidden", _NOT_ADMITTED.format(principal=work.principal))
        if work.skill is not None:
            running = self._run_skill(trigger, work, work.skill, also)
        elif self._goal is None:
            raise StanzaError("feature-not-implemented", _NO_MODEL)
        else:
            running = self._run_goal(trigger, work, self._goal, also)
        answer = await running
        assert isinstance(answer, Accepted), "it was asked for as a task"
        return answer.task

    async def _run_skill(
        self, trigger: Trigger, work: Work, name: str, also: OnAccepted
    ) -> Accepted | Result:
        internal = self._tasks.internal.get(name) if trigger.source == "plan" else None
        if internal is not None:
            request = self._request(trigger, work, name, work.params)
            return await self._execute(request, internal, also)
        skill = self._catalog.view(work.principal).get(name)
        if skill is None and (late := self._tasks.late_sources()):
            text = _LATE.format(skill=name, sources=", ".join(late[:_MOST_NAMED]))
            raise StanzaError("resource-constraint", text)
        if skill is None:
            text = _NO_SKILL.format(skill=name, principal=work.principal)
            raise StanzaError("item-not-found", text)
        # What a model has asked for after reading strangers may be theirs, parameters included. A
        # skill that only reads gets parameters without their data: those are the person's own.
        strangers = work.filled or bool(work.taints) or not skill.annotations.read_only
        chosen = ITS_PARAMETERS if strangers else ()
        request = self._request(trigger, work, name, work.params, chosen)
        return await self._execute(request, None, also)

    async def _run_goal(
        self, trigger: Trigger, work: Work, skill: Skill, also: OnAccepted
    ) -> Accepted | Result:
        raw = msgspec.Raw(msgspec.json.encode({"goal": goal_of(trigger, work)}))
        return await self._execute(self._request(trigger, work, skill.name, raw), skill, also)

    async def _execute(
        self, request: Request, internal: Skill | None, also: OnAccepted
    ) -> Accepted | Result:
        answer = self._tasks.service.execute(request, internal=internal, also=also)
        return await answer if isinstance(answer, Awaitable) else answer

    def _request(
        self,
        trigger: Trigger,
        work: Work,
        skill: str,
        params: msgspec.Raw,
        chosen: tuple[str, ...] = (),
    ) -> Request:
        name = msgspec.json.encode((trigger.source, trigger.name, trigger.key)).decode()
        is_own = trigger.source == "schedule" and work.at is not None and not work.filled
        return Request(
            skill=skill,
            requester=work.requester or work.principal.bare,
            principal=work.principal.bare,
            target=self._address_of(work.agent, work.principal, work.at),
            json=params,
            mode="async",
            priority=work.priority,
            thread=work.thread,
            session=f"trigger {name}",
            origin="trigger",
            caller_context=CallerContext(
                work.agent,
                taints=taints_of(trigger, work),
                trace=f"{trigger.source} {trigger.name}",
                chosen=chosen,
                limits=work.limits,
                unrequested=True,
                own_schedule=is_own,
            ),
        )
