"""The nodes at the addresses of agents: `urn:fluux:agent:0#memory/` and the person's bare address.

They are at our own PubSub service. The person owns the node, and nobody else can read it.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from component.config.memory import Memory
from component.features.memory_nodes.items import NodeItem
from component.features.memory_nodes.store import NodeItemChangedError
from component.link.router.addresses import Addresses
from component.memory.store import Generation, KnowledgeError, Past, Watcher
from component.memory_directory.layout import SessionKey
from component.pubsub.changes import NodeChange
from component.pubsub.config import NodeConfig
from component.pubsub.service import PubSubService, Stored, StoredChangedError
from component.store.errors import StorageError
from component.store.outages import log_failure
from xep.binding import RawXML
from xep.fluux_agent.memory import NAMESPACE
from xep.jid import JID, JIDError
from xep.stanza_error import StanzaError

PREFIX: Final = f"{NAMESPACE}/"
_LEAST_PAYLOAD_BYTES: Final = 131_072
_ENVELOPE_BYTES: Final = 8_192

_log = structlog.get_logger("component.memory")


class AgentNodes:
    """Implements `store.MemoryNodes`, and provides the nodes to people who have none yet
    (`PubSubService.add_provider`).
    """

    def __init__(
        self,
        service: PubSubService,
        addresses: Addresses,
        agents: Sequence[str],
        settings: Memory,
    ) -> None:
        self._service = service
        self._addresses = addresses
        self._agents = frozenset(agents)
        self._watchers: list[Watcher] = []
        self._made: set[SessionKey] = set()
        self._config = NodeConfig(
            title="Memory",
            description="What the agent remembers about you",
            type=NAMESPACE,
            access_model="whitelist",
            max_items=settings.items_per_principal,
            max_bytes=settings.bytes_per_principal,
            refuses_when_full=True,
            max_payload_bytes=max(_LEAST_PAYLOAD_BYTES, 2 * settings.item_bytes + _ENVELOPE_BYTES),
            send_last_published_item="never",
            notes_retractions=True,
        )
        for agent in agents:
            address = addresses.address_of(agent)
            service.observe(address, PREFIX, self._changed)
            service.listen(address, PREFIX, self._restore)
        service.add_provider(self.provide)

    def is_reachable(self, whose: SessionKey) -> bool:
        """Whether there is such an agent: its nodes are in our own database."""
        return whose.agent in self._agents

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` immediately when items were changed."""
        self._watchers.append(watcher)

    async def items(self, whose: SessionKey, ids: Sequence[str] = ()) -> Sequence[NodeItem]:
        """Return the items of the node."""
        found = await self._service.items(*self._node(whose), ids=ids)
        return [NodeItem(each.id, each.payload) for each in found]

    async def past(self, whose: SessionKey) -> Past:
        """Return what the database knows about earlier changes of the node."""
        created, changes, retractions = await self._service.past(*self._node(whose))
        identity = str(created) if created else ""
        retracted = {id_: at / 1000 for id_, at in retractions.items()}
        return Past(Generation(identity, changes), retracted)

    async def settled(self, whose: SessionKey, past: Past) -> None:
        """Discard what `past` says about deleted items."""
        await self._service.forget_retractions(*self._node(whose), sorted(past.retracted))

    async def publish(
        self, whose: SessionKey, id_: str, payload: RawXML, replaces: NodeItem | None
    ) -> None:
        """Publish an item, unless it was changed since it was read."""
        await self._make(whose)
        only_if = Stored(None if replaces is None else replaces.payload)
        try:
            await self._service.publish(*self._node(whose), id_, payload, only_if=only_if)
        except StoredChangedError:
            raise NodeItemChangedError from None
        except StanzaError as error:
            raise KnowledgeError(f"The node does not accept {id_}: {error.text}") from error

    async def retract(self, whose: SessionKey, items: Sequence[NodeItem]) -> None:
        """Delete items, unless they were changed since they were read."""
        for item in items:
            only_if = Stored(item.payload)
            try:
                await self._service.retract(*self._node(whose), (item.id,), only_if=only_if)
            except StoredChangedError:
                raise NodeItemChangedError from None
            except StanzaError as error:
                _log.info("an item was gone before it was retracted", reason=str(error))

    async def provide(self, address: JID, node: str, requester: JID) -> JID | None:
        """Create the memory node of the requester if needed, and return the agent's address.

        Requests for the default agent may be sent to the domain. Nodes of others are not created,
        so that missing nodes and nodes of others look alike.
        """
        if not node.startswith(PREFIX):
            return None
        agent = self._addresses.agent_at(address)
        if agent not in self._agents:
            return None
        if node == node_of(requester):
            await self._make(SessionKey(agent, requester.bare))
        return self._addresses.address_of(agent)

    def _node(self, whose: SessionKey) -> tuple[JID, str]:
        return self._addresses.address_of(whose.agent), node_of(whose.who)

    async def _make(self, whose: SessionKey) -> None:
        if whose not in self._made:
            await self._service.ensure(*self._node(whose), self._config, owners=(whose.who,))
            self._made.add(whose)

    def _changed(self, change: NodeChange) -> None:
        whose = self._whose(change)
        if whose is None:
            return
        if change.kind == "deleted":
            self._made.discard(whose)
        if change.publisher == change.service or change.kind == "configured":
            return
        keys = None
        if change.kind == "published":
            keys = [each.id for each in change.items]
        elif change.kind == "retracted":
            keys = list(change.ids)
        for watcher in self._watchers:
            watcher(whose, keys)

    async def _restore(self, change: NodeChange) -> None:
        """Undo a configuration by which others could read the node (MEM-003)."""
        whose = self._whose(change)
        if whose is None or change.kind != "configured" or change.config == self._config:
            return
        self._made.discard(whose)
        try:
            await self._make(whose)
        except StorageError as error:
            log_failure(_log, "the configuration of a node stays changed", error)

    def _whose(self, change: NodeChange) -> SessionKey | None:
        try:
            who = JID.parse(change.node.removeprefix(PREFIX))
        except JIDError:
            return None
        return SessionKey(self._addresses.agent_at(JID.parse(change.service)), who)


def node_of(who: JID) -> str:
    """Return the name of the node with the memories of a person."""
    return f"{PREFIX}{who.bare}"
