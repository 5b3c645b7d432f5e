"""Notifications: the results of work that agents started by themselves, as messages to people."""

from collections.abc import Sequence

from component.commands import AnyCommand
from component.features.feature import Feature, Opened
from component.features.notifications.commands import NotificationCommands
from component.features.notifications.notifier import Notifier, Results
from component.kernel.contacts import PersonZones
from component.kernel.kernel import Kernel
from component.store import Storage
from component.store.notifications import NotificationStore, forget


class NotificationFeature(Feature):
    """Records notifications, and sends them when people want them."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the notifier, and let it learn of results and of the activity of people."""
        notifier = Notifier(kernel)
        kernel.on_notification.append(notifier.wake)
        results = Results(kernel, notifier)
        kernel.starter.on_recorded.append(results.wake)
        kernel.presence_events.listeners.append(notifier)
        kernel.presence_events.on_online.append(notifier.online)
        kernel.contacts.time_zones.on_learned.append(notifier.zone_learned)
        kernel.stream.messenger.listen(notifier.message_received)
        return Opened(
            commands=NotificationCommands(
                notifier.store,
                self.settings.notifications,
                kernel.zones,
                notifier.wake,
                notifier.changed,
            ).commands(),
            loops=(results.run, notifier.run),
            connected=notifier.connected,
            task_ended=lambda _task: results.wake(),
            forget=forget,
        )

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the commands about notifications."""
        store = NotificationStore(storage)
        zones = PersonZones(store, self.settings.agent.zone)
        return NotificationCommands(store, self.settings.notifications, zones).commands()


FEATURE = NotificationFeature
