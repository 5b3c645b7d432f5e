"""Notifications: the results of work that agents started by themselves, as messages to people."""

from datetime import UTC, datetime

from component.commands.definition import AnyCommand
from component.commands.notifications import NotificationCommands
from component.proactive.notification_plan import rules_of
from component.proactive.notifications import Notifier
from component.proactive.person_zones import PersonZones
from component.service.contacts import ContactSubsystem
from component.service.environment import Environment
from component.service.stream import StreamSubsystem
from xep.jid import JID
from xep.stanza import Presence


class NotificationSubsystem:
    """Records notifications and sends them when people want them.

    Args:
        environment: the settings and the database.
        stream: sends messages, and passes on receipts.
        contacts: who may be written to, and the time zones of people.

    Attributes:
        notifier: notifies people of the results of work.
        zones: finds the time zone of a person.
    """

    def __init__(
        self, environment: Environment, stream: StreamSubsystem, contacts: ContactSubsystem
    ) -> None:
        settings = environment.settings.notifications
        self._settings = settings
        self._stream = stream
        self.notifier = Notifier(
            environment.storage,
            stream.messenger,
            stream.is_connected,
            contacts.may_write,
            stream.addresses.address_of,
            rules_of(settings),
            settings.held_per_person,
            environment.home,
            self._probe,
        )
        self.zones = PersonZones(
            self.notifier.store.preferences,
            contacts.time_zones.of,
            contacts.ask_time,
            environment.settings.schedules.zone,
            lambda: datetime.now(UTC),
        )
        stream.messenger.listen(self.notifier.message_received)
        contacts.time_zones.learned = self.notifier.zone_learned

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return the commands about notifications."""
        return NotificationCommands(
            self.notifier.store, self._settings, self.notifier.wake
        ).commands()

    def _probe(self, agent: JID, person: JID) -> None:
        """Ask for the presence of a person (RFC 6121 §4.3). Their server answers if they show it to
        the agent.
        """
        self._stream.send(Presence(type="probe", from_=agent, to=person))
        self._stream.flush()
