"""Tells people the results of work that an agent started by itself.

A result is first recorded as one notification for each recipient. When it is sent, and in which
message, is decided later (`plan`), depending on quiet hours, the presence of the
person and the rate. So results are not lost while the process, the connection or the person is
away.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timezone, tzinfo
from functools import partial
from hashlib import sha256
from string import Template
from typing import Final, Literal, TypeAlias

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.agent_addresses import both_addresses, canonical_address
from component.caches import LRUCache
from component.commands import shorten
from component.features.notifications.plan import MESSAGE_PREFIX, plan, zone_of
from component.kernel import started_work
from component.kernel.goals import turn_of
from component.kernel.kernel import Kernel
from component.kernel.started_work import Started
from component.kernel.triggers import Trigger, Work, title_of
from component.link.messages.delivery import Delivery
from component.link.messages.inbound import Account, InboundMessage, ReplyAddress
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.link.messages.styling import styled
from component.memory_directory.layout import SessionKey
from component.policy.taint import Taint
from component.store.database import Database
from component.store.errors import StorageError, UnstorableError
from component.store.notifications import (
    CHANNEL,
    Batch,
    Notification,
    NotificationStore,
    Plan,
    Recipient,
    Subject,
)
from component.store.outages import log_failure
from component.tasks.outputs import files_of, texts_of
from xep.file_sharing import FileSharing
from xep.fluux_agent.task import Task
from xep.jid import JID
from xep.stanza import Presence
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.notifications")

_PAGE: Final = 50
"""Maximum number of recipients that are processed at the same time."""
_POLL_S: Final = 60.0
"""Seconds between two regular checks, which find what a killed instance has left."""
_WRITTEN_S: Final = 20.0
"""Seconds in which the server has to accept a message; less than a claim lasts."""
_AGAIN_MS: Final = 5_000
_RETRY_S: Final = 2.0
_MOST_NOTED: Final = 10_000
_SEEN_S: Final = 600.0
"""Seconds for which a person counts as online after any activity. Their server reports that they
have gone offline only if the agent is subscribed to their presence."""
_LONGEST: Final = 20_000
"""Characters of one notification."""
_LONGEST_IN_DIGEST: Final = 1_000
_LONGEST_LINE: Final = 200
_NO_SUBJECT: Final = Subject()

OutcomeOfWork: TypeAlias = Literal["completed", "failed", "cancelled", "rejected"]


class Ended(msgspec.Struct, frozen=True):
    """How work has ended: its result for people, which may be empty, with its files, or the reason
    why it was not completed.
    """

    outcome: OutcomeOfWork
    text: str = ""
    files: tuple[FileSharing, ...] = ()


class Notifier:
    """Records the results of work as notifications, and sends them when people want them."""

    def __init__(self, kernel: Kernel) -> None:
        self.store = NotificationStore(
            kernel.storage, kernel.environment.home, models_read=kernel.agents is not None
        )
        self._kernel = kernel
        self._settings = kernel.settings.notifications
        self._zone = kernel.settings.agent.zone
        self._wake = anyio.Event()
        self._waiting_online: set[tuple[JID, JID]] = set()
        self._seen: LRUCache[tuple[JID, JID], float] = LRUCache(_MOST_NOTED)
        self._activity: dict[tuple[object, ...], Callable[[], Awaitable[None]]] = {}
        """Stores what people have done, by what it is."""
        self._active = anyio.Event()

    def notifications_of(
        self, work: Work, trigger: Trigger, ended: "Ended", subject: Subject = _NO_SUBJECT
    ) -> Sequence[Notification]:
        """Return a notification of the result for each person that the work names. The same result
        gives the same notifications. `subject` is what they tell of.
        """
        said = notification_text(work, trigger, ended.outcome, ended.text)
        if work.silent or not (said or ended.files):
            return ()
        found: list[Notification] = []
        for person in dict.fromkeys(one.bare for one in work.tell or (work.principal,)):
            asked_at = work.at if person == work.principal.bare else None
            agent = self._kernel.contacts.address_of(work.agent, person, asked_at)
            if not self._kernel.contacts.may_write(agent, person):
                _log.info(
                    "a result is withheld: its recipient wants no messages", name=trigger.name
                )
                continue
            found.append(
                Notification(
                    id=_id_of(trigger, canonical_address(agent), person),
                    agent=agent,
                    person=person,
                    priority=work.priority,
                    title=title_of(trigger),
                    text=said,
                    files=ended.files,
                    waits_online=work.deliver == "online",
                    on_time=work.deliver == "on-time" and person == work.principal.bare,
                    subject=subject,
                )
            )
        return found

    async def record(
        self,
        notifications: Sequence[Notification],
        also: Callable[[Database], object] | None = None,
    ) -> None:
        """Record notifications, each once, and make another change in the same transaction. After
        that they do not depend on this process. Raises StorageError; then call it again.
        """
        await self.store.add(notifications, self._settings.held_per_person, also)
        for one in notifications:
            self.changed(one.agent, one.person)
        self._wait_online({(one.agent, one.person) for one in notifications if one.waits_online})
        if notifications:
            self.wake()

    def changed(self, agent: JID, person: JID) -> None:
        """Report that the notifications of a person have changed. Never waits."""
        for call in self._kernel.on_notifications:
            call(agent, person)

    # Activity of people; no method waits.

    def online(self, agent: JID, person: JID) -> None:
        """Note that a person has come online, as the presence that an agent receives says."""
        for address in both_addresses(agent):
            key = (address, person.bare)
            self._seen[key] = anyio.current_time()
            if key in self._waiting_online:
                self._note_online(key)

    def _note_online(self, key: tuple[JID, JID]) -> None:
        self._activity["online", *key] = partial(self._store_online, key)
        self._active.set()

    def available(self, service: JID, client: JID, _caps: object) -> None:
        """Note that a client of a person has become available (RFC 6121 §4.2)."""
        self.online(service, client)

    def unavailable(self, service: JID, client: JID) -> None:
        """Note that a client has become unavailable; another one may still be online."""
        for address in both_addresses(service):
            self._seen.pop((address, client.bare), None)

    def message_received(self, message: InboundMessage) -> None:
        """Note the receipts in a message, and that its sender is online."""
        if not isinstance(message.actor, Account) or message.type == "error":
            return
        for id_ in (message.received, message.displayed):
            if id_ is not None and id_.startswith(MESSAGE_PREFIX):
                # The first stanza of a long message has the id, the others add a number.
                whole = MESSAGE_PREFIX + id_.removeprefix(MESSAGE_PREFIX).partition("-")[0]
                receipt = message.principal, whole
                if len(self._activity) < _MOST_NOTED:
                    self._activity["receipt", *receipt] = partial(self.store.received, *receipt)
                self._active.set()
        if not message.delayed and message.copy is None:
            self.online(message.conversation.agent, message.principal)

    def zone_learned(self, person: JID, zone: timezone) -> None:
        """Note the time zone that a client of a person has reported (XEP-0202)."""
        offset = int(zone.utcoffset(None).total_seconds())
        if len(self._activity) < _MOST_NOTED:
            store = partial(self.store.set_utc_offset, person.bare, offset)
            self._activity["zone", person.bare] = store
            self._active.set()

    def connected(self) -> None:
        """Ask who is online and send waiting notifications, on a new stream."""
        for agent, person in self._waiting_online:
            self._probe(agent, person)
        self.wake()

    def wake(self) -> None:
        """Check the recipients now."""
        self._wake.set()

    def _probe(self, agent: JID, person: JID) -> None:
        self._kernel.stream.send(Presence(type="probe", from_=agent, to=person))
        self._kernel.stream.flush()

    # The loops.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send what is due, until cancelled. Raises StorageError before it has started."""
        await self.store.release_earlier()
        self._waiting_online = await self.store.waiting_online()
        async with anyio.create_task_group() as group:
            await group.start(self._listen)
            group.start_soon(self._store_activity)
            task_status.started()
            while True:
                wait_s = _POLL_S
                try:
                    if self._kernel.stream.is_connected():
                        wait_s = await self._send_due()
                except StorageError as error:
                    log_failure(_log, "notifications wait for the database", error)
                    wait_s = _RETRY_S
                with anyio.move_on_after(wait_s):
                    await self._wake.wait()
                self._wake = anyio.Event()

    async def _listen(self, *, task_status: TaskStatus[None]) -> None:
        async with self._kernel.storage.listen(CHANNEL) as notified:
            task_status.started()
            async for _ in notified:
                try:
                    self._wait_online(await self.store.waiting_online())
                except StorageError as error:
                    log_failure(_log, "cannot see who waits to be online", error)
                self.wake()

    def _wait_online(self, recipients: set[tuple[JID, JID]]) -> None:
        for agent, person in recipients:
            is_new = (agent, person) not in self._waiting_online
            self._waiting_online.add((agent, person))
            seen = self._seen.get((agent, person), None)
            if seen is not None and anyio.current_time() - seen < _SEEN_S:
                self._note_online((agent, person))
            elif is_new and self._kernel.stream.is_connected():
                self._probe(agent, person)

    async def _store_activity(self) -> None:
        while True:
            await self._active.wait()
            self._active = anyio.Event()
            try:
                while self._activity:
                    key, store = next(iter(self._activity.items()))
                    await store()
                    if self._activity[key] is store:
                        del self._activity[key]
            except StorageError as error:
                log_failure(_log, "signs of people wait for the database", error)
                await anyio.sleep(_RETRY_S)
                self._active.set()

    async def _store_online(self, key: tuple[JID, JID]) -> None:
        await self.store.online(*key)
        self._waiting_online.discard(key)
        self.wake()

    async def _send_due(self) -> float:
        """Send to all recipients that are due. Returns the seconds until the next one is due."""
        while True:
            due, next_ms = await self.store.due(_PAGE)
            if not due:
                return _POLL_S if next_ms is None else min(_POLL_S, next_ms / 1000)
            async with anyio.create_task_group() as group:
                for agent, person in due:
                    group.start_soon(self._send_to, agent, person)
            if not self._kernel.stream.is_connected():
                return _POLL_S

    async def _send_to(self, agent: JID, person: JID) -> None:
        try:
            if not self._kernel.contacts.may_write(agent, person):
                _log.info("notifications are dropped: their recipient wants none")
                await self.store.forget(agent, person)
                self.changed(agent, person)
                return
            batch = await self.store.take(agent, person, self._plan)
            if batch is None:
                return
            if await self._sent(batch):
                await self.store.sent(batch, self._plan)
                self.changed(agent, person)
            else:
                await self.store.release(batch, _AGAIN_MS)
        except StorageError as error:
            # The claim expires, and the message is sent again under the same id.
            log_failure(_log, "a notification is sent again later", error)
            await anyio.sleep(_RETRY_S)

    def _plan(self, recipient: Recipient) -> Plan:
        return plan(recipient, self._settings, self._zone)

    async def _sent(self, batch: Batch) -> bool:
        """Send the messages of a batch. Returns whether the server has accepted them all."""
        dropped = batch.recipient.dropped
        by_id = {one.id: one for one in batch.recipient.notifications}
        zone = zone_of(batch.recipient.preferences, self._zone, system.now())
        deliveries: list[Delivery] = []
        for number, message in enumerate(batch.plan.messages):
            told = [by_id[id_] for id_ in message.ids]
            text = message_text(told, 0 if number else dropped, zone)
            files = [file for one in told for file in one.files]
            sent = OutboundMessage(
                id=message.id,
                conversation=conversation_with(batch.agent, batch.person),
                to=ReplyAddress(str(batch.person), batch.agent),
                parts=(*([Text(text)] if text else ()), *files),
                must_arrive=True,
                asks_for_reports=True,
            )
            deliveries.append(self._kernel.stream.messenger.send(sent))
        with anyio.move_on_after(_WRITTEN_S):
            written = [await delivery.settled() for delivery in deliveries]
            return all(written) and await self._kernel.stream.messenger.handled()
        # Messages that were written cannot be withdrawn; they are sent again under their ids if
        # others of the batch could be.
        withdrawn = [delivery.withdraw() for delivery in deliveries]
        return not any(withdrawn)


