"""The PubSub node of schedules: each principal sees its own, and is notified when one fires."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from component import system
from component.features.schedules import rows
from component.features.schedules.rows import Schedule
from component.features.schedules.timing import next_after
from component.pubsub.config import NodeConfig
from component.pubsub.rows import StoredItem
from component.pubsub.service import ComputedNode
from xep.binding import encode
from xep.fluux_agent import NAMESPACE as AGENT
from xep.jid import JID
from xep.json_containers import NAMESPACE as JSON
from xep.json_containers import Json

if TYPE_CHECKING:
    from component.kernel.kernel import Kernel

SCHEDULES: Final = f"{AGENT}#schedules"
"""The name of the node."""
_MOST: Final = 1_000


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule, as programs get it. Instants are in UTC, in the format of RFC 3339. `task` is the
    id of the task of the last firing, if known.
    """

    id: str
    name: str
    state: str
    when: str
    zone: str
    next: str
    last: str = ""
    agent: str
    owner: str
    goal: str = ""
    skill: str = ""
    missed: str
    origin: str
    task: str = ""


def row_of(schedule: Schedule) -> ScheduleRow:
    """Return a schedule for programs."""
    definition, work = schedule.definition, schedule.definition.work
    return ScheduleRow(
        id=schedule.id,
        name=schedule.name,
        state=schedule.state,
        when=definition.when,
        zone=definition.zone,
        next=f"{schedule.due:%Y-%m-%dT%H:%M:%SZ}" if schedule.state == "active" else "",
        last="" if schedule.fired is None else f"{schedule.fired:%Y-%m-%dT%H:%M:%SZ}",
        agent=work.agent,
        owner=str(schedule.owner),
        goal=work.goal or "",
        skill=work.skill or "",
        missed=definition.missed,
        origin=schedule.origin,
    )


class ScheduleNode(ComputedNode):
    """The schedules of a principal, one item each. The id of an item is that of the schedule; its
    payload is a JSON object (XEP-0335) with the members of `ScheduleRow`. When a schedule fires,
    its item changes: `last` is then the nominal instant in UTC and `task` the id of the task.
    """

    name = SCHEDULES
    config = NodeConfig(
        title="Schedules",
        description="Your schedules, and when they fired",
        type=JSON,
        access_model="open",
        max_items=_MOST,
        send_last_published_item="never",
    )

    def __init__(self, kernel: "Kernel") -> None:
        self._storage = kernel.storage
        self._nodes = kernel.pubsub
        self._address_of = kernel.stream.addresses.address_of
        self._agents = frozenset(map(self._address_of, kernel.settings.agent_names))

    def is_at(self, service: JID) -> bool:
        """Return whether the address has this node."""
        return service.bare in self._agents

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """Return the schedules for which this agent works. Raises StorageError."""
        found = await self._storage.read(partial(rows.listed, owner=principal.bare))
        mine = [one for one in found if self._address_of(one.agent) == service.bare]
        return [_item(service, one) for one in mine[:_MOST]]

    # Notifications of principals; no method waits.

    def fired(self, schedule: Schedule, instant: datetime, task: str | None) -> None:
        """A schedule has fired; `task` is None if its work was refused."""
        following = next_after(schedule.definition.timing, instant)
        fired = msgspec.structs.replace(schedule, fired=instant, due=following or instant)
        self._tell(fired, task or "", is_over=following is None)

    def changed(self, schedule: Schedule) -> None:
        """A schedule was added, paused or resumed."""
        self._tell(schedule)

    def removed(self, *schedules: Schedule) -> None:
        """Schedules were removed."""
        for each in schedules:
            address = self._address_of(each.agent)
            self._nodes.recomputed((address,), SCHEDULES, each.owner, each.id, None)

    def _tell(self, schedule: Schedule, task: str = "", *, is_over: bool = False) -> None:
        address = self._address_of(schedule.agent)
        payload = _payload(schedule, task, is_over=is_over)
        self._nodes.recomputed((address,), SCHEDULES, schedule.owner, schedule.id, payload)


def _item(service: JID, schedule: Schedule) -> StoredItem:
    return StoredItem(
        id=schedule.id,
        payload=_payload(schedule),
        publisher=str(service),
        published=schedule.fired or system.now(),
    )


def _payload(schedule: Schedule, task: str = "", *, is_over: bool = False) -> str:
    row = row_of(schedule)
    row = msgspec.structs.replace(row, task=task, next="" if is_over else row.next)
    return encode(Json(value=msgspec.Raw(msgspec.json.encode(row))))
