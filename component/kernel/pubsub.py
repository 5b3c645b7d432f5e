"""The PubSub service of our addresses: its nodes, and who is notified of what changes."""

from collections.abc import Sequence

import anyio
import structlog
from anyio.abc import TaskStatus

from component.features.pubsub.handlers import PubSubHandler
from component.features.pubsub.node_discovery import NodeOverview
from component.features.pubsub.pending import PendingOffers
from component.kernel.adhoc import Offers
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.options import page_bytes
from component.kernel.presence_events import PresenceEvents
from component.kernel.stream import Handler, StreamSubsystem
from component.pubsub.interests import Interests
from component.pubsub.notifier import Notifier
from component.pubsub.service import PubSubService
from component.storage.errors import StorageError
from xep.disco import InfoQuery
from xep.jid import JID

_log = structlog.get_logger("component.pubsub")


class PubSubSubsystem:
    """Keeps the nodes of the agents and of the domain, and notifies their subscribers.

    Args:
        environment: the database, the skills, the contact profiles and the admins.
        stream: sends notifications, and asks clients for their capabilities.
        contacts: who may be written to.
        presence: reports which clients of contacts are online.

    Attributes:
        service: the nodes; what other subsystems publish at.
        handler: answers requests, and takes the forms of owners.
        overview: answers discovery of nodes.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        contacts: ContactSubsystem,
        presence: PresenceEvents,
    ) -> None:
        catalog = environment.catalog
        self._stream = stream
        self._profiles = catalog.profiles
        self._retry_after_s = environment.settings.limits.retry_after_s
        self._skills_changed = anyio.Event()
        catalog.registry.listen(self._skills_change)
        self._interests = Interests(self._ask, self._came_online)
        presence.listen(self._interests)
        stream.on_disconnected(self._interests.clear)
        notifier = Notifier(
            environment.storage, stream.messenger, self._interests, contacts.may_write
        )
        admins = frozenset(admin.bare for admin in catalog.admins)
        self.service = PubSubService(
            environment.storage,
            notifier,
            lambda sender: sender in admins,
            (),
            page_bytes(environment.settings),
        )
        self.handler = PubSubHandler(self.service, self._retry_after_s)
        self.overview = NodeOverview(
            self.service, self._retry_after_s, page_bytes(environment.settings)
        )
        self._is_component = environment.settings.server.mode == "component"

    def handlers(self) -> Sequence[Handler]:
        """Return the handler of requests."""
        return (self.handler,)

    def offers(self) -> Sequence[Offers]:
        """The ad-hoc command about subscriptions that wait for approval."""
        # The nodes of an account are those of its server.
        if not self._is_component:
            return ()
        return (PendingOffers(self.service, self._retry_after_s),)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send notifications until cancelled."""
        async with anyio.create_task_group() as group:
            await group.start(self.service.run)
            await group.start(self._interests.run)
            group.start_soon(self._follow_skills)
            task_status.started()

    def _skills_change(self) -> None:
        self._skills_changed.set()

    async def _follow_skills(self) -> None:
        while True:
            await self._skills_changed.wait()
            self._skills_changed = anyio.Event()
            try:
                await self.connected()
            except StorageError as error:
                _log.warning("cannot notify subscribers of changed skills", reason=str(error))

    async def connected(self) -> None:
        """Notify subscribers of what changed with a new release or other settings, such as skills.

        Raises StorageError.
        """
        for profile in self._profiles.values():
            await self.service.refresh(profile.address)

    async def _ask(self, client: JID, from_: JID, query: InfoQuery) -> InfoQuery:
        return await self._stream.get(client, query, InfoQuery, from_)

    async def _came_online(
        self, service: str, full: str, bare: str, interests: frozenset[str]
    ) -> None:
        await self.service.overview.came_online(service, full, bare, interests)
