"""The requests of urn:fluux:agent:0 about tasks: execute, task, tasks, events, cancel, answer, and
the decisions of confirmations.
"""

from collections.abc import Awaitable

from component.execution import SkillExecutor, SkillRequest
from component.execution.admission import ANSWERS
from component.kernel.errors import stored
from component.router.table import IQRoute, ReplyPayload, Request
from component.tasks.service import TaskService
from component.tasks.skill_call import call_of
from xep import fluux_agent
from xep.fluux_agent import confirm, errors, execute, task
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Execute
from xep.fluux_agent.identifiers import check_identifier
from xep.fluux_agent.task import Cancel, Events, InputAnswer, Task
from xep.fluux_agent.task import Tasks as TaskList


class ExecuteHandler:
    """Passes execute requests to the executor, which handles all requests.

    Args:
        executor: runs skills for principals that may use them.
        retry_after_s: seconds after which to ask again when the database refuses.
    """

    def __init__(self, executor: SkillExecutor, retry_after_s: int = 5) -> None:
        self._executor = executor
        self._retry_after_s = retry_after_s

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (IQRoute("set", Execute, self.execute, (fluux_agent.NAMESPACE, execute.NAMESPACE)),)

    def execute(self, request: Request[Execute]) -> ReplyPayload | Awaitable[ReplyPayload]:
        """Run a skill: at once if it never blocks, else in its own task.

        Raises the StanzaErrors of the specification's error table.
        """
        stanza = request.stanza
        answer = self._executor.execute(
            SkillRequest(
                request.sender,
                request.principal,
                request.to,
                call_of(request.payload),
                stanza_id=stanza.id or "",
                size=stanza.size,
                lang=stanza.lang,
            )
        )
        if isinstance(answer, ANSWERS):
            return answer
        return stored(answer, self._retry_after_s)


class TasksHandler:
    """Answers a principal's requests about its tasks at the address that it uses.

    The owner of a task is not checked here: a task of another principal is handled in the same way,
    and answered like one that never existed (TSK-010).

    Args:
        tasks: the durable work.
        retry_after_s: seconds after which to ask again when the database refuses.
    """

    def __init__(self, tasks: TaskService, retry_after_s: int = 5) -> None:
        self._tasks = tasks
        self._retry_after_s = retry_after_s

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        features = (task.NAMESPACE,)
        return (
            IQRoute("get", Task, self.task, features),
            IQRoute("get", TaskList, self.tasks, features),
            IQRoute("get", Events, self.events, features),
            IQRoute("set", Cancel, self.cancel, features),
            IQRoute("set", InputAnswer, self.answer, features),
        )

    def task(self, request: Request[Task]) -> Awaitable[Task]:
        """Return the whole task; only the `id` of the request matters."""
        check_identifier("task", "id", request.payload.id)
        work = self._tasks.get(request.principal, request.to, request.payload.id)
        return stored(work, self._retry_after_s)

    def tasks(self, request: Request[TaskList]) -> Awaitable[TaskList]:
        """Return one page of the principal's tasks."""
        if request.payload.context is not None:
            check_identifier("tasks", "context", request.payload.context)
        work = self._tasks.list(request.principal, request.to, request.payload)
        return stored(work, self._retry_after_s)

    def events(self, request: Request[Events]) -> Awaitable[Events]:
        """Return one page of the events of a task."""
        check_identifier("events", "id", request.payload.id)
        _revision("events", "since", request.payload.since)
        work = self._tasks.events(request.principal, request.to, request.payload)
        return stored(work, self._retry_after_s)

    def cancel(self, request: Request[Cancel]) -> Awaitable[Task]:
        """Cancel a task, and return the task after that (CAN-003)."""
        check_identifier("cancel", "id", request.payload.id)
        work = self._tasks.cancel(request.principal, request.to, request.payload)
        return stored(work, self._retry_after_s)

    def answer(self, request: Request[InputAnswer]) -> Awaitable[Task]:
        """Answer a question of a task, and return the task after that (INP-008)."""
        answer = request.payload
        check_identifier("answer", "task", answer.task)
        check_identifier("answer", "input", answer.input)
        _revision("answer", "revision", answer.revision)
        if (answer.params is None) == (answer.form is None):
            raise errors.malformed("answer: expected either <params/> or a form")
        work = self._tasks.answer(request.principal, request.to, answer)
        return stored(work, self._retry_after_s)


class ConfirmHandler:
    """Handles decisions by IQ.

    Args:
        tasks: judges them.
        retry_after_s: seconds after which to ask again when the database refuses.
    """

    def __init__(self, tasks: TaskService, retry_after_s: int = 5) -> None:
        self._tasks = tasks
        self._retry_after_s = retry_after_s

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (IQRoute("set", Decision, self.decide, (confirm.NAMESPACE,)),)

    def decide(self, request: Request[Decision]) -> Awaitable[None]:
        """Answer a decision that counts, and its repetition, with an empty result (CNF-021)."""
        work = self._tasks.decide(
            request.principal, request.to.bare, request.payload, request.stanza.lang
        )
        return stored(work, self._retry_after_s)


def _revision(element: str, attribute: str, number: int) -> None:
    """Raise StanzaError unless the number can be a revision."""
    if number < 0:
        raise errors.malformed(f"{element}: {attribute} cannot be negative")
