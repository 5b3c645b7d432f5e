"""The PubSub node of schedules: each principal sees its own, and is notified when one fires."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from component import system
from component.features.schedules import rows
from component.features.schedules.rows import Schedule
from component.features.schedules.runner import Firing
from component.features.schedules.skills import row_of
from component.features.schedules.timing import next_after
from component.pubsub.config import NodeConfig
from component.pubsub.rows import StoredItem
from component.pubsub.service import PubSubService
from component.storage.storage import Storage
from xep.binding import encode
from xep.fluux_agent import NAMESPACE as AGENT
from xep.jid import JID
from xep.json_containers import NAMESPACE as JSON
from xep.json_containers import Json

SCHEDULES: Final = f"{AGENT}#schedules"
"""The name of the node."""
_MOST: Final = 1_000


class ScheduleNode:
    """A `component.pubsub.computed.ComputedNode`: the schedules of a principal, one item each.

    The id of an item is that of the schedule; its payload is a JSON object (XEP-0335) with the
    members of `component.features.schedules.skills.ScheduleRow`. When a schedule fires, its item
    changes: `last` is then the nominal instant in UTC and `task` the id of the task.

    Args:
        storage: has the table `schedules`.
        address_of: the address of an agent by its name.
        is_agent: whether an address is that of an agent.
    """

    name = SCHEDULES
    is_compared = False
    config = NodeConfig(
        title="Schedules",
        description="Your schedules, and when they fired",
        type=JSON,
        access_model="open",
        max_items=_MOST,
        send_last_published_item="never",
    )

    def __init__(
        self,
        storage: Storage,
        address_of: Callable[[str], JID],
        is_agent: Callable[[JID], bool],
    ) -> None:
        self._storage = storage
        self._address_of = address_of
        self._is_agent = is_agent

    def is_at(self, service: JID) -> bool:
        """Whether the address has this node."""
        return self._is_agent(service.bare)

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """The schedules for which this agent works. Raises StorageError."""
        found = await self._storage.read(partial(rows.listed, owner=principal.bare))
        mine = [one for one in found if self._address_of(one.agent) == service.bare]
        return [_item(service, one) for one in mine[:_MOST]]


class ScheduleNews:
    """Notifies principals of firings (a `FiringListener`) and changes of their schedules.

    Args:
        nodes: notifies subscribers.
        address_of: the address of an agent by its name.
    """

    def __init__(self, nodes: PubSubService, address_of: Callable[[str], JID]) -> None:
        self._nodes = nodes
        self._address_of = address_of

    async def fired(self, firing: Firing) -> None:
        """A schedule has fired."""
        following = next_after(firing.schedule.definition.timing, firing.instant)
        fired = msgspec.structs.replace(
            firing.schedule, fired=firing.instant, due=following or firing.instant
        )
        self._tell(fired, firing.task or "", is_over=following is None)

    def changed(self, schedule: Schedule) -> None:
        """A schedule was added, paused or resumed. Never waits."""
        self._tell(schedule)

    def removed(self, schedule: Schedule) -> None:
        """A schedule was removed. Never waits."""
        address = self._address_of(schedule.agent)
        self._nodes.recomputed(address, SCHEDULES, schedule.owner, gone=(schedule.id,))

    def forgotten(self, schedules: Sequence[Schedule]) -> None:
        """Schedules were removed with all other data of their owner. Never waits."""
        for schedule in schedules:
            self.removed(schedule)

    def _tell(self, schedule: Schedule, task: str = "", *, is_over: bool = False) -> None:
        address = self._address_of(schedule.agent)
        item = _item(address, schedule, task, is_over=is_over)
        self._nodes.recomputed(address, SCHEDULES, schedule.owner, (item,))


def _item(service: JID, schedule: Schedule, task: str = "", *, is_over: bool = False) -> StoredItem:
    row = row_of(schedule)
    row = msgspec.structs.replace(row, task=task, next="" if is_over else row.next)
    return StoredItem(
        id=schedule.id,
        payload=encode(Json(value=msgspec.Raw(msgspec.json.encode(row)))),
        publisher=str(service),
        published=schedule.fired or system.now(),
    )
