"""Commands about durable work: one's own, and for admins everybody's."""

from collections.abc import Sequence
from typing import Annotated, Protocol

import msgspec

from component.commands.definition import Answer, AnyCommand, Asking, CommandError, Outline
from component.commands.views import (
    TaskSheet,
    line_of,
    sheet_of,
    told_kept,
    told_line,
    told_sheet,
)
from component.tasks.kept import Bounds
from component.tasks.ledger import Counts, Held, RefusedError
from component.tasks.protocol import Tasks
from xep.fluux_agent.execute import State
from xep.fluux_agent.task import Cancel, Task
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError


class Ledger(Protocol):
    """All tasks of everybody, for admins. Every method raises StorageError."""

    async def list_all(
        self, state: State | None, principal: str | None, limit: int
    ) -> Sequence[Held]:
        """The tasks that meet the filters, the one created last first."""

    async def show(self, task: str) -> Held | None:
        """One task whole; None if there is none."""

    async def cancel(self, task: str) -> Held | None:
        """Ask a task to end, and return it as it is then; None if there is none."""

    async def retry(self, task: str, *, force: bool = False) -> Held | None:
        """Begin a new task with the request of another. Raises RefusedError."""

    async def counts(self) -> Counts:
        """How many tasks there are."""


StateParam = Annotated[
    State | None, msgspec.Meta(title="State", description="Only tasks in this state.")
]
TaskParam = Annotated[str, msgspec.Meta(title="Task", description="The id of a task.")]


class OwnTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of one's own tasks."""

    state: StateParam = None
    limit: Annotated[
        int, msgspec.Meta(title="Limit", description="At most so many.", ge=1, le=50)
    ] = 20


class AllTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which tasks, for admins."""

    state: StateParam = None
    limit: Annotated[
        int, msgspec.Meta(title="Limit", description="At most so many.", ge=1, le=1000)
    ] = 20
    principal: Annotated[
        str | None,
        msgspec.Meta(title="Principal", description="Only tasks of this bare JID."),
    ] = None
    all: Annotated[
        bool, msgspec.Meta(title="Everybody's", description="Everybody's tasks, not only yours.")
    ] = False


class OneTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which task."""

    task: TaskParam


class RetryTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which task to begin again."""

    task: TaskParam
    force: Annotated[
        bool,
        msgspec.Meta(
            title="Force", description="Also if it is not known whether it had an effect."
        ),
    ] = False


TASKS = Outline(name="tasks", title="Tasks", about="your tasks, the latest first", params=OwnTasks)
ALL_TASKS = Outline(
    name="tasks", title="Tasks", about="tasks, the latest first", params=AllTasks, who="admin"
)
TASK = Outline(name="task", title="Show a task", about="one task whole", params=OneTask)
CANCEL = Outline(name="cancel", title="Cancel a task", about="ask a task to end", params=OneTask)
RETRY = Outline(
    name="retry",
    title="Try a task again",
    about="begin a new task with the request of one that failed",
    params=RetryTask,
    who="admin",
)


class TaskCommands:
    """The commands about tasks.

    Args:
        ledger: everybody's tasks.
        tasks: the durable work; without it there are no tasks of one's own to ask for, which is
            so for the operator.
        bounds: how much of ended tasks is kept for one principal.
    """

    def __init__(
        self, ledger: Ledger, tasks: Tasks | None = None, bounds: Bounds | None = None
    ) -> None:
        self._bounds = bounds
        self._ledger = ledger
        self._tasks = tasks

    def commands(self) -> tuple[AnyCommand, ...]:
        """All of them."""
        return (
            TASKS.done_by(self._own),
            ALL_TASKS.done_by(self._all),
            TASK.done_by(self._show),
            CANCEL.done_by(self._end),
            RETRY.done_by(self._again),
        )

    async def _own(self, asking: Asking, params: OwnTasks) -> Answer:
        tasks, who, at = self._theirs(asking)
        query = TaskList(state=params.state, page=ResultSet(max=params.limit))
        try:
            found = await tasks.list(who, at, query)
        except StanzaError as error:
            raise _refused(error) from None
        lines = [line_of(task) for task in found.tasks]
        more = 0 if found.page is None else (found.page.count or 0) - len(lines)
        text = "\n".join(map(told_line, lines)) or _none(params.state)
        if more > 0:
            text += f"\n… and {more} more."
        if found.ended and self._bounds is not None:
            text += f"\n{told_kept(found.ended, found.ended_bytes or 0, self._bounds)}"
        return Answer(text, lines)

    async def _all(self, asking: Asking, params: AllTasks) -> Answer:
        principal = params.principal
        if principal is None and not params.all and asking.principal is not None:
            if self._tasks is not None and asking.at is not None:
                own = OwnTasks(state=params.state, limit=min(params.limit, 50))
                return await self._own(asking, own)
            principal = str(asking.principal)
        found = await self._ledger.list_all(params.state, principal, params.limit)
        lines = [line_of(held.task, held.principal) for held in found]
        return Answer("\n".join(map(told_line, lines)) or _none(params.state), lines)

    async def _show(self, asking: Asking, params: OneTask) -> Answer:
        if asking.admin:
            return _told(_known(await self._ledger.show(params.task)))
        tasks, who, at = self._theirs(asking)
        try:
            return _told(await tasks.get(who, at, params.task))
        except StanzaError as error:
            raise _refused(error) from None

    async def _end(self, asking: Asking, params: OneTask) -> Answer:
        if asking.admin:
            return _told(_known(await self._ledger.cancel(params.task)))
        tasks, who, at = self._theirs(asking)
        try:
            return _told(await tasks.cancel(who, at, Cancel(id=params.task)))
        except StanzaError as error:
            raise _refused(error) from None

    async def _again(self, _asking: Asking, params: RetryTask) -> Answer:
        try:
            held = _known(await self._ledger.retry(params.task, force=params.force))
        except RefusedError as error:
            raise CommandError(str(error), "task") from None
        return _told(held)

    def _theirs(self, asking: Asking) -> tuple[Tasks, JID, JID]:
        if self._tasks is None or asking.principal is None or asking.at is None:
            raise CommandError("Only who asks over XMPP has tasks of its own.")
        return self._tasks, asking.principal, asking.at


def _told(task: Held | Task) -> Answer:
    sheet: TaskSheet
    if isinstance(task, Held):
        sheet = sheet_of(task.task, task.principal, task.requester, task.target)
    else:
        sheet = sheet_of(task)
    return Answer(told_sheet(sheet), sheet)


def _known(held: Held | None) -> Held:
    if held is None:
        raise CommandError("There is no such task here.", "task")
    return held


def _none(state: State | None) -> str:
    return "There are no tasks." if state is None else f"There are no tasks that are {state}."


def _refused(error: StanzaError) -> CommandError:
    return CommandError(error.text or f"I cannot do that: {error.condition}.", "task")
