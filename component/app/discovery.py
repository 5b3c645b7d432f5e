"""Discovery, profiles and presence: what others learn about the agents without talking to them."""

from collections.abc import Callable, Sequence
from importlib.metadata import version

from component.handlers.about import About
from component.handlers.contact_profiles import ContactProfiles
from component.handlers.disco import Discovery, Nodes
from component.handlers.presence import PresenceHandler
from component.handlers.roster import RosterPresence
from component.kernel.environment import Environment
from component.kernel.options import SOFTWARE, facts, names_by_localpart, page_bytes
from component.kernel.pubsub import PubSubSubsystem
from component.kernel.stream import Handler, StreamSubsystem
from component.router.table import Host
from component.storage.subscriptions import SubscriptionStore
from xep.binding import Payload
from xep.caps import Caps
from xep.jid import JID
from xep.roster import RosterQuery
from xep.vcard_avatar import PhotoUpdate


class DiscoverySubsystem:
    """Answers service discovery and requests for profiles, and keeps subscribers informed.

    Args:
        environment: the skills, the contact profiles, and the subscriptions on disk.
        stream: sends presence, and knows the features that are served.
        nodes: the nodes of features.
        online: is called with the bare address of an agent and a contact that has come online.
        pubsub: the nodes of the PubSub service.

    Attributes:
        presence: announces to subscribers that the agents are available or unavailable.
        granted: is called with an agent and a contact that has permitted it to see its presence.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        nodes: Sequence[Nodes],
        pubsub: PubSubSubsystem,
        online: Callable[[JID, JID], None],
    ) -> None:
        self.granted: Callable[[JID, JID], None] = lambda _agent, _contact: None
        self._online = online
        self._environment = environment
        self._stream = stream
        catalog = environment.catalog
        self._discovery = Discovery(
            facts(catalog.settings),
            names_by_localpart(catalog.settings),
            stream.features,
            catalog.view,
            nodes,
            # The nodes of an account are those of its server (XEP-0163).
            pubsub.overview if catalog.settings.server.mode == "component" else None,
            page_bytes(catalog.settings),
        )
        self.presence = self._presence()

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of discovery, profiles, presence, and of what every entity
        answers.
        """
        return (
            About(SOFTWARE, version(SOFTWARE)),
            self._discovery,
            ContactProfiles(self._environment.catalog.profiles),
            self.presence,
        )

    def features_changed(self) -> None:
        """Rebuild what depends on the announced features, because they have changed."""
        self._discovery.features_changed()

    def _presence(self) -> PresenceHandler | RosterPresence:
        stream, stopped = self._stream, self._environment.stopped
        subscriptions = SubscriptionStore(self._environment.storage)
        if self._environment.settings.server.mode == "component":
            return PresenceHandler(
                subscriptions,
                stream.send,
                self._presence_payloads,
                stopped,
                stream=lambda: stream.connected_since,
                online=self._online,
                asks=self._environment.settings.pubsub.ask_presence,
                granted=self._granted,
            )
        account = stream.addresses.default

        def capabilities() -> Caps:
            return self._discovery.caps("agent", account.local)

        async def fetch() -> RosterQuery:
            return await stream.get(account, RosterQuery(), RosterQuery)

        return RosterPresence(account, subscriptions, stream.send, capabilities, stopped, fetch)

    def _granted(self, agent: JID, contact: JID) -> None:
        self.granted(agent, contact)  # looked up at each call, because the root sets it

    def _presence_payloads(self, host: Host, agent: str | None) -> tuple[Payload, ...]:
        photo = PhotoUpdate(photo=self._environment.catalog.profiles[agent].avatar.sha1)
        return self._discovery.caps(host, agent), photo
