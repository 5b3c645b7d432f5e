"""Sends notifications, a slice of subscribers at a time, in turns.

Changes of a node wait in the order of their commits, and each subscriber gets them in this order.
Nodes take turns: a slice of one is followed by slices of others. The next slice is made when the
server has taken the one before, so that many subscribers neither fill the outbox nor hold up
answers to others.

Without a subscription, contacts that are online are notified by their capabilities (XEP-0163 §3,
XEP-0115 §6): they announce the nodes that they are interested in as features that end in
``+notify``. The features of one version of capabilities are asked for once.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

import anyio
import msgspec
import structlog

from component.caches import LRUCache
from component.link.messages.delivery import Delivery
from component.link.messages.inbound import ReplyAddress
from component.link.messages.messenger import Messenger, TooBigError
from component.link.messages.outbound import OutboundMessage, conversation_with
from component.pubsub.access import may_read
from component.pubsub.changes import Direct, NodeChange, ViewChange
from component.pubsub.items import new_id
from component.pubsub.rows import PAGE, NodeRows, subscriptions_to_view
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.store.storage import Storage
from xep.binding import Payload, encode
from xep.caps import Caps, verification_string
from xep.disco import InfoQuery
from xep.jid import JID
from xep.stanza import NAMESPACE
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.pubsub")

MOST_ENTRIES: Final = 10_000
MOST_BYTES: Final = 64 * 1024 * 1024

T = TypeVar("T")


class _Queue(msgspec.Struct, Generic[T], eq=False):
    key: object
    entries: deque[tuple[T, int]] = msgspec.field(default_factory=deque)
    bytes: int = 0
    has_turn: bool = False
    drops: bool = False


class QueueTurn(NamedTuple, Generic[T]):
    """The oldest entry of a key, whose turn it is."""

    entry: T
    queue: _Queue[T]
    time: float


class Turns(Generic[T]):
    """A queue for each key. The key that has been served least is next, and has one turn at a time.

    All queues together hold a limited number of entries and bytes. A key may use as much as is
    still free; beyond that its own oldest entries are dropped. `what` says who waits for the
    entries, for the log.
    """

    def __init__(
        self, what: str, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES
    ) -> None:
        self._what = what
        self._free = most_entries
        self._free_bytes = most_bytes
        self._queues: dict[object, _Queue[T]] = {}
        # Start-time fair queueing: (virtual time, place, queue) of all that wait for a turn.
        self._heap: list[tuple[float, int, _Queue[T]]] = []
        self._now = 0.0
        self._place: Callable[[], int] = count().__next__
        self._wake = anyio.Event()

    def put(self, key: object, entry: T, bytes_: int = 0) -> None:
        """Add an entry of this size to the queue of a key. Never waits."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key)
            heappush(self._heap, (self._now, self._place(), queue))
            self._wake.set()
        queue.entries.append((entry, bytes_))
        queue.bytes += bytes_
        self._free -= 1
        self._free_bytes -= bytes_
        # The entry that has its turn stays, and so does the new one.
        while len(queue.entries) > 1 + queue.has_turn and (
            len(queue.entries) > self._free or queue.bytes > self._free_bytes
        ):
            self._remove(queue, int(queue.has_turn))
            if not queue.drops:
                queue.drops = True
                _log.warning(
                    "too much waits; the oldest entries are dropped",
                    waiting_for=self._what,
                    queue=str(key),
                )

    async def next(self) -> QueueTurn[T]:
        """Wait for the next turn. Its key has no other one until `done` is called."""
        while not self._heap:
            if self._wake.is_set():
                self._wake = anyio.Event()
            await self._wake.wait()
        time, _, queue = heappop(self._heap)
        self._now = max(self._now, time)
        queue.has_turn = True
        return QueueTurn(queue.entries[0][0], queue, time)

    def done(self, turn: QueueTurn[T], cost: float, *, finished: bool = True) -> None:
        """End a turn, which has cost this much. The entry keeps its place unless it is finished."""
        queue = turn.queue
        queue.has_turn = False
        if finished:
            self._remove(queue, 0)
        if queue.entries:
            heappush(self._heap, (turn.time + cost, self._place(), queue))
            self._wake.set()
        else:
            del self._queues[queue.key]

    def _remove(self, queue: _Queue[T], place: int) -> None:
        size = queue.entries[place][1]
        del queue.entries[place]
        queue.bytes -= size
        self._free += 1
        self._free_bytes += size


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


