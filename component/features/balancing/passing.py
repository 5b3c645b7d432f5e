"""Passes stanzas on to the instance that waits for them.

The server chooses a connection by the sender of a stanza alone, so the answer to an IQ can arrive
at an instance that has not sent it. Ids begin with the tag of the instance that made them: those of
IQs, of probes, and of the sessions of ad-hoc commands.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from xml.etree.ElementTree import fromstring

import anyio
import structlog
from anyio.abc import TaskStatus

from component.features.balancing import rows
from component.features.balancing.instances import TAG_LENGTH, Instances
from component.link.connection.probe import PROBE
from component.link.router.rare_log import RareLog
from component.link.router.router import StanzaEvent
from component.store import Storage, StorageError
from xep.binding import ContentError
from xep.commands import Command
from xep.stanza import IQ, NAMESPACE, Incoming
from xep.stanza_error import StanzaError
from xep.stream import StanzaSkipped

_log = structlog.get_logger("component.features.balancing")

_ANSWERS: Final = ("result", "error")
_MOST_BYTES: Final = 4_000_000
"""The size of all stanzas that wait to be passed on. More are dropped."""


class StanzaPassing:
    """Passes stanzas on to other instances.

    Args:
        domain: that of our addresses.
        hand_over: handles a stanza that another instance has received for this one.
    """

    def __init__(
        self,
        storage: Storage,
        instances: Instances,
        domain: str,
        hand_over: Callable[[Incoming], Awaitable[None]],
    ) -> None:
        self._storage = storage
        self._instances = instances
        self._domain = domain
        self._hand_over = hand_over
        self._waiting: deque[tuple[str, str]] = deque()
        self._bytes = 0
        self._put = anyio.Event()
        self._rare_log = RareLog(_log)

    def screen(self, events: Sequence[StanzaEvent]) -> Sequence[StanzaEvent]:
        """Return the stanzas that are for this instance; pass those on that another one waits
        for.
        """
        return [event for event in events if not self._take(event)]

    def _take(self, event: StanzaEvent) -> bool:
        """Take a stanza that is not for this instance; return whether it is not."""
        id_ = self._id_of(event) or ""
        tag = id_[:TAG_LENGTH]
        if tag not in self._instances.others:
            # A probe is recognised by its connection, unless that or its instance has ended.
            return id_.startswith(PROBE, TAG_LENGTH) and self._is_own(_sender_of(event))
        text = _refusal(event) if isinstance(event, StanzaSkipped) else event.stanza.forward()
        if self._bytes + len(text) > _MOST_BYTES:
            self._rare_log.warning("dropped an answer for another instance", bytes=len(text))
            return True
        self._waiting.append((tag, text))
        self._bytes += len(text)
        self._put.set()
        return True

    def _id_of(self, event: StanzaEvent) -> str | None:
        """Return the id whose tag says which instance waits for a stanza; None if none does."""
        if isinstance(event, StanzaSkipped):
            return event.id if event.kind == "iq" and event.type in _ANSWERS else None
        stanza = event.stanza
        if stanza.kind != "iq":
            return None
        if stanza.type in _ANSWERS or self._is_own(stanza.sender):
            return stanza.id
        if stanza.sole_child == Command.xml.tag:
            try:
                return stanza.sole_payload(Command).sessionid
            except ContentError:
                return None
        return None

    def _is_own(self, sender: str | None) -> bool:
        """Whether a stanza comes from one of our addresses, as probes do."""
        return sender is not None and sender.rpartition("@")[2] == self._domain

    async def send(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Store what is to be passed on, until cancelled."""
        task_status.started()
        while True:
            await self._put.wait()
            self._put = anyio.Event()
            batch = tuple(self._waiting)
            self._waiting.clear()
            self._bytes = 0
            try:
                await self._storage.write(lambda database: rows.put(database, batch))  # noqa: B023
            except StorageError as error:
                self._rare_log.warning(
                    "cannot pass answers on to another instance", reason=str(error)
                )

    async def receive(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Handle what other instances pass on, until cancelled."""
        tag = self._instances.tag
        async with self._storage.listen(rows.channel_of(tag)) as notified:
            task_status.started()
            async for _ in notified:
                taken = await self._storage.write(
                    lambda database: rows.take(database, tag), keep_trying=True
                )
                for text in taken:
                    await self._hand_over(_received(text))


def _sender_of(event: StanzaEvent) -> str | None:
    return event.from_ if isinstance(event, StanzaSkipped) else event.stanza.sender


def _refusal(event: StanzaSkipped) -> str:
    """Return what an instance gets for an answer that cannot be read."""
    error = StanzaError("policy-violation", f"the answer of {event.from_} cannot be read")
    return IQ(
        type="error", id=event.id or "", to=event.to or "", from_=event.from_ or "", error=error
    ).encode()


def _received(text: str) -> Incoming:
    # It was parsed by the stream of the other instance, and written again.
    whole = fromstring(f"<stanza xmlns='{NAMESPACE}'>{text}</stanza>")  # noqa: S314
    return Incoming.of(whole[0], len(text.encode()))
