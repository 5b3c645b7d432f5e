"""Commands about tasks: one's own, and for admins everybody's."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Final, get_args

import msgspec

from component.commands import (
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    NoParams,
    Outline,
    when,
)
from component.features.task_commands import sheets
from component.tasks.admin import Held, QueueLine, RefusedError, TaskAdmin
from component.tasks.protocol import Bounds
from component.tasks.service import TaskService
from xep.fluux_agent.execute import State
from xep.fluux_agent.task import Cancel, Task
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError

_IN_PROGRESS: Final[Collection[State]] = ("accepted", "running", "input-required")
_FAILED: Final[frozenset[State]] = frozenset(("failed",))
_MOST_READ: Final = 50


class OwnTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the list of one's own tasks.

    Args:
        state: Only tasks in this state.
        limit: Maximum number of tasks.
    """

    state: State | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 20


class AllTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the list for admins.

    Args:
        state: Only tasks in this state.
        limit: Maximum number of tasks.
        principal: Only tasks of this bare JID.
        all: Tasks of everybody, not only yours.
    """

    state: State | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 20
    principal: str | None = None
    all: Annotated[bool, msgspec.Meta(title="Everybody's")] = False


class OneTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a command about one task.

    Args:
        task: ID of the task.
    """

    task: str


class RetryTask(OneTask, frozen=True, forbid_unknown_fields=True):
    """The parameters of retrying a task.

    Args:
        force: Repeat steps even if they may already have had an effect.
    """

    force: bool = False


