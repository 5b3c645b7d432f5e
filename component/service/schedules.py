"""Schedules: fires them, and has their commands and the schedules of the settings."""

from collections.abc import Sequence

import anyio
import structlog
from anyio.abc import TaskStatus

from component.commands.definition import AnyCommand
from component.commands.schedules import ScheduleCommands
from component.proactive.person_zones import PersonZones
from component.proactive.schedule import Schedule
from component.proactive.schedule_node import ScheduleNews, ScheduleNode
from component.proactive.schedule_runner import ScheduleRunner
from component.proactive.schedules import ScheduleError, Schedules, Wish
from component.service.configured_work import schedule_limits, skill_schedule
from component.service.environment import Environment
from component.service.pubsub import PubSubSubsystem
from component.service.starting import WorkSubsystem
from component.service.stream import StreamSubsystem
from component.settings.model import DEFAULT_AGENT
from component.storage import StorageError

_log = structlog.get_logger("component.service")

RETRY_S = 5.0
"""Seconds until schedules that could not be stored are stored again."""


class ScheduleSubsystem:
    """The schedules of a service.

    Args:
        environment: the database, the settings and the skills.
        stream: knows the addresses of agents.
        pubsub: has the node of schedules.
        work: starts what schedules do.
        zones: finds the time zone of a person.

    Attributes:
        schedules: adds, lists and changes them.
        runner: fires them.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        pubsub: PubSubSubsystem,
        work: WorkSubsystem,
        zones: PersonZones,
    ) -> None:
        settings, catalog = environment.settings, environment.catalog
        self._configured = catalog.schedules
        self._stored: Sequence[Wish] = ()
        """The schedules of skills that this instance has stored last."""
        self._changed = anyio.Event()
        """Set when the skills that are offered have changed."""
        self._problems: dict[str, str] = {}
        """Why schedules of skills do not fire, by skill; each is logged once."""
        self._settings, self._registry = settings, catalog.registry
        self._agents = frozenset(name for name in catalog.profiles if name is not None)
        address_of = stream.addresses.address_of
        self._news = news = ScheduleNews(pubsub.service, address_of)
        homes = frozenset(address_of(name) for name in self._agents)
        pubsub.service.add_computed(
            ScheduleNode(environment.storage, address_of, homes.__contains__)
        )
        self.runner = ScheduleRunner(environment.storage, work.starter, news)
        self.schedules = Schedules(
            environment.storage,
            schedule_limits(settings),
            catalog.view,
            self.runner.wake,
            news,
            goals=settings.llm is not None,
            zones=zones.of,
        )

    def commands(self) -> Sequence[AnyCommand]:
        """Return the command about schedules."""
        return ScheduleCommands(
            self.schedules, DEFAULT_AGENT, lambda name: name in self._agents
        ).commands()

    def removed(self, schedules: Sequence[Schedule]) -> None:
        """Notify the owners of schedules that were removed with all that is theirs. Never waits."""
        for schedule in schedules:
            self._news.removed(schedule)

    def _of_skills(self) -> Sequence[Wish]:
        """Return the schedules of the skills that are offered now, those of directories too."""
        found: list[Wish] = []
        problems: dict[str, str] = {}
        for entry in self._settings.skills.schedule:
            if self._registry.get(entry.skill) is None:
                problems[entry.skill] = "its skill is not offered"
                continue
            try:
                found.append(skill_schedule(entry, self._settings, self._registry))
            except ScheduleError as error:  # of a skill of a directory: the service goes on
                problems[entry.skill] = str(error)
        for skill, problem in problems.items():
            if self._problems.get(skill) != problem:
                _log.warning("a schedule does not fire", skill=skill, reason=problem)
        self._problems = problems
        return found

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Fire schedules until cancelled.

        Raises StorageError before it has started: the schedules of the settings cannot be stored.
        """
        await self.schedules.configure(self._configured)
        self._stored = self._of_skills()
        await self.schedules.configure(self._stored, "skill")
        async with anyio.create_task_group() as group:
            if self._settings.skills.schedule:
                group.start_soon(self._follow_skills)
            await self.runner.run(task_status=task_status)

    async def _follow_skills(self) -> None:
        """Start and stop the schedules of skills that are approved, changed or revoked.

        An instance stores them only when they have changed for itself: another one may have read
        an approval before this one does.
        """
        self._registry.listen(self._skills_changed)
        while True:
            self._changed = anyio.Event()
            wishes = self._of_skills()
            if wishes != self._stored:
                try:
                    await self.schedules.configure(wishes, "skill")
                except StorageError as error:
                    _log.warning("cannot store the schedules of skills", reason=str(error))
                    await anyio.sleep(RETRY_S)
                    continue
                self._stored = wishes
            await self._changed.wait()

    def _skills_changed(self) -> None:
        self._changed.set()
