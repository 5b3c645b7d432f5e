"""The node of an agent's announcements: a microblog (XEP-0277), which many clients can show."""

from typing import Final

from component import system
from component.pubsub.config import NodeConfig
from component.pubsub.publishing import new_id
from component.pubsub.service import PubSubService
from xep import atom
from xep.jid import JID

ANNOUNCEMENTS: Final = "urn:xmpp:microblog:0"
"""The name of the node."""
CONFIG: Final = NodeConfig(
    title="Announcements",
    description="What the agent announces to everybody",
    type=atom.NAMESPACE,
    access_model="open",
    max_items=100,
)


class Announcements:
    """The nodes of announcements, one for each agent. Admins own them.

    Args:
        service: the PubSub service.
    """

    def __init__(self, service: PubSubService) -> None:
        self._service = service

    async def create(self, agent: JID, owners: frozenset[JID]) -> None:
        """Create the node of an agent if there is none, and make these its owners, besides those
        that it has. Raises StorageError.
        """
        await self._service.create(agent, ANNOUNCEMENTS, CONFIG, owners=sorted(owners, key=str))

    async def publish(self, agent: JID, text: str) -> str:
        """Publish an announcement of an agent; the id of the item. Raises StanzaError and
        StorageError.
        """
        now = system.now().replace(microsecond=0)
        id_ = new_id()
        entry = atom.Entry(
            title=text,
            id=f"tag:{agent.domain},{now:%Y-%m-%d}:{id_}",  # RFC 4151
            published=now,
            updated=now,
        )
        return await self._service.publish(agent, ANNOUNCEMENTS, id_, entry, publisher=agent)
