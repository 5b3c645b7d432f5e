"""Watches: items of PubSub nodes, presence, and occupants of rooms that start work."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from component.commands import AnyCommand
from component.features.feature import Feature, Opened
from component.features.watches import rows
from component.features.watches.commands import watch_commands
from component.features.watches.service import WatchService
from component.features.watches.settings import ENTRIES, LIMITS
from component.features.watches.skills import watch_skills
from component.features.watches.watch import watch_of
from component.features.watches.watcher import Watcher
from component.kernel.kernel import Kernel
from component.skills import Skill
from component.store import Storage


class WatchFeature(Feature):
    """The watches of people and of the settings."""

    reloads: ClassVar = ("watches", "watch")

    _watches: WatchService
    """Made by `open`: skills are called only while the service runs."""

    def skills(self) -> Iterable[Skill]:
        """Return the skills that add, list and change watches, and publish items."""
        return watch_skills(lambda: self._watches)

    def open(self, kernel: Kernel) -> Opened:
        """Make the watcher and what changes watches."""
        limits = self.settings[LIMITS]
        watcher = Watcher(kernel, [watch_of(entry) for entry in self.settings[ENTRIES]])
        service = self._watches = WatchService(
            kernel.storage, watcher, limits.services, limits.per_person
        )
        return Opened(
            commands=watch_commands(service),
            loops=(watcher.run,),
            forget=rows.forget,
            connected=watcher.connected,
            missed=watcher.subscribe_again,
            disconnected=watcher.disconnected,
            task_ended=watcher.task_ended,
            available=watcher.shown,
            granted=watcher.granted,
            disco_features=watcher.features,
            pubsub_listener=watcher,
        )

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the command about watches."""
        return watch_commands(WatchService(storage))


FEATURE = WatchFeature
