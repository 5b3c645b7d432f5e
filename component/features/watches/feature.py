"""Watches: items of PubSub nodes, presence, and occupants of rooms that start work."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from component.commands.definition import AnyCommand
from component.features.feature import Feature, Opened
from component.features.watches import rows
from component.features.watches.commands import WatchCommands
from component.features.watches.consent import Consent
from component.features.watches.declared import of_settings
from component.features.watches.events import Accepted
from component.features.watches.handlers import RoomPresenceHandler
from component.features.watches.patient_storage import PatientStorage
from component.features.watches.room_client import RoomClient
from component.features.watches.service import WatchService
from component.features.watches.settings import LIMITS
from component.features.watches.skills import WatchSkillPorts, watch_skills
from component.features.watches.source_watcher import SourcePorts
from component.features.watches.watch import Source, Watch
from component.features.watches.watcher import Watcher
from component.kernel.kernel import Kernel
from component.pubsub.client import PubSubClient
from component.settings import Settings
from component.skills import Skill
from component.storage import Storage
from component.storage.contacts import SubscriptionStore
from xep.jid import JID
from xep.stanza import Presence

_ROOMS: Final = "rooms"
"""The resource with which agents enter rooms."""


class WatchFeature(Feature):
    """The watches of people and of the settings."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._ports: WatchSkillPorts | None = None

    def _opened(self) -> WatchSkillPorts:
        assert self._ports is not None, "skills are called while the service runs"
        return self._ports

    def skills(self) -> Iterable[Skill]:
        """Return the skills that add, list and change watches, and publish items."""
        return watch_skills(self._opened)

    def open(self, kernel: Kernel) -> Opened:
        """Make the watcher and what changes watches."""
        limits, address_of = self.settings[LIMITS], kernel.stream.addresses.address_of
        client = PubSubClient(kernel.stream.call_optional)
        watcher = self._watcher(kernel, client)
        service = WatchService(kernel.storage, watcher, limits.services, limits.per_person)
        self._ports = WatchSkillPorts(service, client, kernel.storage, address_of)
        kernel.pubsub_events.listen(watcher)
        return Opened(
            handlers=(RoomPresenceHandler(watcher),),
            commands=WatchCommands(service).commands(),
            loops=(watcher.run,),
            forget=rows.forget,
            connected=watcher.connected,
            disconnected=watcher.disconnected,
            leaving=watcher.leave_rooms,
            task_ended=watcher.task_ended,
            available=watcher.shown,
            granted=watcher.granted,
            disco_features=watcher.features,
            is_room=watcher.is_room,
        )

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the command about watches."""
        return WatchCommands(WatchService(storage)).commands()

    def _watcher(self, kernel: Kernel, client: PubSubClient) -> Watcher:
        stream, storage, limits = kernel.stream, kernel.storage, self.settings[LIMITS]
        consent = Consent(
            SubscriptionStore(storage),
            stream.send,
            stream.addresses.is_own,
            kernel.contacts.may_write,
        )
        is_client = self.settings.server.mode == "client"

        def ports(recorded: Callable[[Accepted], None]) -> SourcePorts:
            return SourcePorts(
                client=client,
                storage=PatientStorage(storage),
                recorded=recorded,
                consent=consent,
                max_hops=limits.max_hops,
                check_s=limits.check_s,
            )

        def occupant(address: JID) -> JID:
            # In client mode the server has chosen the resource, and adds it.
            return address if is_client else address.with_resource(_ROOMS)

        def alert(watch: Watch, sentence: str) -> None:
            if watch.owner:
                agent = stream.addresses.address_of(watch.agent)
                kernel.contacts.tell(agent, watch.principal, sentence)
            else:
                kernel.contacts.tell_admins(sentence)

        def send(presence: Presence) -> None:
            stream.send(presence)
            stream.flush()

        def probe(source: Source) -> None:
            send(Presence(type="probe", from_=source.subscriber, to=source.service))

        return Watcher(
            storage,
            of_settings(self.settings),
            ports,
            probe,
            RoomClient(stream.call_optional, send, occupant),
            kernel.work.starter,
            stream.addresses.address_of,
            alert,
            stream.features_changed,
        )


FEATURE = WatchFeature
