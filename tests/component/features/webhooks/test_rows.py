"""Open replies in both databases."""

from functools import partial

import msgspec
import pytest

from component.features.webhooks import rows
from component.features.webhooks.rows import OpenReply, Reply
from component.kernel import started_work
from component.kernel.started_work import Started
from component.kernel.triggers import Trigger
from component.store import Storage
from tests.component.features.webhooks.world import JULIET, WORK

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


def reply(delivery: str) -> Reply:
    return Reply(
        webhook="hook",
        delivery=delivery,
        agent="assistant",
        principal=JULIET,
        skill="post",
        params=msgspec.Raw(b'{"a":1}'),
        text="text",
        failed="Sorry.",
        of_skill="report",
    )


def started(delivery: str, task: str | None) -> Started:
    trigger = Trigger(source="webhook", name="hook", key=delivery, taint="web")
    return Started(trigger=trigger, work=WORK, task=task)


async def test_a_reply_is_due_when_the_work_of_its_delivery_has_ended(storage: Storage) -> None:
    for delivery in ("recorded", "refused", "unknown"):
        await storage.write(partial(rows.add_reply, reply(delivery)))
    await storage.write(partial(rows.add_reply, reply("refused")))
    # A task that is not stored any more has ended.
    for entry in (started("recorded", "task-1"), started("refused", None)):
        await storage.write(partial(started_work.record, started=entry))
    due = await storage.read(rows.due_replies)
    assert due == [
        OpenReply(reply("recorded"), "task-1", due[0].waited_ms),
        OpenReply(reply("refused"), None, due[1].waited_ms),
    ]
    assert all(one.waited_ms >= 0 for one in due)
    for one in due:
        await storage.write(partial(rows.delete_reply, one.reply))
    assert await storage.read(rows.due_replies) == []
    assert await storage.read(rows.is_unfinished)