def _id_of(trigger: Trigger, agent: JID, person: JID) -> str:
    parts = (trigger.source, trigger.name, trigger.key, str(agent), str(person))
    return sha256("\n".join(parts).encode()).hexdigest()[:32]


def notification_text(work: Work, trigger: Trigger, outcome: str, text: str) -> str:
    """Return the text of a notification: that of the work's template, or the result. Empty if the
    work has no template and no result. For work that was not completed it is the reason, without a
    template. The Markdown of a result becomes message styling (XEP-0393).
    """
    result = styled(text.strip())
    if work.template and outcome == "completed":
        values = {
            "agent": work.agent,
            "first_line": shorten(result.partition("\n")[0], _LONGEST_LINE),
            "name": title_of(trigger),
            "source": trigger.source,
            "text": result,
        }
        return shorten(Template(work.template).safe_substitute(values), _LONGEST)
    return shorten(result, _LONGEST)


def message_text(notifications: Sequence[Notification], dropped: int, zone: tzinfo) -> str:
    """Return the body of a message: the text of one notification, or a digest of several, with the
    times in the person's zone. `dropped` is the number of notifications that are missing, because
    too many were held.
    """
    if len(notifications) == 1:
        text = notifications[0].text
    else:
        entries = (_entry(one, zone) for one in notifications)
        text = "\n\n".join((f"{len(notifications)} notifications:", *entries))
    if dropped:
        what = "notification was" if dropped == 1 else "notifications were"
        text += f"\n\n{dropped} older {what} dropped, because too many were held."
    return text


