"""Nodes whose items are computed from other data, for each principal separately."""

from collections.abc import Sequence
from typing import Protocol

from component.pubsub.config import NodeConfig
from component.pubsub.rows import StoredItem
from xep.jid import JID


class ComputedNode(Protocol):
    """A node to which nobody can publish. Every principal that the policy admits may read it, and
    sees its own items.

    Attributes:
        name: the name of the node.
        config: the configuration that others see.
        is_compared: whether changes are found by comparing the items with those that a subscriber
            knows (`component.pubsub.views`); otherwise `PubSubService.recomputed` reports them.
    """

    name: str
    config: NodeConfig
    is_compared: bool

    def is_at(self, service: JID) -> bool:
        """Whether the address has this node."""

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """Return the items that a principal sees, the newest last. Raises StorageError."""
