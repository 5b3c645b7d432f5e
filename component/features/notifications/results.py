"""Passes the results of work that schedules, watches and webhooks have started to the notifier."""

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.features.notifications.notifier import Notifier
from component.kernel import started_work
from component.kernel.goals import turn_of
from component.kernel.kernel import Kernel
from component.kernel.started_work import Started
from component.kernel.triggers import Trigger, Work, title_of
from component.policy.taint import Taint
from component.store.errors import StorageError, UnstorableError
from component.store.notifications import Notification
from component.tasks.outputs import text_of
from xep.fluux_agent.task import Task
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.notifications")

OutcomeOfWork: TypeAlias = Literal["completed", "failed", "cancelled", "rejected"]
_LOOK_S: Final = 5.0
"""Seconds between two searches for results that a killed instance has left."""
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 60.0
_LONGEST_TEXT: Final = 20_000


class Results:
    """Finds work that has ended, and passes its result to the notifier."""

    def __init__(self, kernel: Kernel, notifier: Notifier) -> None:
        self._kernel = kernel
        self._storage = kernel.storage
        self._notifier = notifier
        self._woken = anyio.Event()

    def wake(self) -> None:
        """Search for results soon, because work may have ended. Never waits."""
        self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Pass results on until cancelled."""
        task_status.started()
        wait = _FIRST_WAIT_S
        while True:
            await self._kernel.stream.messenger.ready()
            self._woken = anyio.Event()
            try:
                found = await self._storage.read(started_work.ended)
                for each in found:
                    await self._pass_on(each)
            except StorageError as error:
                _log.warning("results have to wait", reason=str(error), seconds=wait)
                await anyio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT_S)
                continue
            wait = _FIRST_WAIT_S
            if len(found) < started_work.AT_ONCE:
                with anyio.move_on_after(_LOOK_S):
                    await self._woken.wait()

    async def _pass_on(self, ended: Started) -> None:
        """Pass one result on. Raises StorageError."""
        trigger, work = ended.trigger, ended.work
        outcome, text = await self._outcome(ended)
        failure = text if outcome in ("failed", "rejected") else None
        is_known = failure is not None and await self._storage.read(
            partial(started_work.is_same_failure, trigger=trigger, failure=failure)
        )
        if failure is not None:
            # The owner is notified of a failure, even if the results are for others or nobody.
            work = msgspec.structs.replace(work, tell=(), silent=False)
            text = f"The {trigger.source} {title_of(trigger)} failed: {failure}"
        told: Sequence[Notification] = ()
        try:
            if not is_known and not work.silent:
                told = self._notifier.notifications_of(work, trigger, outcome, text)
            for each in told:
                await self._add_to_conversation(each, work, trigger)
        except StorageError:
            raise
        except Exception:  # noqa: BLE001 - a fault with one result must not delay the others
            _log.exception("a result cannot be passed on", source=trigger.source, name=trigger.name)
        agents = self._kernel.agents
        if work.goal is not None and agents is not None:
            await agents.conversations.cancel(work.agent, work.principal, turn_of(trigger))
        mark = partial(started_work.mark_passed_on, trigger=trigger, failure=failure)
        try:
            await self._notifier.record(told, mark)
        except UnstorableError as error:
            _log.error("a result cannot be passed on", name=trigger.name, reason=str(error))
            await self._storage.write(mark)

    async def _add_to_conversation(
        self, notification: Notification, work: Work, trigger: Trigger
    ) -> None:
        """Add the result of a skill that a person is notified of to the conversation. That of a
        goal is there: it is the answer of a turn. Raises StorageError.
        """
        if work.skill is None:
            return
        skill = self._kernel.environment.catalog.registry.get(work.skill)
        author: Taint | None = "web" if skill is None else skill.taint
        found = {author, trigger.taint if work.filled else None, *work.taints}
        await self._kernel.add_to_conversation(
            notification,
            f"A {trigger.source} has run the skill {work.skill}.",
            [one for one in found if one is not None],
        )

    async def _outcome(self, ended: Started) -> tuple[OutcomeOfWork, str]:
        """Return the outcome of work, and the text for people."""
        if ended.task is None:
            return "failed", ended.failure or ""
        at = self._kernel.stream.addresses.address_of(ended.work.agent)
        try:
            task = await self._kernel.tasks.service.get(ended.work.principal, at, ended.task)
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
