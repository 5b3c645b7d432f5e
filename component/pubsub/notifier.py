"""Sends notifications, a slice of subscribers at a time.

Changes of a node wait in the order of their commits, and each subscriber gets them in this order.
Nodes take turns: a slice of one is followed by slices of others. The next slice is made when the
server has taken the one before, so that many subscribers neither fill the outbox nor hold up
answers to others.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import structlog

from component.link.messages.delivery import Delivery
from component.link.messages.inbound import ReplyAddress
from component.link.messages.messenger import Messenger, TooBigError
from component.link.messages.outbound import OutboundMessage, conversation_with
from component.pubsub import access, rows
from component.pubsub.changes import Direct, NodeChange
from component.pubsub.interests import NodeInterests
from component.pubsub.items import new_id
from component.pubsub.turns import Turns
from component.store.database import Database
from component.store.errors import StorageError
from component.store.storage import Storage
from xep.binding import Payload, encode
from xep.jid import JID
from xep.stanza import NAMESPACE

_log = structlog.get_logger("component.pubsub")

SLICE_BYTES: Final = 65_536
"""Bytes of notifications that are sent before the server must have taken them."""
PAUSE_S: Final = 0.02
"""Seconds between two slices, for the server and its users."""
ENVELOPE_BYTES: Final = 300
"""About the size of a message without its payloads."""


class _Sending:
    """A change or a message on its way: whom it is sent to, a slice at a time. `after` is the
    subscriber after which to go on reading; None if all were read. `online` are the interested
    clients that are still to be read, each with its bare address.
    """

    def __init__(self, entry: NodeChange | Direct, moment: float) -> None:
        self.entry = entry
        self.moment = moment
        self.payloads: tuple[Payload, ...] = ()
        self.size = ENVELOPE_BYTES
        self.to: deque[str] = deque()
        self.after: str | None = None
        self.online: list[tuple[str, str]] | None = []
        if isinstance(entry, Direct):
            self.payloads, self.type = entry.payloads, entry.type
            self.size += sum(len(encode(each, NAMESPACE)) for each in self.payloads)
            self.to.append(entry.to)
        else:
            self.type = entry.config.notification_type
            if entry.notifies:
                self.payloads = (entry.event(),)
                self.size += sum(len(each.payload) for each in entry.items)
                if entry.kind == "deleted":
                    self.to.extend(entry.subscribers)
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

    def put(self, entry: NodeChange | Direct) -> None:
        """Queue an entry. Never waits."""
        sending = _Sending(entry, anyio.current_time())
        self._turns.put((entry.service, entry.node, entry.principal), sending, sending.size)

    def interested_in(self, service: str, node: str) -> int:
        """Return how many online clients want notifications of a node without a subscription."""
        return len(self.interests.resources(service, node, anyio.current_time()))

    async def run(self) -> None:
        """Send queued entries, until cancelled."""
        while True:
            turn = await self._turns.next()
            await self._messages.ready()
            sending, sent = turn.entry, 0
            try:
                await self._read(sending)
                sent = await self._send(sending)
            except StorageError as error:
                _log.error("subscribers were not notified", reason=str(error))
                sending.to.clear()
                sending.after, sending.online = None, []
            self._turns.done(turn, sent + 1, finished=sending.is_over)

    async def _read(self, sending: _Sending) -> None:
        change = sending.entry
        if sending.to or sending.is_over or isinstance(change, Direct):
            return
        if sending.after is not None:
            page = await self._storage.read(_page_of(change, sending.after))
            sending.to.extend(jid for jid, is_told in page if is_told)
            sending.after = page[-1][0] if len(page) == rows.PAGE else None
            if sending.to or sending.after is not None:
                return
        if sending.online is None:
            # Who came online later has been sent the last item, which may be this one.
            sending.online = [
                (full, bare)
                for full, bare in self.interests.resources(
                    change.service, change.node, sending.moment
                )
                if change.principal in (None, bare)
            ]
        part, sending.online = sending.online[: rows.PAGE], sending.online[rows.PAGE :]
        if part:
            allowed = await self._storage.read(_allowed(change, [bare for _, bare in part]))
            sending.to.extend(full for full, bare in part if bare in allowed)

    async def _send(self, sending: _Sending) -> int:
        if not sending.to:
            return 0
        from_ = JID.parse(sending.entry.service)
        delivery: Delivery | None = None
        sent = 0
        while sending.to and sent < SLICE_BYTES:
            to = JID.parse(sending.to.popleft())
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


def _page_of(change: NodeChange, after: str) -> Callable[[Database], list[tuple[str, bool]]]:
    """A page of the subscribers of a node, each with whether it is notified."""

    def op(database: Database) -> list[tuple[str, bool]]:
        page = rows.subscriptions_after(database, change.service, change.node, "subscribed", after)
        if not page:
            return []
        node = rows.node(database, change.service, change.node)
        checked = node is not None and node.config.access_model in ("presence", "whitelist")
        told: list[tuple[str, bool]] = []
        for each in page:
            principal = str(JID.parse(each.jid).bare)
            is_new = change.number and each.since >= change.number
            is_told = each.deliver and not is_new and change.principal in (None, principal)
            if is_told and checked and node is not None:
                is_told = access.may_read(database, node, principal)
            told.append((each.jid, is_told))
        return told

    return op


def _allowed(change: NodeChange, principals: Sequence[str]) -> Callable[[Database], set[str]]:
    """Those who may read a node and have no subscription to it, which would tell them twice."""

    def op(database: Database) -> set[str]:
        node = rows.node(database, change.service, change.node)
        found: set[str] = set()
        for each in dict.fromkeys(principals):
            if rows.subscriptions_of(database, change.service, each, change.node):
                continue
            if node is not None:
                if access.may_read(database, node, each):
                    found.add(each)
            elif change.principal is not None or change.config.access_model != "whitelist":
                found.add(each)
        return found

    return op
