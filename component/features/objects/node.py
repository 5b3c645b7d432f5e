"""The PubSub nodes of objects: one for each owner and type, with an item for each object.

The owner of a node is a person, a room or a scope. A person reads her own nodes, those of scopes
that she is a member of, and those of a room while she is in it and the room shows her account.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from component.agent_addresses import both_addresses
from component.features.objects.places import Places, node_part
from component.features.objects.rows import Space
from component.features.objects.settings import TYPE_PATTERN
from component.features.objects.snapshots import ObjectReader
from component.features.objects.stored import StoredObject, instant, sheet_of
from component.link.router.addresses import Addresses
from component.memory_directory.layout import SessionKey
from component.pubsub.config import MOST_ITEMS, MOST_PAYLOAD_BYTES, NodeConfig
from component.pubsub.rows import StoredItem, subscribers
from component.pubsub.service import ComputedNode, NodeFamily, PubSubService
from component.store.database import Database
from xep.binding import encode
from xep.characters import json_without_forbidden
from xep.fluux_agent import NAMESPACE as AGENT
from xep.jid import JID
from xep.json_containers import NAMESPACE as JSON
from xep.json_containers import Json

PREFIX: Final = f"{AGENT}#object/"
"""Begins the names of the nodes: the owner, a slash and the type follow."""
_CONFIG: Final = NodeConfig(
    title="Objects",
    description="The objects of one type",
    type=JSON,
    access_model="whitelist",
    max_items=MOST_ITEMS,
    max_payload_bytes=MOST_PAYLOAD_BYTES,
    send_last_published_item="never",
)


class ObjectNode(ComputedNode):
    """The objects of an owner and a type, the one that was changed last at the end. The id of an
    item is that of the object; its payload is a JSON object (XEP-0335) with the members of
    `ObjectSheet`.
    """

    config = _CONFIG

    def __init__(self, name: str, reader: ObjectReader, space: Space, type_: str) -> None:
        self.name = name
        self._reader = reader
        self._space = space
        self._type = type_

    async def items(self, service: JID, _principal: JID) -> Sequence[StoredItem]:
        """Return all objects. Raises StorageError."""
        return [_item(service, each) for each in (await self._objects()).values()]

    async def digests(self, _service: JID, _principal: JID) -> Mapping[str, str]:
        """Return the versions of all objects. Raises StorageError."""
        return {id_: str(each.version) for id_, each in (await self._objects()).items()}

    async def chosen(
        self, service: JID, _principal: JID, ids: Collection[str]
    ) -> Sequence[StoredItem]:
        """Return the objects with these ids. Raises StorageError."""
        found = await self._objects()
        return [_item(service, each) for id_, each in found.items() if id_ in ids]

    async def _objects(self) -> Mapping[str, StoredObject]:
        snapshots = await self._reader.read(self._space, self._type)
        return snapshots[0].objects if snapshots else {}


class ObjectNodes(NodeFamily):
    """All nodes of objects.

    Args:
        agents: the names of the agents.

    Attributes:
        reader: as given.
        places: as given.
    """

    prefix = PREFIX
    config = _CONFIG

    def __init__(
        self,
        pubsub: PubSubService,
        reader: ObjectReader,
        places: Places,
        agents: Collection[str],
        addresses: Addresses,
    ) -> None:
        self._pubsub = pubsub
        self.reader = reader
        self.places = places
        self._agents = agents
        self._addresses = addresses

    def find(self, service: JID, name: str, principal: JID) -> ComputedNode | None:
        """Return the node with a name, if the principal may read it: there is one for each type,
        before the first object is stored.
        """
        agent = self._addresses.agent_at(service)
        part, _, type_ = name.removeprefix(PREFIX).rpartition("/")
        if agent not in self._agents or not re.fullmatch(TYPE_PATTERN, type_):
            return None
        # The agent itself reads it for a watch, which is checked for the person.
        reader = None if principal in both_addresses(service) else principal
        space = self.places.of_node(agent, part, reader)
        return None if space is None else ObjectNode(name, self.reader, space, type_)

    async def names(self, service: JID, principal: JID) -> Sequence[str]:
        """Return the nodes of types of which there are objects: the principal's own, and those of
        its scopes. Raises StorageError.
        """
        agent = self._addresses.agent_at(service)
        if agent not in self._agents:
            return ()
        found: list[str] = []
        for space in self.places.spaces(SessionKey(agent, principal)):
            types = await self.reader.types(space)
            found += [node_of(space, each.name) for each in types if each.number]
        return found

    # Changes of objects; only `audience` runs within a transaction, and no method waits.

    def audience(self, database: Database, space: Space, type_: str) -> Sequence[str]:
        """Return the principals that are subscribed to the node of a type."""
        if node_part(space) is None:
            return ()
        addresses = [str(each) for each in self._both(space)]
        return subscribers(database, addresses, node_of(space, type_))

    def stored(self, space: Space, made: StoredObject, audience: Collection[str]) -> None:
        """An object was stored."""
        for who in self._readers(space, made.type, audience):
            node, payload = node_of(space, made.type), _payload(made)
            self._pubsub.recomputed(self._both(space), node, who, made.id, payload)

    def deleted(self, space: Space, type_: str, id_: str, audience: Collection[str]) -> None:
        """An object was deleted."""
        for who in self._readers(space, type_, audience):
            self._pubsub.recomputed(self._both(space), node_of(space, type_), who, id_, None)

    def emptied(self, space: Space, type_: str, audience: Collection[str]) -> None:
        """All objects of a type were deleted."""
        for who in self._readers(space, type_, audience):
            self._pubsub.emptied(self._both(space), node_of(space, type_), who)

    def _readers(self, space: Space, type_: str, audience: Collection[str]) -> Iterator[JID]:
        """Yield those who are notified and may still read the node."""
        if node_part(space) is None:
            return
        node, addresses = node_of(space, type_), self._both(space)
        for each in sorted({*audience, *self._pubsub.interested(addresses, node)}):
            who = JID.parse(each)
            if self.find(addresses[0], node, who) is not None:
                yield who

    def _both(self, space: Space) -> tuple[JID, JID]:
        return both_addresses(self._addresses.address_of(space.agent))


def node_of(space: Space, type_: str) -> str:
    """Return the name of the node of a type."""
    return f"{PREFIX}{node_part(space)}/{type_}"


def _item(service: JID, one: StoredObject) -> StoredItem:
    return StoredItem(
        id=one.id,
        payload=_payload(one),
        publisher=str(service),
        published=instant(one.content.updated),
    )


def _payload(one: StoredObject) -> str:
    text = json_without_forbidden(msgspec.json.encode(sheet_of(one)).decode())
    return encode(Json(value=msgspec.Raw(text.encode())))
