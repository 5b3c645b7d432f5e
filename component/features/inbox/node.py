"""The PubSub node of the inbox: each principal sees its own, and is notified of changes."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.agent_addresses import both_addresses
from component.caches import FIFOCache
from component.features.inbox.entries import Entry
from component.features.inbox.texts import row_of
from component.features.inbox.view import InboxView
from component.pubsub.config import NodeConfig
from component.pubsub.rows import StoredItem
from component.pubsub.service import ComputedNode
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.tasks.protocol import DeletedTask, Notice
from xep.binding import encode
from xep.fluux_agent import NAMESPACE as AGENT
from xep.jid import JID
from xep.json_containers import NAMESPACE as JSON
from xep.json_containers import Json

if TYPE_CHECKING:
    from component.kernel.kernel import Kernel

_log = structlog.get_logger("component.inbox")

INBOX: Final = f"{AGENT}#inbox"
"""The name of the node."""
_MOST: Final = 1_000
_GATHER_S: Final = 0.2
"""Seconds for which changes are collected before subscribers are notified."""
_RETRY_S: Final = 2.0
_MOST_WAITING: Final = 10_000


class InboxNode(ComputedNode):
    """What waits for a principal, one item each. The id of an item is that of the entry; its
    payload is a JSON object (XEP-0335) with the members of `InboxRow`.
    """

    name = INBOX
    is_compared = True
    config = NodeConfig(
        title="Inbox",
        description="What waits for you",
        type=JSON,
        access_model="open",
        max_items=_MOST,
        send_last_published_item="never",
    )

    def __init__(self, kernel: "Kernel", view: InboxView) -> None:
        self._view = view
        self._nodes = kernel.pubsub
        address_of = kernel.stream.addresses.address_of
        self._agents = frozenset(
            address
            for name in kernel.settings.agent_names
            for address in both_addresses(address_of(name))
        )
        self._changed: dict[tuple[JID, JID], None] = {}
        self._any_changed = anyio.Event()
        self._waiting: FIFOCache[str, None] = FIFOCache(_MOST_WAITING)
        """Tasks that have waited for an answer when they last changed."""

    def is_at(self, service: JID) -> bool:
        """Return whether the address has this node."""
        return service.bare in self._agents

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """Return what waits for a principal, the last in the list first. Raises StorageError."""
        entries = await self._view.of(principal.bare, service.bare)
        return [_item(service, one) for one in reversed(entries[:_MOST])]

    # Changes; no method waits.

    def changed(self, agent: JID, person: JID) -> None:
        """Notify the subscribers of a person soon."""
        self._changed[agent.bare, person.bare] = None
        self._any_changed.set()

    def task_changed(self, notice: Notice) -> None:
        """Notify the principal of a task, and those who were asked about it, of changes that may be
        in an inbox.
        """
        task, waits = notice.task, notice.task.state == "input-required"
        waited = task.id in self._waiting
        if waits:
            self._waiting[task.id] = None
        elif waited:
            del self._waiting[task.id]
        has_failed = notice.final and task.state == "failed"
        is_read = notice.final and notice.request.conversational
        if not (waits or waited or has_failed or is_read):
            return
        people = {notice.request.principal.bare}
        if notice.question is not None:
            people.update(notice.question.asked)
        for person in people:
            self.changed(notice.request.target, person)

    def task_deleted(self, task: DeletedTask) -> None:
        """Notify the principal of a task that is not stored any more."""
        self.changed(JID.parse(task.target), JID.parse(task.principal))

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Notify subscribers until cancelled."""
        task_status.started()
        while True:
            await self._any_changed.wait()
            await anyio.sleep(_GATHER_S)
            self._any_changed = anyio.Event()
            changed, self._changed = self._changed, {}
            try:
                await self._notify(changed)
            except StorageError as error:
                log_failure(_log, "subscribers are notified of their inboxes later", error)
                self._changed = changed | self._changed
                await anyio.sleep(_RETRY_S)
                self._any_changed.set()

    async def _notify(self, changed: Collection[tuple[JID, JID]]) -> None:
        addresses = {address for agent, _ in changed for address in both_addresses(agent)}
        for address in addresses & self._agents:
            subscribers = await self._nodes.subscribers(address, INBOX)
            for agent, person in changed:
                if str(person) in subscribers and address in both_addresses(agent):
                    await self._nodes.refresh_view(address, INBOX, person)


def _item(service: JID, entry: Entry) -> StoredItem:
    payload = Json(value=msgspec.Raw(msgspec.json.encode(row_of(entry))))
    return StoredItem(
        id=entry.id, payload=encode(payload), publisher=str(service), published=entry.at
    )