SLICE_BYTES: Final = 65_536
"""Bytes of notifications that are sent before the server must have taken them."""
PAUSE_S: Final = 0.02
"""Seconds between two slices, for the server and its users."""
ENVELOPE_BYTES: Final = 300
"""About the size of a message without its payloads."""


class _Sending:
    """A change or a message on its way: from which of our addresses to whom it is sent, a slice at
    a time. `after` is the subscriber after which to go on reading; None if all were read. `online`
    are the interested clients that are still to be read, each with its bare address.
    """

    def __init__(self, entry: NodeChange | ViewChange | Direct, moment: float) -> None:
        self.entry = entry
        self.moment = moment
        self.payloads: tuple[Payload, ...] = ()
        self.size = ENVELOPE_BYTES
        self.to: deque[tuple[str, str]] = deque()
        self.after: str | None = None
        self.online: list[tuple[str, str]] | None = []
        if isinstance(entry, Direct):
            self.payloads, self.type = entry.payloads, entry.type
            self.size += sum(len(encode(each, NAMESPACE)) for each in self.payloads)
            self.to.append((entry.service, entry.to))
        elif isinstance(entry, ViewChange):
            self.payloads, self.type = (entry.event,), entry.type
            self.size += entry.size
            self.after = ""
        else:
            self.type = entry.config.notification_type
            if entry.notifies:
                self.payloads = (entry.event(),)
                self.size += sum(len(each.payload) for each in entry.items)
                if entry.kind == "deleted":
                    self.to.extend((entry.service, each) for each in entry.subscribers)
                else:
                    self.after = ""
                self.online = None

    @property
    def is_over(self) -> bool:
        """Whether it was sent to all."""
        return not self.to and self.after is None and self.online == []


