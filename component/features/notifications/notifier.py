"""Tells people the results of work that an agent started by itself.

A result is first recorded as one notification for each recipient. When it is sent, and in which
message, is decided later (`notification_plan`), depending on quiet hours, the presence of the
person and the rate. So results are not lost while the process, the connection or the person is
away.
"""

from collections.abc import Awaitable, Callable
from datetime import timezone
from hashlib import sha256
from typing import Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskStatus
from cachebox import LRUCache

from component import system
from component.features.notifications.plan import MESSAGE_PREFIX, Rules, plan
from component.features.notifications.quiet_hours import zone_of
from component.features.notifications.texts import message_text, notification_text
from component.messages.delivery import Delivery
from component.messages.inbound import Account, InboundMessage, ReplyAddress
from component.messages.messenger import Messenger
from component.messages.outbound import OutboundMessage, Text, conversation_with
from component.proactive.work import Trigger, Work, title_of
from component.storage import Storage, StorageError
from component.storage.notifications import (
    CHANNEL,
    Batch,
    Notification,
    NotificationStore,
    PlannedMessage,
)
from xep.jid import JID

_log = structlog.get_logger("component.notifications")

_PAGE: Final = 50
"""Maximum number of recipients that are processed at the same time."""
_POLL_S: Final = 60.0
"""Seconds between two regular checks, which find what a killed instance has left."""
_WRITTEN_S: Final = 20.0
"""Seconds in which the server has to accept a message; less than a claim lasts."""
_AGAIN_MS: Final = 5_000
_RETRY_S: Final = 2.0
_MOST_SIGNS: Final = 10_000
_SEEN_S: Final = 600.0
"""Seconds for which a person counts as online after any activity. Their server reports that they
have gone offline only if the agent is subscribed to their presence."""


Told: TypeAlias = Callable[[Notification, Work, Trigger], Awaitable[None]]
"""Takes a notification that a person gets, once or more often. Raises StorageError."""


