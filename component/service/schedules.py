"""Schedules: fires them, and has their commands and the schedules of the settings."""

from collections.abc import Sequence

import anyio
import structlog
from anyio.abc import TaskStatus

from component.commands.definition import AnyCommand
from component.commands.schedules import ScheduleCommands
from component.proactive.schedule import Schedule
from component.proactive.schedule_node import ScheduleNews, ScheduleNode
from component.proactive.schedule_runner import ScheduleRunner
from component.proactive.schedules import ScheduleError, Schedules, Wish
from component.service.configured_work import schedule_limits, skill_schedules
from component.service.environment import Environment
from component.service.pubsub import PubSubSubsystem
from component.service.starting import WorkSubsystem
from component.service.stream import StreamSubsystem
from component.settings.model import DEFAULT_AGENT

_log = structlog.get_logger("component.service")


class ScheduleSubsystem:
    """The schedules of a service.

    Args:
        environment: the database, the settings and the skills.
        stream: knows the addresses of agents.
        pubsub: has the node of schedules.
        work: starts what schedules do.

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
    ) -> None:
        settings, catalog = environment.settings, environment.catalog
        self._configured = catalog.schedules
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
        try:
            found = skill_schedules(self._settings, self._registry)
        except ScheduleError as error:  # of a skill of a directory: it must not end the service
            _log.error("schedules of skills do not fire", reason=str(error))
            return ()
        enabled = {entry.skill for entry in self._settings.skills.schedule}
        for name in sorted(enabled - {wish.name for wish in found}):
            _log.warning("a schedule does not fire: its skill is not offered", skill=name)
        return found

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Fire schedules until cancelled.

        Raises StorageError before it has started: the schedules of the settings cannot be stored.
        """
        await self.schedules.configure(self._configured)
        await self.schedules.configure(self._of_skills(), "skill")
        await self.runner.run(task_status=task_status)
