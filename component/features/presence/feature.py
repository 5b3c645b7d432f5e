"""Presence: grants subscriptions, and keeps subscribers informed."""

from component.features.feature import Feature, Opened
from component.features.presence.handlers import PresenceHandler
from component.features.presence.roster import RosterPresence
from component.kernel.kernel import Kernel
from component.router.table import Host
from component.storage.contacts import SubscriptionStore
from xep.binding import Payload
from xep.caps import Caps
from xep.roster import RosterQuery
from xep.vcard_avatar import PhotoUpdate


class PresenceFeature(Feature):
    """Shows contacts that the agents are available."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the handler: one that keeps subscriptions, or that of an account with a roster."""
        is_component = self.settings.server.mode == "component"
        handler = self._of_component(kernel) if is_component else _of_account(kernel)
        return Opened(handlers=(handler,), announce=handler.announce, closing=handler.take_leave)

    def _of_component(self, kernel: Kernel) -> PresenceHandler:
        profiles = kernel.environment.catalog.profiles

        def payloads(host: Host, agent: str | None) -> tuple[Payload, ...]:
            photo = PhotoUpdate(photo=profiles[agent].avatar.sha1)
            return kernel.disco.caps(host, agent), photo

        return PresenceHandler(
            SubscriptionStore(kernel.storage),
            kernel.stream.send,
            payloads,
            kernel.environment.stopped,
            stream=lambda: kernel.stream.connected_since,
            online=kernel.presence_events.online,
            asks=self.settings.pubsub.ask_presence,
            granted=kernel.presence_events.granted,
        )


def _of_account(kernel: Kernel) -> RosterPresence:
    stream = kernel.stream
    account = stream.addresses.default

    def capabilities() -> Caps:
        return kernel.disco.caps("agent", account.local)

    async def fetch() -> RosterQuery:
        return await stream.get(account, RosterQuery(), RosterQuery)

    store, stopped = SubscriptionStore(kernel.storage), kernel.environment.stopped
    return RosterPresence(account, store, stream.send, capabilities, stopped, fetch)


FEATURE = PresenceFeature
