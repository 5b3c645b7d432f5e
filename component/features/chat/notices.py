"""Texts that somebody gets once: the notice that an agent is a machine, and hints."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import structlog

from component.caches import LRUCache
from component.features.chat.rows import NoticeStore
from component.link.messages.delivery import Delivery
from component.link.messages.inbound import Account, InboundMessage
from component.policy.persons import Persons
from component.store import StorageError
from component.store.outages import log_failure
from xep.jid import JID

_REMEMBERED: Final = 4096


class Hints:
    """Remembers who has got a hint, for `every_s` seconds. `clock` returns seconds that only go
    forward.
    """

    def __init__(self, clock: Callable[[], float], every_s: float = 3600.0) -> None:
        self._clock = clock
        self._every_s = every_s
        self._given: LRUCache[JID, float] = LRUCache(_REMEMBERED)

    def is_due(self, address: JID) -> bool:
        """Whether an address gets the hint now; if so, it gets no other one for that time."""
        now, last = self._clock(), self._given.get(address)
        if last is not None and now - last < self._every_s:
            return False
        self._given[address] = now
        return True


_log = structlog.get_logger("component.message")

_TIMEOUT_S: Final = 1.5
"""Seconds that a client has to say that it does not belong to a person; people notice a longer
pause.
"""
_FLUSH_S: Final = 30.0
_MOST_REMEMBERED: Final = 10_000


class Notices:
    """Decides who gets the notice that an agent is a machine, and remembers who has received it.

    An agent that runs on an account is a program, not a person, and gets none. A sender that does
    not say what it is counts as a person (`component.policy.persons`).

    Args:
        agent_address: returns the address of the agent at an address of the component.
        text: returns the notice of an agent, by its bare address.
        handled: waits until the server has handled what was sent; returns False if the connection
            was lost before that.
    """

    def __init__(
        self,
        store: NoticeStore,
        persons: Persons,
        agent_address: Callable[[JID], JID],
        text: Callable[[JID], str],
        handled: Callable[[], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._persons = persons
        self._agent_address = agent_address
        self._text = text
        self._handled = handled
        self._told: LRUCache[tuple[JID, JID], bool] = LRUCache(_MOST_REMEMBERED)

    async def due(self, message: InboundMessage) -> str | None:
        """Return the notice to send before the answer to this message; None if none is needed.

        If the database is unavailable, a person gets it once per run of this process.
        """
        says_something = message.text or message.attachments or message.encryption
        if not says_something or not isinstance(message.actor, Account):
            return None
        key = agent, person = self._key(message)
        if self._told.get(key):
            return None
        try:
            if await self._store.is_sent(agent, person):
                self._told[key] = True
                return None
            if not await self._is_person(message):
                return None
            claimed = await self._store.claim(agent, person)
        except StorageError as error:
            log_failure(_log, "cannot find out who has received the notice", error)
            claimed = await self._is_person(message)
        if not claimed:
            return None
        self._told[key] = True
        return self._text(agent)

    async def sent(self, message: InboundMessage, delivery: Delivery) -> None:
        """Record permanently that the notice before this message's answer was sent.

        Waits until the server has received it: otherwise the next process sends it again.
        """
        agent, person = self._key(message)
        with anyio.move_on_after(_FLUSH_S):
            if not (await delivery.settled() and await self._handled()):
                return
            try:
                await self._store.sent(agent, person)
            except StorageError as error:
                log_failure(_log, "cannot record who has received the notice", error)

    def _key(self, message: InboundMessage) -> tuple[JID, JID]:
        return self._agent_address(message.conversation.agent), message.principal

    async def _is_person(self, message: InboundMessage) -> bool:
        person = self._persons.known(message.principal, message.sender)
        if person is None:
            with anyio.move_on_after(_TIMEOUT_S):
                person = await self._persons.asked(
                    message.principal, message.sender, message.reply_to.from_
                )
        return person is not False
