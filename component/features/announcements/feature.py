"""Announcements: a microblog of each agent (XEP-0277), which many clients can show, and the command
by which admins publish there.
"""

from typing import ClassVar, Final

import anyio
from anyio.abc import TaskStatus

from component import system
from component.features.announcements.commands import announcement_commands
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel
from component.pubsub.config import NodeConfig
from component.pubsub.items import new_id
from xep import atom

ANNOUNCEMENTS: Final = "urn:xmpp:microblog:0"
"""The name of the node."""
CONFIG: Final = NodeConfig(
    title="Announcements",
    description="What the agent announces to everybody",
    type=atom.NAMESPACE,
    access_model="open",
    max_items=100,
)


class AnnouncementFeature(Feature):
    """The nodes of announcements, one for each agent, which admins own."""

    reloads: ClassVar = ("agent.admins",)

    def open(self, kernel: Kernel) -> Opened:
        """Make the command, and what creates the nodes."""
        address_of, pubsub = kernel.stream.addresses.address_of, kernel.pubsub
        agents = self.settings.agent_names
        owners = sorted({admin.bare for admin in kernel.environment.catalog.admins}, key=str)

        async def announce(agent: str, text: str) -> str:
            address, id_ = address_of(agent), new_id()
            now = system.now().replace(microsecond=0)
            entry = atom.Entry(
                title=text,
                id=f"tag:{address.domain},{now:%Y-%m-%d}:{id_}",  # RFC 4151
                published=now,
                updated=now,
            )
            await pubsub.publish(address, ANNOUNCEMENTS, id_, entry)
            return id_

        async def create(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            """Create the nodes, and make the admins the owners of all. Raises StorageError before
            it has started.
            """
            for name in agents:
                address = address_of(name)
                await pubsub.ensure(address, ANNOUNCEMENTS, CONFIG, reconfigures=False)
                await pubsub.set_owners(address, ANNOUNCEMENTS, owners)
            task_status.started()

        return Opened(commands=announcement_commands(announce, agents), loops=(create,))


FEATURE = AnnouncementFeature
