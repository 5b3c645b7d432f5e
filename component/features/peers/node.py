"""The PubSub node of the keys of our agents, which everybody may read."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from component.agent_addresses import canonical_address
from component.features.peers import grant_rows
from component.pubsub.config import NodeConfig
from component.pubsub.rows import StoredItem
from component.pubsub.service import ComputedNode
from component.store.storage import Storage
from xep.binding import encode
from xep.fluux_agent.keys import NAMESPACE, Key
from xep.jid import JID

_MOST: Final = 1000


class KeysNode(ComputedNode):
    """The public keys of an agent, one item each, the newest last. The id of an item is the
    thumbprint of the key (RFC 7638).
    """

    name = NAMESPACE
    config = NodeConfig(
        title="Keys",
        description="The keys with which this agent signs",
        type=NAMESPACE,
        access_model="open",
        max_items=_MOST,
        send_last_published_item="never",
    )
    is_compared = True
    is_public = True

    def __init__(self, storage: Storage, agents: Sequence[JID]) -> None:
        self._storage = storage
        self._agents = frozenset(agents)

    def is_at(self, service: JID) -> bool:
        """Return whether the address has this node."""
        return canonical_address(service) in self._agents

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """Return the keys of the agent. Raises StorageError."""
        agent = str(canonical_address(service))
        found = await self._storage.read(partial(grant_rows.keys, agent=agent))
        return [_item(agent, one) for one in found]


def _item(agent: str, stored: grant_rows.StoredKey) -> StoredItem:
    created, retired = _instant(stored.created), stored.retired
    return StoredItem(
        id=stored.kid,
        payload=encode(
            Key(
                created=created,
                retired=None if retired is None else _instant(retired),
                x=stored.x,
            )
        ),
        publisher=agent,
        published=created,
    )


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds // 1000, UTC)
