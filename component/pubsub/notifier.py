"""Sends notifications, a slice of subscribers at a time.

Changes wait in a bounded queue, in the order of their commits, and are sent by one task: so each
subscriber gets them in this order. The next slice is made when the server has taken the one
before, so that many subscribers neither fill the outbox nor hold up answers to others.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import anyio
import structlog

from component.messages.delivery import Delivery
from component.messages.inbound import ReplyAddress
from component.messages.messenger import TooBigError
from component.messages.outbound import OutboundMessage, conversation_with
from component.pubsub import access, rows
from component.pubsub.changes import Change, Direct
from component.pubsub.events import event_of
from component.pubsub.publishing import new_id
from component.storage.database import Database, Transactions
from component.storage.errors import StorageError
from xep.binding import Payload
from xep.jid import JID

_log = structlog.get_logger("component.pubsub")

SLICE: Final = 50
"""Subscribers that are notified before anything else can be sent."""
PAUSE_S: Final = 0.02
"""Seconds between two slices, for the server and its users."""
_PAGE: Final = 1_000
_MOST_WAITING: Final = 10_000

T = TypeVar("T")


class Messages(Protocol):
    """Sends messages: `component.messages.messenger.Messenger`."""

    def send(self, message: OutboundMessage, /) -> Delivery:
        """Queue a message. Never waits. Raises TooBigError."""

    async def ready(self) -> None:
        """Wait until there is a stream that takes more."""


class Interested(Protocol):
    """Who wants to be notified without a subscription: `component.pubsub.interests.Interests`."""

    def resources(self, service: str, node: str, before: float) -> Sequence[tuple[str, str]]:
        """The full addresses that want notifications and came online before this time of the event
        loop, each with its bare one.
        """


class Waiting(Generic[T]):
    """A queue that drops its oldest entry when it is full."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._entries: deque[T] = deque()
        self._wake = anyio.Event()

    def put(self, entry: T) -> None:
        """Add an entry. Never waits."""
        if len(self._entries) >= _MOST_WAITING:
            self._entries.popleft()
            _log.warning("too many changes wait; the oldest is dropped", waiting_for=self._what)
        self._entries.append(entry)
        self._wake.set()

    async def get(self) -> T:
        """Wait for the oldest entry, and take it."""
        while not self._entries:
            if self._wake.is_set():
                self._wake = anyio.Event()
            await self._wake.wait()
        return self._entries.popleft()


class Notifier:
    """Sends notifications of changes to subscribers and interested clients.

    Args:
        storage: has the subscriptions.
        messages: sends messages.
        interested: the online clients whose capabilities request notifications.
        may_write: whether one of our addresses may write to a contact that has not subscribed.
        pause_s: seconds between two slices.
    """

    def __init__(
        self,
        storage: Transactions,
        messages: Messages,
        interested: Interested,
        may_write: Callable[[JID, JID], bool],
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._storage = storage
        self._messages = messages
        self._interested = interested
        self._may_write = may_write
        self._pause_s = pause_s
        self._waiting: Waiting[tuple[float, Change | Direct]] = Waiting("subscribers")

    def put(self, entry: Change | Direct) -> None:
        """Queue an entry. Never waits."""
        self._waiting.put((anyio.current_time(), entry))

    async def run(self) -> None:
        """Send queued entries, until cancelled."""
        while True:
            moment, entry = await self._waiting.get()
            await self._messages.ready()
            try:
                if isinstance(entry, Direct):
                    await self._send((entry.to,), entry.service, entry.payloads, entry.type)
                else:
                    await self._notify(entry, moment)
            except StorageError as error:
                _log.error("subscribers were not notified", reason=str(error))

    async def _notify(self, change: Change, moment: float) -> None:
        event = event_of(change)
        if event is None or not change.notifies:
            return
        kind = change.config.notification_type
        if change.kind == "deleted":
            await self._send(change.subscribers, change.service, (event,), kind)
        else:
            after = ""
            while page := await self._storage.read(_page_of(change, after)):
                chosen = [jid for jid, is_told in page if is_told]
                await self._send(chosen, change.service, (event,), kind)
                after = page[-1][0]
        # Who came online later has been sent the last item, which may be this one.
        online = self._interested.resources(change.service, change.node, moment)
        service = JID.parse(change.service)
        online = [
            (full, bare)
            for full, bare in online
            if self._may_write(service, JID.parse(bare))
            and (change.principal is None or change.principal == bare)
        ]
        for start in range(0, len(online), _PAGE):
            part = online[start : start + _PAGE]
            allowed = await self._storage.read(_allowed(change, [bare for _, bare in part]))
            full = [full for full, bare in part if bare in allowed]
            await self._send(full, change.service, (event,), kind)

    async def _send(
        self, to: Sequence[str], service: str, payloads: tuple[Payload, ...], type_: str
    ) -> None:
        from_ = JID.parse(service)
        for start in range(0, len(to), SLICE):
            delivery: Delivery | None = None
            for each in to[start : start + SLICE]:
                message = OutboundMessage(
                    id=new_id(),
                    conversation=conversation_with(from_, JID.parse(each)),
                    to=ReplyAddress(each, from_, "normal" if type_ == "normal" else "headline"),
                    payloads=payloads,
                )
                try:
                    delivery = self._messages.send(message)
                except TooBigError as error:
                    _log.error("a notification is too large", reason=str(error))
                    return
            if start + SLICE < len(to) and delivery is not None:
                await delivery.settled()
                await anyio.sleep(self._pause_s)
                await self._messages.ready()


def _page_of(change: Change, after: str) -> Callable[[Database], list[tuple[str, bool]]]:
    """A page of the subscribers of a node, each with whether it is notified."""

    def op(database: Database) -> list[tuple[str, bool]]:
        page = rows.subscriptions_to(
            database, change.service, change.node, "subscribed", after, _PAGE
        )
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


def _allowed(change: Change, principals: Sequence[str]) -> Callable[[Database], set[str]]:
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


class Listeners:
    """Calls those in this process who listen to changes, one after another."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, str, Callable[[Change], Awaitable[None]]]] = []
        self._observers: list[tuple[str, str, Callable[[Change], None]]] = []
        self._waiting: Waiting[Change] = Waiting("listeners")

    def add(
        self, service: str, node_prefix: str, callback: Callable[[Change], Awaitable[None]]
    ) -> None:
        """Call `callback` for each change of a node at this address whose name begins like this."""
        self._listeners.append((service, node_prefix, callback))

    def observe(self, service: str, node_prefix: str, callback: Callable[[Change], None]) -> None:
        """Call `callback` immediately after the commit of each change of a node at this address
        whose name begins like this, before the requester has its answer. It must not wait.
        """
        self._observers.append((service, node_prefix, callback))

    def put(self, change: Change) -> None:
        """Pass a change to the listeners of its node. Never waits."""
        for service, prefix, observer in self._observers:
            if self._is_for(change, service, prefix):
                observer(change)
        if any(self._is_for(change, service, prefix) for service, prefix, _ in self._listeners):
            self._waiting.put(change)

    async def run(self) -> None:
        """Call the listeners, until cancelled. What one of them raises is logged."""
        while True:
            change = await self._waiting.get()
            for service, prefix, callback in list(self._listeners):
                if self._is_for(change, service, prefix):
                    try:
                        await callback(change)
                    except Exception:  # noqa: BLE001 - the others are called all the same
                        _log.exception("a listener failed", node=change.node, kind=change.kind)

    @staticmethod
    def _is_for(change: Change, service: str, prefix: str) -> bool:
        return change.service == service and change.node.startswith(prefix)