class Notifier:
    """Implements `component.proactive.results.ResultNotifier`, and sends what it has recorded.

    Args:
        storage: the database.
        messenger: sends messages.
        connected: whether there is a stream.
        may_write: whether an agent may send a contact an unrequested message.
        address_of: the bare address of an agent by its name.
        rules: what bounds notifications.
        most_held: how many notifications are held for one person by one agent.
        home: names this data directory among those that share a database.
        probe: asks whether a person (second) shows presence to an agent (first); the answer comes
            as a call of `online`.

    Attributes:
        told: is called with each notification of work that is recorded; the root connects it.
    """

    def __init__(
        self,
        storage: Storage,
        messenger: Messenger,
        connected: Callable[[], bool],
        may_write: Callable[[JID, JID], bool],
        address_of: Callable[[str], JID],
        rules: Rules,
        most_held: int = 500,
        home: str = "",
        probe: Callable[[JID, JID], None] = lambda _agent, _person: None,
    ) -> None:
        self.store = NotificationStore(storage, home)
        self.told: Told | None = None
        self._storage = storage
        self._messenger = messenger
        self._connected = connected
        self._may_write = may_write
        self._address_of = address_of
        self._rules = rules
        self._most_held = most_held
        self._probe = probe
        self._wake = anyio.Event()
        self._waiting_online: set[tuple[JID, JID]] = set()
        self._online: set[tuple[JID, JID]] = set()
        self._seen: LRUCache[tuple[JID, JID], float] = LRUCache(_MOST_SIGNS)
        self._receipts: set[tuple[JID, str]] = set()
        self._zones: dict[JID, int] = {}
        self._signs = anyio.Event()

    async def ended(self, work: Work, trigger: Trigger, outcome: str, text: str) -> None:
        """Record a notification for each person; see `component.proactive.results`."""
        said = notification_text(work, trigger, outcome, text)
        if work.silent or not said:
            return
        agent = self._address_of(work.agent)
        found: list[Notification] = []
        for person in dict.fromkeys(one.bare for one in work.tell or (work.principal,)):
            if not self._may_write(agent, person):
                _log.info(
                    "a result is withheld: its recipient wants no messages", name=trigger.name
                )
                continue
            found.append(
                Notification(
                    id=_id_of(trigger, agent, person),
                    agent=agent,
                    person=person,
                    priority=work.priority,
                    title=title_of(trigger),
                    text=said,
                    waits_online=work.deliver == "online",
                    on_time=work.deliver == "on-time" and person == work.principal.bare,
                )
            )
        if not found:
            return
        await self.store.add(found, self._most_held)
        if self.told is not None:
            for one in found:
                await self.told(one, work, trigger)
        if work.deliver == "online":
            self._wait_online({(one.agent, one.person) for one in found})
        self.wake()

    # Activity of people; no method waits.

    def online(self, agent: JID, person: JID) -> None:
        """Note that a person has come online, as the presence that an agent receives says."""
        key = (agent.bare, person.bare)
        self._seen[key] = anyio.current_time()
        if key in self._waiting_online:
            self._online.add(key)
            self._signs.set()

    def available(self, service: JID, client: JID, _caps: object) -> None:
        """Note that a client of a person has become available (RFC 6121 §4.2)."""
        self.online(service, client)

    def unavailable(self, service: JID, client: JID) -> None:
        """Note that a client has become unavailable; another one may still be online."""
        self._seen.pop((service.bare, client.bare), None)

    def message_received(self, message: InboundMessage) -> None:
        """Note the receipts in a message, and that its sender is online."""
        if not isinstance(message.actor, Account) or message.type == "error":
            return
        for id_ in (message.received, message.displayed):
            if id_ is not None and id_.startswith(MESSAGE_PREFIX):
                if len(self._receipts) < _MOST_SIGNS:
                    # The first stanza of a long message has the id, the others add a number.
                    self._receipts.add((message.principal, _whole(id_)))
                self._signs.set()
        if not message.delayed and message.copy is None:
            self.online(message.conversation.agent, message.principal)

    def zone_learned(self, person: JID, zone: timezone) -> None:
        """Note the time zone that a client of a person has reported (XEP-0202)."""
        offset = zone.utcoffset(None)
        if len(self._zones) < _MOST_SIGNS:
            self._zones[person.bare] = int(offset.total_seconds())
            self._signs.set()

    def connected(self) -> None:
        """Ask who is online and send waiting notifications, on a new stream."""
        for agent, person in self._waiting_online:
            self._probe(agent, person)
        self.wake()

    def wake(self) -> None:
        """Check the recipients now."""
        self._wake.set()

    # The loops.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send what is due, until cancelled. Raises StorageError before it has started."""
        await self.store.release_earlier()
        self._waiting_online = await self.store.waiting_online()
        async with anyio.create_task_group() as group:
            await group.start(self._listen)
            group.start_soon(self._note_signs)
            task_status.started()
            while True:
                wait_s = _POLL_S
                try:
                    if self._connected():
                        wait_s = await self._send_due()
                except StorageError as error:
                    _log.warning("notifications wait for the database", reason=str(error))
                    wait_s = _RETRY_S
                with anyio.move_on_after(wait_s):
                    await self._wake.wait()
                self._wake = anyio.Event()

    async def _listen(self, *, task_status: TaskStatus[None]) -> None:
        """Check the recipients when another instance has recorded notifications."""
        async with self._storage.listen(CHANNEL) as notified:
            task_status.started()
            async for _ in notified:
                try:
                    self._wait_online(await self.store.waiting_online())
                except StorageError as error:
                    _log.warning("cannot see who waits to be online", reason=str(error))
                self.wake()

    def _wait_online(self, recipients: set[tuple[JID, JID]]) -> None:
        for agent, person in recipients:
            is_new = (agent, person) not in self._waiting_online
            self._waiting_online.add((agent, person))
            seen = self._seen.get((agent, person), None)
            if seen is not None and anyio.current_time() - seen < _SEEN_S:
                self._online.add((agent, person))
                self._signs.set()
            elif is_new and self._connected():
                self._probe(agent, person)

    async def _note_signs(self) -> None:
        while True:
            await self._signs.wait()
            self._signs = anyio.Event()
            try:
                await self._write_signs()
            except StorageError as error:
                _log.warning("signs of people wait for the database", reason=str(error))
                await anyio.sleep(_RETRY_S)
                self._signs.set()

    async def _write_signs(self) -> None:
        """Store who is online, which messages arrived, and time zones. Raises StorageError."""
        while self._online:
            agent, person = key = next(iter(self._online))
            await self.store.online(agent, person)
            self._online.discard(key)
            self._waiting_online.discard(key)
            self.wake()
        while self._receipts:
            person, message = receipt = next(iter(self._receipts))
            await self.store.received(person, message)
            self._receipts.discard(receipt)
        while self._zones:
            person, offset = next(iter(self._zones.items()))
            await self.store.set_utc_offset(person, offset)
            if self._zones.get(person) == offset:
                del self._zones[person]

    async def _send_due(self) -> float:
        """Send to all recipients that are due. Returns the seconds until the next one is due."""
        while True:
            due, next_ms = await self.store.due(_PAGE)
            if not due:
                return _POLL_S if next_ms is None else min(_POLL_S, next_ms / 1000)
            async with anyio.create_task_group() as group:
                for agent, person in due:
                    group.start_soon(self._send_to, agent, person)
            if not self._connected():
                return _POLL_S

    async def _send_to(self, agent: JID, person: JID) -> None:
        token = system.token_hex(16)
        try:
            batch = await self.store.take(agent, person, token, lambda one: plan(one, self._rules))
            if batch is None:
                return
            if not self._may_write(agent, person):
                _log.info("notifications are dropped: their recipient wants none")
                await self.store.forget(agent, person)
            elif await self._sent(agent, person, batch):
                await self.store.sent(agent, person, token, batch)
            else:
                await self.store.release(agent, person, token, _AGAIN_MS)
        except StorageError as error:
            # The claim expires, and the message is sent again under the same id.
            _log.warning("a notification is sent again later", reason=str(error))
            await anyio.sleep(_RETRY_S)

    async def _sent(self, agent: JID, person: JID, batch: Batch) -> bool:
        """Send the messages of a batch. Returns whether the server has accepted them all."""
        dropped = batch.recipient.dropped
        deliveries: list[Delivery] = []
        for number, message in enumerate(batch.plan.messages):
            sent = _message(agent, person, batch, message, 0 if number else dropped, self._rules)
            deliveries.append(self._messenger.send(sent))
        with anyio.move_on_after(_WRITTEN_S):
            written = [await delivery.settled() for delivery in deliveries]
            return all(written) and await self._messenger.handled()
        # Messages that were written cannot be withdrawn; they are sent again under their ids if
        # others of the batch could be.
        withdrawn = [delivery.withdraw() for delivery in deliveries]
        return not any(withdrawn)


def _message(
    agent: JID, person: JID, batch: Batch, planned: PlannedMessage, dropped: int, rules: Rules
) -> OutboundMessage:
    by_id = {one.id: one for one in batch.recipient.notifications}
    zone = zone_of(batch.recipient.preferences, rules.zone)
    text = message_text([by_id[id_] for id_ in planned.ids], dropped, zone)
    return OutboundMessage(
        id=planned.id,
        conversation=conversation_with(agent, person),
        to=ReplyAddress(str(person), agent),
        parts=(Text(text),),
        must_arrive=True,
        asks_for_reports=True,
    )


def _id_of(trigger: Trigger, agent: JID, person: JID) -> str:
    """Return the id of a notification; it is the same when a result is recorded again."""
    parts = (trigger.source, trigger.name, trigger.key, str(agent), str(person))
    return sha256("\n".join(parts).encode()).hexdigest()[:32]


def _whole(id_: str) -> str:
    return MESSAGE_PREFIX + id_.removeprefix(MESSAGE_PREFIX).partition("-")[0]
