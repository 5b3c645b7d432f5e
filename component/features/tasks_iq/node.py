"""The computed PubSub nodes of agents: skills, and the tasks of a principal.

Each principal sees its own items; nothing is copied into the tables of the PubSub service.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from component import system
from component.agent_addresses import both_addresses
from component.features.tasks_iq.handlers import describe
from component.pubsub.config import NodeConfig
from component.pubsub.rows import StoredItem
from component.pubsub.service import ComputedNode, PubSubService
from component.skills.registry import View
from component.tasks.protocol import DeletedTask, Notice
from component.tasks.service import TaskService
from xep.binding import encode
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent import skills as fluux
from xep.fluux_agent.task import Task
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID
from xep.result_sets import ResultSet

SKILLS: Final = fluux.NAMESPACE
"""The node of skills (specification, SKL-015)."""
TASKS: Final = f"{AGENT}#tasks"
"""The node of a principal's tasks."""
_MOST_TASKS: Final = 50
_DIGEST_BYTES: Final = 8


class SkillsNode(ComputedNode):
    """The skills that a principal may use, one item each; its id is the name of the skill."""

    name = SKILLS
    is_compared = True
    config = NodeConfig(
        title="Skills",
        description="The skills that you may use",
        type=fluux.NAMESPACE,
        access_model="open",
        max_items=10_000,
        send_last_published_item="never",
    )

    def __init__(self, view: Callable[[JID], View]) -> None:
        self._view = view
        self._since = system.now()

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """Return the skills in the principal's view, sorted by name (SKL-015, SKL-016)."""
        return await self.chosen(service, principal, self._view(principal).names())

    async def digests(self, _service: JID, principal: JID) -> Mapping[str, str]:
        """Return the digests of the skills."""
        entries = self._view(principal).entries()
        return {one.name: one.digest[:_DIGEST_BYTES].hex() for one in entries}

    async def chosen(
        self, service: JID, principal: JID, ids: Collection[str]
    ) -> Sequence[StoredItem]:
        """Return those of the skills with these names, which are made for it."""
        view, publisher = self._view(principal), str(service)
        return [
            StoredItem(
                id=name, payload=encode(describe(skill)), publisher=publisher, published=self._since
            )
            for name in sorted(ids)
            if (skill := view.get(name)) is not None
        ]


class TasksNode(ComputedNode):
    """The tasks of a principal, the newest last; the id of an item is that of the task.

    An item contains the state of the task, its progress and the steps of a plan; clients fetch the
    result by the id.
    """

    name = TASKS
    config = NodeConfig(
        title="Tasks",
        description="Your tasks",
        access_model="open",
        max_items=_MOST_TASKS,
        send_last_published_item="never",
    )

    def __init__(self, tasks: TaskService, pubsub: PubSubService) -> None:
        self._tasks = tasks
        self._pubsub = pubsub

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """Return the newest tasks of the principal at this address. Raises StorageError."""
        query = TaskList(page=ResultSet(max=_MOST_TASKS))
        answer = await self._tasks.list(principal, service, query)
        return [task_item(task, service) for task in reversed(answer.tasks)]

    def changed(self, notice: Notice) -> None:
        """Notify a principal of a task of its own. Never waits."""
        request = notice.request
        addresses = dict.fromkeys(both_addresses(request.target))
        payload = _payload(notice.task)
        self._pubsub.recomputed(addresses, TASKS, request.principal, notice.task.id, payload)

    def deleted(self, task: DeletedTask) -> None:
        """Notify a principal that a task of its own is not stored any more. Never waits."""
        addresses = dict.fromkeys(both_addresses(JID.parse(task.target)))
        self._pubsub.recomputed(addresses, TASKS, JID.parse(task.principal), task.id, None)


def task_item(task: Task, service: JID) -> StoredItem:
    """Return the item of a task."""
    return StoredItem(
        id=task.id,
        payload=_payload(task),
        publisher=str(service),
        published=task.updated or task.created or system.now(),
    )


def _payload(task: Task) -> str:
    """Return a task as XML, without values that can be large or private."""
    shown = msgspec.structs.replace(
        task, outputs=(), input=None, confirm=None, result=None, failure=None
    )
    return encode(shown)
