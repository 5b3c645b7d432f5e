"""What people have read and put away: recorded from their clients' markers (XEP-0333) and their
commands.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import structlog
from anyio.abc import TaskStatus

from component.features.inbox import rows
from component.features.inbox.entries import Entry
from component.link.messages.inbound import Account, InboundMessage
from component.store.database import Database
from component.store.errors import StorageError
from component.store.notifications import NotificationStore
from component.store.outages import log_failure
from xep.jid import JID

if TYPE_CHECKING:
    from component.kernel.kernel import Kernel

_log = structlog.get_logger("component.inbox")

_MOST_NOTED: Final = 10_000
_RETRY_S: Final = 2.0
_MORE_MS: Final = 7 * 86_400_000
"""How long an entry is put away after its task may have been deleted, in milliseconds."""


class InboxStore:
    """Records what people have displayed and put away.

    Attributes:
        changed: is called with an agent and a person whose inbox has changed. Never waits.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self.changed: Callable[[JID, JID], None] = lambda _agent, _person: None
        self._storage = kernel.storage
        self._notifications = NotificationStore(kernel.storage)
        self._sent = kernel.stream.messenger.sent
        self._keep_ms = kernel.tasks.limits.retention_ms + _MORE_MS
        self._displayed: dict[tuple[JID, JID], tuple[str, int | None]] = {}
        """The last message that somebody has displayed, and when it was queued, until that is
        stored.
        """
        self._noted = anyio.Event()

    def message_received(self, message: InboundMessage) -> None:
        """Note the marker in a message. Never waits."""
        if message.displayed is None or not isinstance(message.actor, Account):
            return
        key = message.conversation.agent, message.principal
        if message.type == "error" or message.copy is not None:
            return
        if len(self._displayed) < _MOST_NOTED or key in self._displayed:
            known = self._sent.time_of(message.conversation, message.displayed)
            id_ = self._sent.id_of(message.conversation, message.displayed)
            self._displayed[key] = id_, None if known is None else round(known * 1000)
            self._noted.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Store markers until cancelled."""
        task_status.started()
        while True:
            await self._noted.wait()
            self._noted = anyio.Event()
            noted, self._displayed = self._displayed, {}
            try:
                await self._storage.write(partial(_store, noted=noted))
            except StorageError as error:
                log_failure(_log, "markers of people wait for the database", error)
                self._displayed = {**noted, **self._displayed}
                await anyio.sleep(_RETRY_S)
                self._noted.set()
                continue
            for agent, person in noted:
                self.changed(agent, person)

    async def put_away(self, person: JID, at: JID, entries: Sequence[Entry]) -> None:
        """Put entries away, and delete notifications that are held. Raises StorageError."""
        archived = [one.id for one in entries if one.kind != "held"]

        def op(database: Database) -> None:
            rows.archive(database, at, person, archived, self._keep_ms)

        await self._storage.write(op)
        for one in entries:
            if one.kind == "held":
                await self._notifications.drop(person, one.id, at)
        self.changed(at, person)


def _store(database: Database, noted: Mapping[tuple[JID, JID], tuple[str, int | None]]) -> None:
    for (agent, person), (message, queued) in noted.items():
        rows.note_displayed(database, agent, person, message, queued)
