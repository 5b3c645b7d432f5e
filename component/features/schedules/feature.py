"""Schedules: work that starts at certain times."""

from collections.abc import Callable, Iterable, Sequence

from anyio.lowlevel import checkpoint

from component import system
from component.commands.definition import AnyCommand
from component.features.feature import Feature, FeatureError, Opened
from component.features.schedules import rows
from component.features.schedules.commands import ScheduleCommands
from component.features.schedules.declared import DeclaredSchedules, of_settings, of_skills
from component.features.schedules.node import ScheduleNews, ScheduleNode
from component.features.schedules.runner import ScheduleRunner
from component.features.schedules.schedules import ScheduleError, Schedules
from component.features.schedules.settings import LIMITS
from component.features.schedules.skills import schedule_skills
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.proactive.person_zones import PersonZones
from component.settings import Settings
from component.settings.model import DEFAULT_AGENT
from component.skills import Registry, Skill
from component.storage import Storage
from component.storage.database import Database
from component.storage.forgetting import Forgotten
from component.storage.notifications import NotificationStore
from xep.jid import JID


class ScheduleFeature(Feature):
    """The schedules of people, of the settings, and of skills that bring one."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._schedules: Schedules | None = None

    def _opened(self) -> Schedules:
        assert self._schedules is not None, "skills are called while the service runs"
        return self._schedules

    def skills(self) -> Iterable[Skill]:
        """Return the skills that add, list and change schedules."""
        return schedule_skills(self._opened)

    def prepare(self, registry: Registry) -> None:
        """Check the schedules of the settings. Raises FeatureError: one of them cannot be used."""
        try:
            of_settings(self.settings)
            of_skills(self.settings, registry)
        except ScheduleError as error:
            raise FeatureError(str(error)) from None

    def open(self, kernel: Kernel) -> Opened:
        """Make the schedules, and what fires them."""
        address_of = kernel.stream.addresses.address_of
        agents = self.settings.agent_names
        homes = frozenset(address_of(name) for name in agents)
        news = ScheduleNews(kernel.pubsub.service, address_of)
        runner = ScheduleRunner(kernel.storage, kernel.work.starter, news)
        self._schedules = Schedules(
            kernel.storage,
            self.settings[LIMITS],
            kernel.environment.catalog.view,
            runner.wake,
            news,
            goals=self.settings.llm is not None,
            zones=kernel.zones,
        )
        registry = kernel.environment.catalog.registry

        def forget(database: Database, who: Forgotten) -> Callable[[], None]:
            removed = rows.forget(database, who.person, who.agent)
            return lambda: news.forgotten(removed)

        return Opened(
            nodes=(ScheduleNode(kernel.storage, address_of, homes.__contains__),),
            commands=self._commands(self._schedules),
            loops=(DeclaredSchedules(self._schedules, self.settings, registry).run, runner.run),
            forget=forget,
        )

    async def checks(self, registry: Registry) -> Sequence[Check]:
        """Check the schedules of the settings, if there are any."""
        await checkpoint()
        try:
            count = len(of_settings(self.settings))
            of_skills(self.settings, registry)
        except ScheduleError as error:
            return (Check("schedules", "failed", str(error)),)
        if not count:
            return ()
        text = f"{count} {'is' if count == 1 else 'are'} in the settings"
        return (Check("schedules", "ok", text),)

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the command about schedules."""
        zones = PersonZones(
            NotificationStore(storage).preferences,
            lambda _person: None,  # only the running service asks clients
            _ask_nobody,
            self.settings.agent.zone,
            system.now,
        )
        goals = self.settings.llm is not None
        return self._commands(Schedules(storage, self.settings[LIMITS], goals=goals, zones=zones))

    def _commands(self, schedules: Schedules) -> Sequence[AnyCommand]:
        is_agent = self.settings.agent_names.__contains__
        return ScheduleCommands(schedules, DEFAULT_AGENT, is_agent).commands()


async def _ask_nobody(_client: JID, _at: JID) -> None:
    pass


FEATURE = ScheduleFeature