def _entry(one: Notification, zone: tzinfo) -> str:
    at = datetime.fromtimestamp(one.created / 1000, UTC).astimezone(zone)
    title = one.title.replace("*", "")
    return f"*{title}* ({at:%Y-%m-%d %H:%M}): {shorten(one.text, _LONGEST_IN_DIGEST)}"


_LOOK_S: Final = 5.0
"""Seconds between two searches for results that a killed instance has left."""
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 60.0
_LONGEST_TEXT: Final = 20_000


class Results:
    """Finds work that has ended, and passes its result to the notifier."""

    def __init__(self, kernel: Kernel, notifier: Notifier) -> None:
        self._kernel = kernel
        self._storage = kernel.storage
        self._notifier = notifier
        self._woken = anyio.Event()

    def wake(self) -> None:
        """Search for results soon, because work may have ended. Never waits."""
        self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Pass results on until cancelled."""
        task_status.started()
        wait = _FIRST_WAIT_S
        while True:
            await self._kernel.stream.messenger.ready()
            self._woken = anyio.Event()
            try:
                found = await self._storage.read(started_work.ended)
                for each in found:
                    await self._pass_on(each)
            except StorageError as error:
                log_failure(_log, "results have to wait", error, seconds=wait)
                await anyio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT_S)
                continue
            wait = _FIRST_WAIT_S
            if len(found) < started_work.AT_ONCE:
                with anyio.move_on_after(self._storage.poll_s(_LOOK_S)):
                    await self._woken.wait()

    async def _pass_on(self, ended: Started) -> None:
        trigger, work = ended.trigger, ended.work
        result = await self._outcome(ended)
        failure = result.text if result.outcome in ("failed", "rejected") else None
        is_known = failure is not None and await self._storage.read(
            partial(started_work.is_same_failure, trigger=trigger, failure=failure)
        )
        if failure is not None:
            # The owner is notified of a failure, even if the results are for others or nobody.
            work = msgspec.structs.replace(work, tell=(), silent=False)
            text = f"The {trigger.source} {title_of(trigger)} failed: {failure}"
            result = msgspec.structs.replace(result, text=text)
        told: Sequence[Notification] = ()
        try:
            if not is_known and not work.silent:
                subject = self._subject(ended, result)
                told = self._notifier.notifications_of(work, trigger, result, subject)
        except Exception:  # noqa: BLE001 - a fault with one result must not delay the others
            _log.exception("a result cannot be passed on", source=trigger.source, name=trigger.name)
        agents = self._kernel.agents
        if work.goal is not None and agents is not None:
            await agents.conversations.cancel(
                SessionKey(work.agent, work.principal), turn_of(trigger)
            )
        mark = partial(started_work.mark_passed_on, trigger=trigger, failure=failure)
        try:
            await self._notifier.record(told, mark)
        except UnstorableError as error:
            _log.error("a result cannot be passed on", name=trigger.name, reason=str(error))
            await self._storage.write(mark)

    def _subject(self, ended: Started, result: Ended) -> Subject:
        """Return what the notifications of a result tell of."""
        trigger, work = ended.trigger, ended.work
        is_answer = work.goal is not None and result.outcome == "completed"
        found: set[Taint | None] = {*work.taints}
        if work.filled or title_of(trigger) != trigger.name:
            found.add(trigger.taint)
        if is_answer:
            # What the model had read is known only where the turn is, which needs no copy of it.
            found.add("web")
        elif work.skill is not None:
            found.add(self._kernel.tasks.taint_of(work.skill))
        done = "has started this work for you" if work.skill is None else f"has run {work.skill}"
        return Subject(
            matter=f"{trigger.source} {trigger.name}",
            task=ended.task or "",
            about=f"A {trigger.source} {done}.",
            taints=tuple(sorted(one for one in found if one is not None)),
            turn=turn_of(trigger) if is_answer and not work.template else "",
        )

    async def _outcome(self, ended: Started) -> Ended:
        if ended.task is None:
            return Ended("failed", ended.failure or "")
        at = self._kernel.stream.addresses.address_of(ended.work.agent)
        try:
            task = await self._kernel.tasks.service.get(ended.work.principal, at, ended.task)
        except StanzaError:
            return Ended("completed")  # the task was deleted before its result was read
        return _ending_of(task)


def _ending_of(task: Task) -> Ended:
    if task.result is not None:
        outputs = task.result.outputs
        text = "\n\n".join(one.strip() for one in texts_of(outputs))[:_LONGEST_TEXT]
        return Ended("failed" if task.result.is_error else "completed", text, files_of(outputs))
    if task.state == "cancelled":
        return Ended("cancelled")
    texts: Sequence[str] = [one.text for one in task.failure.texts] if task.failure else []
    reason = texts[0] if texts else "The reason is not known."
    return Ended("rejected" if task.state == "rejected" else "failed", reason)
