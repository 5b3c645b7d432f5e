"""Presence: grants subscriptions, and keeps subscribers informed."""

from collections.abc import Awaitable, Callable

from anyio.lowlevel import checkpoint

from component.features.feature import Feature, Opened
from component.features.presence.handlers import PresenceHandler, RosterPresence
from component.kernel.kernel import Kernel
from component.link.router.table import Host
from component.store.contacts import SubscriptionStore
from xep.binding import Payload
from xep.vcard_avatar import PhotoUpdate


class PresenceFeature(Feature):
    """Shows contacts that the agents are available."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the handler: one that keeps subscriptions, or that of an account with a roster."""
        handler: PresenceHandler | RosterPresence
        missed: Callable[[], Awaitable[None]] = checkpoint
        if self.settings.server.mode == "component":
            handler = self._of_component(kernel)
            missed = handler.probe_contacts
        else:
            handler = _of_account(kernel)

        async def take_leave() -> None:
            if not kernel.stream.has_others():  # the agents stay available there
                await handler.take_leave()

        return Opened(
            handlers=(handler,),
            missed=missed,
            announce=handler.announce,
            closing=take_leave,
        )

    def _of_component(self, kernel: Kernel) -> PresenceHandler:
        profiles = kernel.environment.catalog.profiles

        def payloads(host: Host, agent: str | None) -> tuple[Payload, ...]:
            photo = PhotoUpdate(photo=profiles[agent].avatar.sha1)
            return kernel.disco.caps(host, agent), photo

        return PresenceHandler(
            SubscriptionStore(kernel.storage),
            kernel.stream,
            payloads,
            kernel.contacts,
            kernel.presence_events,
            asks=self.settings.pubsub.ask_presence,
        )


def _of_account(kernel: Kernel) -> RosterPresence:
    account = kernel.stream.addresses.default
    return RosterPresence(
        SubscriptionStore(kernel.storage),
        kernel.stream,
        lambda: kernel.disco.caps("agent", account.local),
        kernel.environment.stopped,
    )


FEATURE = PresenceFeature
