"""Announcements: a node of each agent, and the command by which admins publish there."""

import anyio
from anyio.abc import TaskStatus

from component.features.announcements.commands import AnnouncementCommands
from component.features.announcements.node import Announcements
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel


class AnnouncementFeature(Feature):
    """The nodes of announcements, which admins own."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the command, and what creates the nodes."""
        nodes = Announcements(kernel.pubsub)
        agents = self.settings.agent_names
        address_of = kernel.stream.addresses.address_of
        owners = frozenset(admin.bare for admin in kernel.environment.catalog.admins)

        async def announce(agent: str, text: str) -> str:
            return await nodes.publish(address_of(agent), text)

        async def create(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            """Create the nodes. Raises StorageError before it has started."""
            for name in agents:
                await nodes.create(address_of(name), owners)
            task_status.started()

        return Opened(commands=AnnouncementCommands(announce, agents).commands(), loops=(create,))


FEATURE = AnnouncementFeature
