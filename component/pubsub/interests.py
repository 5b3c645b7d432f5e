"""Who is online and wants notifications by its capabilities (XEP-0163 §3, XEP-0115 §6).

A contact announces the nodes it is interested in as features that end in ``+notify``. The features
of one version of capabilities are asked for once.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import msgspec
import structlog
from cachebox import LRUCache

from component.pubsub.turns import Turns
from xep.caps import Caps, verification_string
from xep.disco import InfoQuery
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.pubsub")

_SUFFIX: Final = "+notify"
_MOST_RESOURCES: Final = 50_000
_MOST_VERSIONS: Final = 2_000
_WORKERS: Final = 4

Ask = Callable[[JID, JID, InfoQuery], Awaitable[InfoQuery]]
"""Sends a disco#info query from one of our addresses to a full address. Raises StanzaError."""
Online = Callable[[str, str, str, frozenset[str]], Awaitable[None]]
"""Is called when the interests of an online client are known: with the service, its full address,
its bare address and the nodes that are new.
"""


class _Resource(msgspec.Struct, frozen=True):
    service: str
    full: str
    bare: str


class NodeInterests:
    """Stores which clients are online, and the nodes that each wants notifications of."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._nodes: dict[_Resource, frozenset[str]] = {}  # the oldest first
        self._resources: dict[tuple[str, str], dict[str, tuple[str, float]]] = {}
        self._versions: LRUCache[str, frozenset[str]] = LRUCache(_MOST_VERSIONS)
        self._current: LRUCache[_Resource, Caps | None] = LRUCache(_MOST_RESOURCES)
        self._turns: Turns[tuple[_Resource, Caps | None]] = Turns("capabilities")

    def available(self, service: JID, client: JID, caps: Caps | None) -> None:
        """Note that a client is online, with these capabilities. Never waits."""
        resource = _resource(service, client)
        if resource in self._current and self._current[resource] == caps:
            return  # another status, or the same presence again
        self._current[resource] = caps
        self._turns.put(resource.bare, (resource, caps))

    def unavailable(self, service: JID, client: JID) -> None:
        """Note that a client is offline."""
        resource = _resource(service, client)
        self._current.pop(resource, None)
        self._forget(resource)

    def clear(self) -> None:
        """Forget all clients, because the stream that reported their presence is lost."""
        self._current.clear()
        self._nodes.clear()
        self._resources.clear()

    def resources(self, service: str, node: str, before: float) -> Sequence[tuple[str, str]]:
        """Return the full and bare addresses that want notifications and were online before."""
        wanting = self._resources.get((service, node), {})
        return [(full, bare) for full, (bare, since) in wanting.items() if since <= before]

    def _remember(self, resource: _Resource, nodes: frozenset[str]) -> frozenset[str]:
        before = self._forget(resource)
        if nodes:
            self._nodes[resource] = nodes
            for node in nodes:
                wanting = self._resources.setdefault((resource.service, node), {})
                wanting[resource.full] = resource.bare, anyio.current_time()
        if len(self._nodes) > _MOST_RESOURCES:
            self._forget(next(iter(self._nodes)))
        return nodes - before

    def _forget(self, resource: _Resource) -> frozenset[str]:
        nodes = self._nodes.pop(resource, frozenset[str]())
        for node in nodes:
            wanting = self._resources[resource.service, node]
            del wanting[resource.full]
            if not wanting:
                del self._resources[resource.service, node]
        return nodes

    async def run(self, online: Online) -> None:
        """Query the interests of clients that come online, until cancelled."""
        async with anyio.create_task_group() as group:
            for _ in range(_WORKERS):
                group.start_soon(self._work, online)

    async def _work(self, online: Online) -> None:
        while True:
            # A principal has one turn at a time, so clients of one that do not answer leave the
            # other workers to others.
            turn = await self._turns.next()
            resource, caps = turn.entry
            nodes = frozenset[str]() if caps is None else await self._wanted(resource, caps)
            # Otherwise it went offline, or has other capabilities by now.
            if resource in self._current and self._current[resource] == caps:
                new = self._remember(resource, nodes)
                await online(resource.service, resource.full, resource.bare, new)
            self._turns.done(turn, 1)

    async def _wanted(self, resource: _Resource, caps: Caps) -> frozenset[str]:
        is_hash = caps.hash == "sha-1"
        if is_hash and caps.ver in self._versions:
            return self._versions[caps.ver]
        query = InfoQuery(node=f"{caps.node}#{caps.ver}")
        try:
            answer = await self._ask(JID.parse(resource.full), JID.parse(resource.service), query)
        except StanzaError as error:
            _log.debug("a client does not say what it supports", reason=error.condition)
            return frozenset()
        nodes = frozenset(
            feature.var.removesuffix(_SUFFIX)
            for feature in answer.features
            if feature.var.endswith(_SUFFIX)
        )
        # What one client says counts for others only if the hash proves it (XEP-0115 §5.4).
        if is_hash and _verified(answer, caps.ver):
            self._versions[caps.ver] = nodes
        return nodes


def _resource(service: JID, client: JID) -> _Resource:
    return _Resource(str(service.bare), str(client), str(client.bare))


def _verified(answer: InfoQuery, version: str) -> bool:
    try:
        made = verification_string(answer.identities, answer.features, answer.forms)
    except ValueError:
        return False
    return made == version