class NodeNotifier:
    """Sends notifications of changes to subscribers and interested clients.

    Contacts that have stopped the agent's messages get no notifications. `interests` has the online
    clients whose capabilities request notifications. `may_write` says whether one of our addresses
    may write to a contact.
    """

    def __init__(
        self,
        storage: Storage,
        messages: Messenger,
        interests: NodeInterests,
        may_write: Callable[[JID, JID], bool],
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._storage = storage
        self._messages = messages
        self.interests = interests
        self.may_write = may_write
        self._pause_s = pause_s
        self._turns: Turns[_Sending] = Turns("subscribers")
        self._unsettled = 0  # bytes that were sent since the last pause

    def put(self, entry: NodeChange | ViewChange | Direct) -> None:
        """Queue an entry. Never waits."""
        sending = _Sending(entry, anyio.current_time())
        self._turns.put(entry.queue, sending, sending.size)

    def interested_in(self, service: str, node: str) -> int:
        """Return how many online clients want notifications of a node without a subscription."""
        return len(self.interests.resources(service, node, anyio.current_time()))

    def bare_interested(self, service: str, node: str) -> set[str]:
        """Return the bare addresses of these clients."""
        clients = self.interests.resources(service, node, anyio.current_time())
        return {bare for _, bare in clients}

    async def run(self) -> None:
        """Send queued entries, until cancelled."""
        while True:
            turn = await self._turns.next()
            sending, sent = turn.entry, 0
            try:
                await self._read(sending)
                if sending.to:
                    sent = await self._send(sending)
            except StorageError as error:
                log_failure(_log, "subscribers were not notified", error)
                sending.to.clear()
                sending.after, sending.online = None, []
            self._turns.done(turn, sent + 1, finished=sending.is_over)

    async def _read(self, sending: _Sending) -> None:
        change = sending.entry
        if sending.to or sending.is_over or isinstance(change, Direct):
            return
        if isinstance(change, ViewChange):
            sending.to.extend(await self._viewers(change, sending.moment))
            sending.after = None
            return
        if sending.after is not None:
            page = await self._storage.read(partial(_page_of, change=change, after=sending.after))
            sending.to.extend((change.service, jid) for jid, is_told in page if is_told)
            sending.after = page[-1][0] if len(page) == PAGE else None
            if sending.to or sending.after is not None:
                return
        if sending.online is None:
            # Who came online later has been sent the last item, which may be this one.
            online = self.interests.resources(change.service, change.node, sending.moment)
            sending.online = list(online)
        part, sending.online = sending.online[:PAGE], sending.online[PAGE:]
        if part:
            bares = [bare for _, bare in part]
            allowed = await self._storage.read(partial(_allowed, change=change, principals=bares))
            sending.to.extend((change.service, full) for full, bare in part if bare in allowed)

    async def _viewers(self, change: ViewChange, moment: float) -> list[tuple[str, str]]:
        """Return the subscriptions of the principal, and its interested clients without one."""
        op = partial(
            subscriptions_to_view,
            services=change.services,
            node=change.node,
            principal=change.principal,
        )
        made = await self._storage.read(op)
        told = [(at, each.jid) for at, each in made if each.state == "subscribed" and each.deliver]
        for service in change.services:
            if all(service != at for at, _ in made):
                online = self.interests.resources(service, change.node, moment)
                told += [(service, full) for full, bare in online if bare == change.principal]
        return told

    async def _send(self, sending: _Sending) -> int:
        await self._messages.ready()
        delivery: Delivery | None = None
        sent = 0
        while sending.to and sent < SLICE_BYTES:
            from_, to = map(JID.parse, sending.to.popleft())
            if not self.may_write(from_, to.bare):
                continue
            message = OutboundMessage(
                id=new_id(),
                conversation=conversation_with(from_, to),
                to=ReplyAddress(
                    str(to), from_, "normal" if sending.type == "normal" else "headline"
                ),
                payloads=sending.payloads,
            )
            try:
                delivery = self._messages.send(message)
            except TooBigError as error:
                _log.error("a notification is too large", reason=str(error))
                sending.to.clear()
                break
            sent += sending.size
        self._unsettled += sent
        if delivery is not None and self._unsettled >= SLICE_BYTES:
            self._unsettled = 0
            await delivery.settled()
            await anyio.sleep(self._pause_s)
        return sent


def _page_of(database: Database, change: NodeChange, after: str) -> list[tuple[str, bool]]:
    at = NodeRows(database, change.service, change.node)
    page = at.subscriptions_after("subscribed", after)
    if not page:
        return []
    node = at.load()
    checked = node is not None and node.config.access_model in ("presence", "whitelist")
    told: list[tuple[str, bool]] = []
    for each in page:
        principal = str(JID.parse(each.jid).bare)
        is_new = change.number and each.since >= change.number
        is_told = each.deliver and not is_new
        if is_told and checked and node is not None:
            is_told = may_read(database, node, principal)
        told.append((each.jid, is_told))
    return told


def _allowed(database: Database, change: NodeChange, principals: Sequence[str]) -> set[str]:
    """Those who may read a node and have no subscription to it, which would tell them twice."""
    at = NodeRows(database, change.service, change.node)
    node = at.load()
    found: set[str] = set()
    for each in dict.fromkeys(principals):
        if at.subscriptions_of(each):
            continue
        if node is not None:
            if may_read(database, node, each):
                found.add(each)
        elif change.config.access_model != "whitelist":
            found.add(each)
    return found
