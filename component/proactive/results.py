"""Passes the results of triggered work to a notifier, each once."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.proactive import started
from component.proactive.goals import Conversations, turn_of
from component.proactive.started import Started
from component.proactive.work import Trigger, Work, title_of
from component.storage.errors import StorageError
from component.storage.storage import Storage
from component.tasks.outputs import text_of
from component.tasks.service import TaskService
from xep.fluux_agent.task import Task
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.proactive")

OutcomeOfWork: TypeAlias = Literal["completed", "failed", "cancelled", "rejected"]
_LOOK_S: Final = 5.0
"""Seconds between two searches for results that a killed instance has left."""
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 60.0
_LONGEST_TEXT: Final = 20_000


class ResultNotifier(Protocol):
    """Notifies people of the result of work."""

    async def ended(self, work: Work, trigger: Trigger, outcome: str, text: str) -> None:
        """Notify the people that the work names.

        Returns when the result no longer depends on this process. Called again with the same
        result, after a kill or by another instance, it changes nothing. Raises StorageError; then
        call it again later.

        Args:
            work: the work.
            trigger: the event that started it.
            outcome: `completed`, `failed`, `cancelled` or `rejected`.
            text: the result for people; may be empty.
        """


class Results:
    """Finds work that has ended, and passes its result to those who notify people.

    Args:
        storage: has the table `started_work`.
        tasks: the durable work.
        address_of: the address of an agent by its name.
        ready: waits until messages can be sent.
        conversations: runs the turns of goals; None where no model is set up.
    """

    def __init__(
        self,
        storage: Storage,
        tasks: TaskService,
        address_of: Callable[[str], JID],
        ready: Callable[[], Awaitable[None]],
        conversations: Conversations | None = None,
    ) -> None:
        self._storage = storage
        self._tasks = tasks
        self._notifiers: list[ResultNotifier] = []
        self._address_of = address_of
        self._ready = ready
        self._conversations = conversations
        self._woken = anyio.Event()

    def listen(self, notifier: ResultNotifier) -> None:
        """Pass results to a notifier."""
        self._notifiers.append(notifier)

    def wake(self) -> None:
        """Search for results soon, because work may have ended. Never waits."""
        self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Pass results on until cancelled."""
        task_status.started()
        wait = _FIRST_WAIT_S
        while True:
            await self._ready()
            self._woken = anyio.Event()
            try:
                found = await self._storage.read(started.ended)
                for each in found:
                    await self._pass_on(each)
                if found:
                    await self._storage.write(started.delete_old)
            except StorageError as error:
                _log.warning("results have to wait", reason=str(error), seconds=wait)
                await anyio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT_S)
                continue
            wait = _FIRST_WAIT_S
            if not found:
                with anyio.move_on_after(_LOOK_S):
                    await self._woken.wait()

    async def _pass_on(self, ended: Started) -> None:
        """Pass one result on. Raises StorageError."""
        trigger, work = ended.trigger, ended.work
        outcome, text = await self._outcome(ended)
        failure = text if outcome in ("failed", "rejected") else None
        is_known = failure is not None and await self._storage.read(
            partial(started.is_same_failure, trigger=trigger, failure=failure)
        )
        if failure is not None:
            # The owner is notified of a failure, even if the results are for others or nobody.
            work = msgspec.structs.replace(work, tell=(), silent=False)
            text = f"The {trigger.source} {title_of(trigger)} failed: {failure}"
        if not is_known and not work.silent:
            try:
                for notifier in self._notifiers:
                    await notifier.ended(work, trigger, outcome, text)
            except StorageError:
                raise
            except Exception:  # noqa: BLE001 - a fault with one result must not delay the others
                _log.exception(
                    "a result cannot be passed on", source=trigger.source, name=trigger.name
                )
        if work.goal is not None and self._conversations is not None:
            await self._conversations.cancel(work.agent, work.principal, turn_of(trigger))
        await self._storage.write(partial(started.mark_passed_on, trigger=trigger, failure=failure))

    async def _outcome(self, ended: Started) -> tuple[OutcomeOfWork, str]:
        """Return the outcome of work, and the text for people."""
        if ended.task is None:
            return "failed", ended.failure or ""
        at = self._address_of(ended.work.agent)
        try:
            task = await self._tasks.get(ended.work.principal, at, ended.task)
        except StanzaError:
            return "completed", ""  # the task was deleted before its result was read
        return _outcome_of(task)


def _outcome_of(task: Task) -> tuple[OutcomeOfWork, str]:
    if task.result is not None:
        text = "\n\n".join(
            one for output in task.result.outputs if (one := text_of(output).strip())
        )
        return ("failed" if task.result.is_error else "completed"), text[:_LONGEST_TEXT]
    if task.state == "cancelled":
        return "cancelled", ""
    texts: Sequence[str] = [one.text for one in task.failure.texts] if task.failure else []
    reason = texts[0] if texts else "The reason is not known."
    return ("rejected" if task.state == "rejected" else "failed"), reason
