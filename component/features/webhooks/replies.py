"""Sends the results of the work of deliveries to where the deliveries came from.

A reply is recorded in the transaction that records the work. When the work has ended, the skill of
the reply is started like any other work, once for each delivery. So it is judged like any other: by
policy and flows, with the labels of what the author of its text may have read.
"""

from functools import partial
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.commands import shorten
from component.features.webhooks import rows
from component.features.webhooks.rows import OpenReply, Reply
from component.kernel.kernel import Kernel
from component.kernel.triggers import Trigger, Work
from component.policy.taint import TAINTS, Taint
from component.skills.skill import Skill
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.tasks.outputs import texts_of
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.webhooks")

_LOOK_S: Final = 5.0
"""Seconds between two searches for replies that have to wait, or that another instance has left."""
_RETRY_S: Final = 2.0
_LONGEST_WAIT_MS: Final = 15 * 60_000
"""How long a reply waits for the source of its skill, or while new work is paused. Discord takes no
later answer."""


class Replies:
    """Starts the skills of replies when the work that they are about has ended."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._storage = kernel.storage
        self._woken = anyio.Event()

    def wake(self) -> None:
        """Look for replies soon, because work may have ended. Never waits."""
        self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send replies until cancelled."""
        task_status.started()
        while True:
            self._woken = anyio.Event()
            try:
                due = await self._storage.read(rows.due_replies)
                sent = [await self._send(each) for each in due]
            except StorageError as error:
                log_failure(_log, "replies have to wait", error, seconds=_RETRY_S)
                await anyio.sleep(_RETRY_S)
                continue
            if not any(sent):
                with anyio.move_on_after(_LOOK_S if sent else self._storage.poll_s(_LOOK_S)):
                    await self._woken.wait()

    async def _send(self, due: OpenReply) -> bool:
        """Start the skill of a reply. Returns False if that has to wait. Raises StorageError."""
        reply, text = due.reply, await self._text(due)
        if text:
            try:
                await self._start(reply, text)
            except StanzaError as error:
                if error.type == "wait" and due.waited_ms < _LONGEST_WAIT_MS:
                    return False
                # The starter notifies the person, unless it is about to try again.
                reason = error.text or error.condition
                _log.warning("a reply is not sent", webhook=reply.webhook, reason=reason)
        await self._storage.write(partial(rows.delete_reply, reply))
        return True

    async def _text(self, due: OpenReply) -> str:
        """Return what is to be sent, or an empty text. Raises StorageError."""
        reply = due.reply
        if due.task is None:
            return ""  # the delivery was refused, and its sender knows
        at = self._kernel.stream.addresses.address_of(reply.agent)
        try:
            task = await self._kernel.tasks.service.get(reply.principal, at, due.task)
        except StanzaError:
            return ""  # the task was deleted before its result was read
        if task.result is None or task.result.is_error:
            return reply.failed
        return "\n\n".join(one.strip() for one in texts_of(task.result.outputs))

    async def _start(self, reply: Reply, text: str) -> None:
        """Start the skill. Raises StanzaError and StorageError."""
        registry = self._kernel.environment.catalog.registry
        params = msgspec.json.decode(reply.params)
        params[reply.text] = _fitting(text, registry.get(reply.skill), reply.text)
        trigger = Trigger(
            source="webhook", name=reply.webhook, key=f"{reply.delivery} reply", taint="web"
        )
        work = Work(
            agent=reply.agent,
            principal=reply.principal,
            skill=reply.skill,
            params=msgspec.Raw(msgspec.json.encode(params)),
            filled=True,
            silent=True,
            taints=_taints_of(reply, registry.get(reply.of_skill or "")),
        )
        await self._kernel.starter.start(trigger, work)


def _taints_of(reply: Reply, skill: Skill | None) -> tuple[Taint, ...]:
    """Return who may have written the result: what a model has read for a goal is not known
    afterwards, so it may be anybody.
    """
    if reply.of_skill is None or skill is None:
        return TAINTS
    return () if skill.taint is None else (skill.taint,)


def _fitting(text: str, skill: Skill | None, param: str) -> str:
    """Return a text that is as short as its parameter has to be."""
    schema = {} if skill is None else skill.input_schema.get("properties", {}).get(param, {})
    most = schema.get("maxLength") if isinstance(schema, dict) else None
    return shorten(text, most) if isinstance(most, int) and most > 0 else text
