"""Notifications: the results of work that agents started by themselves, as messages to people."""

from collections.abc import Sequence

from component.commands import AnyCommand
from component.features.feature import Feature, Opened
from component.features.notifications.commands import NotificationCommands
from component.features.notifications.notifier import Notifier
from component.features.notifications.plan import Rules, rules_of
from component.kernel.kernel import Kernel
from component.storage import Storage
from component.storage.notifications import NotificationStore
from xep.jid import JID
from xep.stanza import Presence


class NotificationFeature(Feature):
    """Records notifications, and sends them when people want them."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the notifier, and let it learn of results and of the activity of people."""
        stream = kernel.stream

        def probe(agent: JID, person: JID) -> None:
            # RFC 6121 §4.3: the person's server answers if they show their presence to the agent.
            stream.send(Presence(type="probe", from_=agent, to=person))
            stream.flush()

        notifier = Notifier(
            kernel.storage,
            stream.messenger,
            stream.is_connected,
            kernel.contacts.may_write,
            stream.addresses.address_of,
            self._rules(),
            self.settings.notifications.held_per_person,
            kernel.environment.home,
            probe,
        )
        notifier.told = kernel.work.told
        kernel.work.results.listen(notifier)
        kernel.presence_events.listen(notifier)
        kernel.presence_events.on_online(notifier.online)
        kernel.contacts.time_zones.learned = notifier.zone_learned
        stream.messenger.listen(notifier.message_received)
        return Opened(
            commands=NotificationCommands(notifier.store, self._rules(), notifier.wake).commands(),
            loops=(notifier.run,),
            connected=notifier.connected,
        )

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the commands about notifications."""
        return NotificationCommands(NotificationStore(storage), self._rules()).commands()

    def _rules(self) -> Rules:
        return rules_of(self.settings.notifications, self.settings.agent.zone)


FEATURE = NotificationFeature
