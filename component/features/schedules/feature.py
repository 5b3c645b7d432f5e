"""Schedules: work that starts at certain times."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

from anyio.lowlevel import checkpoint

from component.commands import AnyCommand
from component.features.feature import Feature, FeatureError, Opened
from component.features.schedules import rows
from component.features.schedules.commands import ScheduleCommands
from component.features.schedules.node import ScheduleNode
from component.features.schedules.runner import ScheduleRunner
from component.features.schedules.schedules import (
    DeclaredSchedules,
    ScheduleError,
    Schedules,
    of_settings,
    of_skills,
)
from component.features.schedules.settings import ENTRIES, LIMITS
from component.features.schedules.skills import schedule_skills
from component.kernel.check import Check
from component.kernel.contacts import PersonZones
from component.kernel.kernel import Kernel
from component.skills import Registry, Skill
from component.store import Storage
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.notifications import NotificationStore


class ScheduleFeature(Feature):
    """The schedules of people, of the settings, and of skills that bring one."""

    reloads: ClassVar = ("schedules", "schedule", "skills.schedule", "agent.zone")

    _schedules: Schedules
    """Made by `open`: skills are called only while the service runs."""

    def skills(self) -> Iterable[Skill]:
        """Return the skills that add, list and change schedules."""
        return schedule_skills(lambda: self._schedules)

    def prepare(self, registry: Registry) -> None:
        """Check the schedules of the settings. Raises FeatureError: one of them cannot be used."""
        try:
            of_settings(self.settings)
            of_skills(self.settings, registry)
        except ScheduleError as error:
            raise FeatureError(str(error)) from None

    def open(self, kernel: Kernel) -> Opened:
        """Make the schedules, and what fires them."""
        node = ScheduleNode(kernel)
        runner = ScheduleRunner(kernel.storage, kernel.starter, node)
        self._schedules = Schedules(
            kernel.storage,
            self.settings[LIMITS],
            kernel.environment.catalog.view,
            runner,
            goals=self.settings.llm is not None,
            zones=kernel.zones,
        )
        registry = kernel.environment.catalog.registry

        def forget(database: Database, who: Forgotten) -> Callable[[], None]:
            removed = rows.forget(database, who.person, who.agent)
            return partial(node.removed, *removed)

        return Opened(
            nodes=(node,),
            commands=self._commands(self._schedules, kernel.zones),
            loops=(DeclaredSchedules(self._schedules, self.settings, registry).run, runner.run),
            forget=forget,
        )

    async def checks(self, registry: Registry) -> Sequence[Check]:
        """Check the schedules of the settings, if there are any."""
        await checkpoint()
        try:
            self.prepare(registry)
        except FeatureError as error:
            return (Check("schedules", "failed", str(error)),)
        count = len(self.settings[ENTRIES])
        if not count:
            return ()
        text = f"{count} {'is' if count == 1 else 'are'} in the settings"
        return (Check("schedules", "ok", text),)

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the command about schedules."""
        zones = PersonZones(NotificationStore(storage), self.settings.agent.zone)
        goals = self.settings.llm is not None
        schedules = Schedules(storage, self.settings[LIMITS], goals=goals, zones=zones)
        return self._commands(schedules, zones)

    def _commands(self, schedules: Schedules, zones: PersonZones) -> Sequence[AnyCommand]:
        is_agent = self.settings.agent_names.__contains__
        return ScheduleCommands(schedules, zones, is_agent).commands()


FEATURE = ScheduleFeature