TASKS = Outline(
    name="tasks",
    title="Tasks",
    about="list your tasks, the latest first",
    params=OwnTasks,
    everyday=True,
)
ALL_TASKS = Outline(
    name="tasks",
    title="Tasks",
    about="list tasks, the latest first",
    params=AllTasks,
    who="admin",
    everyday=True,
)
TASK = Outline(name="task", title="Show a task", about="show all details of a task", params=OneTask)
CANCEL = Outline(
    name="cancel", title="Cancel a task", about="cancel a task", params=OneTask, everyday=True
)
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
    """The commands about tasks. Without `tasks` there are none about one's own, as for the
    operator. `bounds` are the retention limits of one principal; `title_of` returns the title of a
    skill.
    """

    def __init__(
        self,
        task_admin: TaskAdmin,
        tasks: TaskService | None = None,
        bounds: Bounds | None = None,
        title_of: Callable[[str], str] = str,
    ) -> None:
        self._title_of = title_of
        self._bounds = bounds
        self._task_admin = task_admin
        self._tasks = tasks

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (
            TASKS.done_by(self._own),
            ALL_TASKS.done_by(self._all),
            TASK.done_by(self._show, {"task": partial(self._titles, get_args(State))}),
            CANCEL.done_by(self._end, {"task": partial(self._titles, _IN_PROGRESS)}),
            RETRY.done_by(self._again, {"task": partial(self._titles, _FAILED)}),
            RELEASE.done_by(self._release, {"task": partial(self._titles, _IN_PROGRESS)}),
            QUEUES.done_by(self._queues),
        )

    async def _own(self, asking: Asking, params: OwnTasks) -> CommandResult:
        tasks, who, at = self._theirs(asking)
        query = TaskList(state=params.state, page=ResultSet(max=params.limit))
        with _as_command_error():
            found = await tasks.list(who, at, query)
        lines = [sheets.task_line(task) for task in found.tasks]
        text = _lines_text(lines, params.state)
        if found.page is not None and found.page.count is None:  # the page does not contain all
            text += "\nThere are older ones: give a state, or a higher limit (up to 50)."
        if found.ended and self._bounds is not None:
            text += f"\n{sheets.retention_text(found.ended, found.ended_bytes or 0, self._bounds)}"
        return CommandResult(text, lines)

    async def _all(self, asking: Asking, params: AllTasks) -> CommandResult:
        principal = params.principal
        if principal is None and not params.all and asking.principal is not None:
            if self._tasks is not None and asking.at is not None:
                own = OwnTasks(state=params.state, limit=min(params.limit, 50))
                return await self._own(asking, own)
            principal = str(asking.principal)
        found = await self._task_admin.list_all(params.state, principal, params.limit)
        lines = [sheets.task_line(held.task, held.principal) for held in found]
        return CommandResult(_lines_text(lines, params.state), lines)

    async def _show(self, asking: Asking, params: OneTask) -> CommandResult:
        if asking.admin:
            return _task_result(await self._task_admin.show(params.task))
        tasks, who, at = self._theirs(asking)
        with _as_command_error():
            return _task_result(await tasks.get(who, at, params.task))

    async def _end(self, asking: Asking, params: OneTask) -> CommandResult:
        if asking.admin:
            return _task_result(await self._task_admin.cancel(params.task))
        tasks, who, at = self._theirs(asking)
        with _as_command_error():
            return _task_result(await tasks.cancel(who, at, Cancel(id=params.task)))

    async def _again(self, _asking: Asking, params: RetryTask) -> CommandResult:
        with _as_command_error():
            return _task_result(await self._task_admin.retry(params.task, force=params.force))

    async def _release(self, _asking: Asking, params: OneTask) -> CommandResult:
        with _as_command_error():
            return _task_result(await self._task_admin.release(params.task))

    async def _queues(self, _asking: Asking, _params: NoParams) -> CommandResult:
        lines = list(await self._task_admin.queues())
        return CommandResult("\n".join(map(_queue_text, lines)) or "There are no queues.", lines)

    async def _titles(self, states: Collection[State], asking: Asking) -> Mapping[str, str]:
        """Return titles of the latest tasks in some states, by id: one's own, or an admin's all."""
        if asking.admin:
            held = await self._task_admin.list_all(None, None, _MOST_READ)
            found = [(one.task, one.principal) for one in held]
        else:
            tasks, who, at = self._theirs(asking)
            listed = await tasks.list(who, at, TaskList(page=ResultSet(max=_MOST_READ)))
            found = [(task, "") for task in listed.tasks]
        return {
            task.id: self._title(task, principal)
            for task, principal in found
            if task.state in states
        }

    def _title(self, task: Task, principal: str) -> str:
        title = f"{self._title_of(task.skill or '')}, {task.state}"
        if task.created is not None:
            title += f", {when(task.created)}"
        return f"{title}, for {principal}" if principal else title

    def _theirs(self, asking: Asking) -> tuple[TaskService, JID, JID]:
        if self._tasks is None or asking.principal is None or asking.at is None:
            raise CommandError("This works only over XMPP.")
        return self._tasks, asking.principal, asking.at


def _task_result(task: Held | Task | None) -> CommandResult:
    if task is None:
        raise CommandError("There is no such task here.", "task")
    if isinstance(task, Held):
        sheet = sheets.sheet_of(task.task, task.principal, task.requester, task.target)
    else:
        sheet = sheets.sheet_of(task)
    return CommandResult(sheets.task_text(sheet), sheet)


def _queue_text(line: QueueLine) -> str:
    bounds = "no limits" if line.limit is None else f"at most {line.limit} at once"
    rate = "" if line.per_minute is None else f", {line.per_minute:g} a minute"
    return f"{line.name}: {line.running} running, {line.waiting} waiting ({bounds}{rate})"


def _lines_text(lines: Sequence[sheets.TaskLine], state: State | None) -> str:
    none = "There are no tasks." if state is None else f"There are no tasks that are {state}."
    return "\n".join(map(sheets.task_line_text, lines)) or none


@contextmanager
def _as_command_error() -> Iterator[None]:
    try:
        yield
    except StanzaError as error:
        raise CommandError(error.text or f"I cannot do that: {error.condition}.", "task") from None
    except RefusedError as error:
        raise CommandError(str(error), "task") from None
