"""Commands about tasks: one's own, and for admins everybody's."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Final, get_args

import msgspec
from anyio.lowlevel import checkpoint

from component import system
from component.commands import (
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    NoParams,
    Outline,
    whole_id,
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
_WHOLE_ID: Final = 24
"""An id of so many characters or more is not the beginning of one."""
_MOST_OWN: Final = 50
_MOST_LISTED: Final = 1000


async def _utc(_asking: Asking) -> str:
    await checkpoint()
    return "UTC"


def _title_of(skill: str) -> str:
    return skill


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
        task: ID of the task, or its beginning, as in the list.
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
    group="everyday",
    only_reads=True,
)
ALL_TASKS = Outline(
    name="tasks",
    title="Tasks",
    about="list tasks, the latest first",
    params=AllTasks,
    who="admin",
    group="everyday",
    only_reads=True,
)
TASK = Outline(
    name="task",
    title="Show a task",
    about="show all details of a task",
    params=OneTask,
    group="tasks",
    only_reads=True,
)
CANCEL = Outline(
    name="cancel", title="Cancel a task", about="cancel a task", params=OneTask, group="tasks"
)
RETRY = Outline(
    name="retry",
    title="Try a task again",
    about="start a new task that continues where a failed one stopped",
    params=RetryTask,
    who="admin",
    group="tasks",
)
RELEASE = Outline(
    name="release",
    title="Release a task",
    about="run a task again that was set aside after repeated crashes",
    params=OneTask,
    who="admin",
    group="tasks",
)


QUEUES = Outline(
    name="queues",
    title="Queues",
    about="list the named queues, their limits, and their running and waiting tasks",
    params=NoParams,
    who="admin",
    group="tasks",
    only_reads=True,
)


class Readers(msgspec.Struct, frozen=True):
    """What texts for people need: `title` returns the title of a skill by its name, `zone` the name
    of the time zone of a caller.
    """

    title: Callable[[str], str] = _title_of
    zone: Callable[[Asking], Awaitable[str]] = _utc


_OPERATOR_ONLY: Final = Readers()


class TaskCommands:
    """The commands about tasks. Without `tasks` there are none about one's own, as for the
    operator. `bounds` are the retention limits of one principal.
    """

    def __init__(
        self,
        task_admin: TaskAdmin,
        tasks: TaskService | None = None,
        bounds: Bounds | None = None,
        readers: Readers = _OPERATOR_ONLY,
    ) -> None:
        self._bounds = bounds
        self._task_admin = task_admin
        self._tasks = tasks
        self._readers = readers

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
        text = await self._lines_text(asking, lines, params.state)
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
        return CommandResult(await self._lines_text(asking, lines, params.state), lines)

    async def _show(self, asking: Asking, params: OneTask) -> CommandResult:
        task = await self._id(asking, params.task)
        if asking.admin:
            return await self._task_result(asking, await self._task_admin.show(task))
        tasks, who, at = self._theirs(asking)
        with _as_command_error():
            return await self._task_result(asking, await tasks.get(who, at, task))

    async def _end(self, asking: Asking, params: OneTask) -> CommandResult:
        task = await self._id(asking, params.task)
        if asking.admin:
            return await self._task_result(asking, await self._task_admin.cancel(task))
        tasks, who, at = self._theirs(asking)
        with _as_command_error():
            return await self._task_result(asking, await tasks.cancel(who, at, Cancel(id=task)))

    async def _again(self, asking: Asking, params: RetryTask) -> CommandResult:
        task = await self._id(asking, params.task)
        with _as_command_error():
            held = await self._task_admin.retry(task, force=params.force)
            return await self._task_result(asking, held)

    async def _release(self, asking: Asking, params: OneTask) -> CommandResult:
        task = await self._id(asking, params.task)
        with _as_command_error():
            return await self._task_result(asking, await self._task_admin.release(task))

    async def _queues(self, _asking: Asking, _params: NoParams) -> CommandResult:
        lines = list(await self._task_admin.queues())
        return CommandResult("\n".join(map(_queue_text, lines)) or "There are no queues.", lines)

    async def _titles(self, states: Collection[State], asking: Asking) -> Mapping[str, str]:
        """Return titles of the latest tasks in some states, by id: one's own, or an admin's all."""
        lines = await self._latest(asking, _MOST_OWN)
        wording = await self._wording(asking)
        return {line.id: sheets.line_text(line, wording) for line in lines if line.state in states}

    async def _id(self, asking: Asking, given: str) -> str:
        """Return the id of a task that is in the list of the caller and begins so, or what was
        given. Raises CommandError if there are several.
        """
        if len(given) >= _WHOLE_ID:
            return given
        lines = await self._latest(asking, _MOST_LISTED if asking.admin else _MOST_OWN)
        return whole_id(given, [line.id for line in lines], "task")

    async def _latest(self, asking: Asking, limit: int) -> Sequence[sheets.TaskLine]:
        """Return the latest tasks that a caller can name: one's own, or an admin's all."""
        if asking.admin:
            held = await self._task_admin.list_all(None, None, limit)
            return [sheets.task_line(one.task, one.principal) for one in held]
        tasks, who, at = self._theirs(asking)
        with _as_command_error():
            listed = await tasks.list(who, at, TaskList(page=ResultSet(max=limit)))
        return [sheets.task_line(task) for task in listed.tasks]

    async def _wording(self, asking: Asking) -> sheets.Wording:
        zone = await self._readers.zone(asking)
        return sheets.Wording(title=self._readers.title, now=system.now(), zone=zone)

    async def _lines_text(
        self, asking: Asking, lines: Sequence[sheets.TaskLine], state: State | None
    ) -> str:
        if lines:
            return sheets.list_text(lines, await self._wording(asking))
        return "There are no tasks." if state is None else f"There are no tasks that are {state}."

    async def _task_result(self, asking: Asking, task: Held | Task | None) -> CommandResult:
        if task is None:
            raise CommandError("There is no such task here.", "task")
        if isinstance(task, Held):
            sheet = sheets.sheet_of(task.task, task.principal, task.requester, task.target)
        else:
            sheet = sheets.sheet_of(task)
        return CommandResult(sheets.task_text(sheet, await self._wording(asking)), sheet)

    def _theirs(self, asking: Asking) -> tuple[TaskService, JID, JID]:
        if self._tasks is None or asking.principal is None or asking.at is None:
            raise CommandError("This works only over XMPP.")
        return self._tasks, asking.principal, asking.at


def _queue_text(line: QueueLine) -> str:
    bounds = "no limits" if line.limit is None else f"at most {line.limit} at once"
    rate = "" if line.per_minute is None else f", {line.per_minute:g} a minute"
    return f"{line.name}: {line.running} running, {line.waiting} waiting ({bounds}{rate})"


@contextmanager
def _as_command_error() -> Iterator[None]:
    try:
        yield
    except StanzaError as error:
        raise CommandError(error.text or f"I cannot do that: {error.condition}.", "task") from None
    except RefusedError as error:
        raise CommandError(str(error), "task") from None
