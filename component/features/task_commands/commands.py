"""Commands about tasks: one's own, and for admins everybody's."""

from typing import Annotated

import msgspec

from component.commands import (
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    NoParams,
    Outline,
)
from component.features.task_commands.sheets import (
    TaskSheet,
    retention_text,
    sheet_of,
    task_line,
    task_line_text,
    task_text,
)
from component.tasks.admin import Held, QueueLine, RefusedError, TaskAdmin
from component.tasks.protocol import Bounds
from component.tasks.service import TaskService
from xep.fluux_agent.execute import State
from xep.fluux_agent.task import Cancel, Task
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError

StateParam = Annotated[
    State | None, msgspec.Meta(title="State", description="Only tasks in this state.")
]
TaskParam = Annotated[str, msgspec.Meta(title="Task", description="ID of the task.")]


class OwnTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the list of one's own tasks."""

    state: StateParam = None
    limit: Annotated[
        int, msgspec.Meta(title="Limit", description="Maximum number of tasks.", ge=1, le=50)
    ] = 20


class AllTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the list for admins."""

    state: StateParam = None
    limit: Annotated[
        int, msgspec.Meta(title="Limit", description="Maximum number of tasks.", ge=1, le=1000)
    ] = 20
    principal: Annotated[
        str | None,
        msgspec.Meta(title="Principal", description="Only tasks of this bare JID."),
    ] = None
    all: Annotated[
        bool, msgspec.Meta(title="Everybody's", description="Tasks of everybody, not only yours.")
    ] = False


class OneTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a command about one task."""

    task: TaskParam


class RetryTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of retrying a task."""

    task: TaskParam
    force: Annotated[
        bool,
        msgspec.Meta(
            title="Force",
            description="Repeat steps even if they may already have had an effect.",
        ),
    ] = False


TASKS = Outline(
    name="tasks", title="Tasks", about="list your tasks, the latest first", params=OwnTasks
)
ALL_TASKS = Outline(
    name="tasks", title="Tasks", about="list tasks, the latest first", params=AllTasks, who="admin"
)
TASK = Outline(name="task", title="Show a task", about="show all details of a task", params=OneTask)
CANCEL = Outline(name="cancel", title="Cancel a task", about="cancel a task", params=OneTask)
RETRY = Outline(
    name="retry",
    title="Try a task again",
    about="start a new task that continues where a failed one stopped",
    params=RetryTask,
    who="admin",
)
RELEASE = Outline(
    name="release",
    title="Release a task",
    about="run a task again that was set aside after repeated crashes",
    params=OneTask,
    who="admin",
)


QUEUES = Outline(
    name="queues",
    title="Queues",
    about="list the named queues, their limits, and their running and waiting tasks",
    params=NoParams,
    who="admin",
)


class TaskCommands:
    """The commands about tasks.

    Args:
        task_admin: the tasks of all principals.
        tasks: the durable work; without it there are no commands about one's own tasks, as for
            the operator.
        bounds: the retention limits of one principal.
    """

    def __init__(
        self,
        task_admin: TaskAdmin,
        tasks: TaskService | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._bounds = bounds
        self._task_admin = task_admin
        self._tasks = tasks

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (
            TASKS.done_by(self._own),
            ALL_TASKS.done_by(self._all),
            TASK.done_by(self._show),
            CANCEL.done_by(self._end),
            RETRY.done_by(self._again),
            RELEASE.done_by(self._release),
            QUEUES.done_by(self._queues),
        )

    async def _own(self, asking: Asking, params: OwnTasks) -> CommandResult:
        tasks, who, at = self._theirs(asking)
        query = TaskList(state=params.state, page=ResultSet(max=params.limit))
        try:
            found = await tasks.list(who, at, query)
        except StanzaError as error:
            raise _refused(error) from None
        lines = [task_line(task) for task in found.tasks]
        text = "\n".join(map(task_line_text, lines)) or _none(params.state)
        if found.page is not None and found.page.count is None:  # the page does not contain all
            text += "\nThere are older ones: give a state, or a higher limit (up to 50)."
        if found.ended and self._bounds is not None:
            text += f"\n{retention_text(found.ended, found.ended_bytes or 0, self._bounds)}"
        return CommandResult(text, lines)

    async def _all(self, asking: Asking, params: AllTasks) -> CommandResult:
        principal = params.principal
        if principal is None and not params.all and asking.principal is not None:
            if self._tasks is not None and asking.at is not None:
                own = OwnTasks(state=params.state, limit=min(params.limit, 50))
                return await self._own(asking, own)
            principal = str(asking.principal)
        found = await self._task_admin.list_all(params.state, principal, params.limit)
        lines = [task_line(held.task, held.principal) for held in found]
        return CommandResult("\n".join(map(task_line_text, lines)) or _none(params.state), lines)

    async def _show(self, asking: Asking, params: OneTask) -> CommandResult:
        if asking.admin:
            return _task_result(_known(await self._task_admin.show(params.task)))
        tasks, who, at = self._theirs(asking)
        try:
            return _task_result(await tasks.get(who, at, params.task))
        except StanzaError as error:
            raise _refused(error) from None

    async def _end(self, asking: Asking, params: OneTask) -> CommandResult:
        if asking.admin:
            return _task_result(_known(await self._task_admin.cancel(params.task)))
        tasks, who, at = self._theirs(asking)
        try:
            return _task_result(await tasks.cancel(who, at, Cancel(id=params.task)))
        except StanzaError as error:
            raise _refused(error) from None

    async def _again(self, _asking: Asking, params: RetryTask) -> CommandResult:
        try:
            held = _known(await self._task_admin.retry(params.task, force=params.force))
        except RefusedError as error:
            raise CommandError(str(error), "task") from None
        return _task_result(held)

    async def _release(self, _asking: Asking, params: OneTask) -> CommandResult:
        try:
            return _task_result(_known(await self._task_admin.release(params.task)))
        except RefusedError as error:
            raise CommandError(str(error), "task") from None

    async def _queues(self, _asking: Asking, _params: NoParams) -> CommandResult:
        lines = list(await self._task_admin.queues())
        return CommandResult("\n".join(map(_queue_text, lines)) or "There are no queues.", lines)

    def _theirs(self, asking: Asking) -> tuple[TaskService, JID, JID]:
        if self._tasks is None or asking.principal is None or asking.at is None:
            raise CommandError("This works only over XMPP.")
        return self._tasks, asking.principal, asking.at


def _task_result(task: Held | Task) -> CommandResult:
    sheet: TaskSheet
    if isinstance(task, Held):
        sheet = sheet_of(task.task, task.principal, task.requester, task.target)
    else:
        sheet = sheet_of(task)
    return CommandResult(task_text(sheet), sheet)


def _queue_text(line: QueueLine) -> str:
    bounds = "no limits" if line.limit is None else f"at most {line.limit} at once"
    rate = "" if line.per_minute is None else f", {line.per_minute:g} a minute"
    return f"{line.name}: {line.running} running, {line.waiting} waiting ({bounds}{rate})"


def _known(held: Held | None) -> Held:
    if held is None:
        raise CommandError("There is no such task here.", "task")
    return held


def _none(state: State | None) -> str:
    return "There are no tasks." if state is None else f"There are no tasks that are {state}."


def _refused(error: StanzaError) -> CommandError:
    return CommandError(error.text or f"I cannot do that: {error.condition}.", "task")
