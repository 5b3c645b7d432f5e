"""Watches: the events that are observed on XMPP, the work that they start, and the commands."""

import secrets
from collections.abc import Callable, Sequence
from typing import Final

import anyio
from anyio.abc import TaskStatus

from component.app.configured_work import configured_watches
from component.commands.definition import AnyCommand
from component.commands.watches import WatchCommands
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.stream import Handler, StreamSubsystem
from component.kernel.work import WorkSubsystem
from component.messages.inbound import ReplyAddress
from component.messages.outbound import OutboundMessage, Text, conversation_with
from component.proactive.consent import Consent
from component.proactive.event_handler import EventHandler, Listener
from component.proactive.patient_storage import PatientStorage
from component.proactive.pubsub_client import PubSubClient
from component.proactive.room_client import RoomClient
from component.proactive.source_watcher import SourcePorts
from component.proactive.watch import Source, Watch
from component.proactive.watch_desk import WatchDesk
from component.proactive.watch_events import Accepted
from component.proactive.watch_skills import WatchSkillPorts
from component.proactive.watcher import Watcher
from component.storage.subscriptions import SubscriptionStore
from xep.jid import JID
from xep.stanza import Presence

_ID_BYTES: Final = 16
_ROOMS: Final = "rooms"
"""The resource with which agents enter rooms."""


class WatchSubsystem:
    """The watches of a service.

    Args:
        environment: the database and the settings.
        stream: makes requests to services.
        contacts: who may be written to.
        work: starts the work of watches.
        listeners: receive notifications, too.

    Attributes:
        client: makes requests to PubSub services.
        watcher: observes the sources.
        desk: the watches as people and operators see them.
        skill_ports: the dependencies of the skills about watches.
        features_changed: called when the features that `watcher` announces have changed.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        contacts: ContactSubsystem,
        work: WorkSubsystem,
        *listeners: Listener,
    ) -> None:
        settings, addresses = environment.settings, stream.addresses
        self._stream = stream
        self._contacts = contacts
        self.client = PubSubClient(stream.call_optional)
        self.features_changed: Callable[[], None] = lambda: None
        consent = Consent(
            SubscriptionStore(environment.storage),
            stream.send,
            addresses.is_own,
            contacts.may_write,
        )

        def ports(recorded: Callable[[Accepted], None]) -> SourcePorts:
            return SourcePorts(
                client=self.client,
                storage=PatientStorage(environment.storage),
                recorded=recorded,
                consent=consent,
                max_hops=settings.watches.max_hops,
                check_s=settings.watches.check_s,
            )

        is_client = settings.server.mode == "client"

        def occupant(address: JID) -> JID:
            # In client mode the server has chosen the resource, and adds it.
            return address if is_client else address.with_resource(_ROOMS)

        self.watcher = Watcher(
            environment.storage,
            configured_watches(settings),
            ports,
            self._probe,
            RoomClient(stream.call_optional, self._send, occupant),
            work.starter,
            addresses.address_of,
            self._alert,
            self._features_changed,
        )
        self.desk = WatchDesk(
            environment.storage,
            self.watcher,
            settings.watches.services,
            settings.watches.per_person,
        )
        self.skill_ports = WatchSkillPorts(
            self.desk, self.client, environment.storage, addresses.address_of
        )
        self._handler = EventHandler(self.watcher, self.watcher, *listeners)

    def handlers(self) -> Sequence[Handler]:
        """Return the handler of notifications."""
        return (self._handler,)

    def commands(self) -> Sequence[AnyCommand]:
        """Return the command about watches."""
        return WatchCommands(self.desk).commands()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Observe until cancelled. Raises StorageError before it has started."""
        await self.watcher.run(task_status=task_status)

    def _features_changed(self) -> None:
        self.features_changed()  # looked up at each call, because the root sets it

    def _send(self, presence: Presence) -> None:
        self._stream.send(presence)
        self._stream.flush()

    def _probe(self, source: Source) -> None:
        self._send(Presence(type="probe", from_=source.subscriber, to=source.service))

    def _alert(self, watch: Watch, sentence: str) -> None:
        if not watch.owner:
            self._contacts.tell_admins(sentence)
            return
        agent, person = self._stream.addresses.address_of(watch.agent), watch.principal
        if self._contacts.may_write(agent, person):
            self._stream.messenger.send(
                OutboundMessage(
                    id=secrets.token_hex(_ID_BYTES),
                    conversation=conversation_with(agent, person),
                    to=ReplyAddress(str(person), agent),
                    parts=(Text(sentence),),
                    must_arrive=True,
                )
            )
