"""Executions that are to begin in the moment in which the service ends."""

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from component.skills.calling import Threads
from component.tasks.changes import TaskRuntime
from component.tasks.gate import SkillAccess
from component.tasks.leases import Slot
from component.tasks.protocol import TaskLimits
from component.tasks.worker import Worker
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio


def new_worker() -> tuple[Worker, TaskRuntime]:
    unused: Any = None  # nothing of it is looked at
    none = SkillAccess(
        find=lambda _name: None,
        may_use=lambda _who, _skill: False,
        gate=unused,
        approvers=unused,
        threads=Threads(1, 1),
    )
    runtime = TaskRuntime(unused, none, TaskLimits(), unused)
    return Worker(runtime), runtime


@pytest.fixture
def nothing_left_behind() -> Iterator[None]:
    """A coroutine that nobody awaits warns when it is collected, and warnings are errors."""
    yield
    gc.collect()


@pytest.mark.usefixtures("nothing_left_behind")
async def test_what_comes_while_the_group_ends_begins_or_is_refused() -> None:
    """On trio nothing can begin between the end of a group's last task and that of its block."""
    for _ in range(50):  # which of two tasks that are ready goes on first is chance on trio
        runtime, last = new_worker()[1], anyio.Event()
        async with anyio.create_task_group() as outer:
            outer.start_soon(start_after, runtime, last)
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as group:
                runtime.group = group
                group.start_soon(set_event, last)
                group.cancel_scope.cancel()
            runtime.group = None


async def start_after(runtime: TaskRuntime, event: anyio.Event) -> None:
    await event.wait()
    with contextlib.suppress(StanzaError):
        runtime.start(anyio.sleep_forever)


async def set_event(event: anyio.Event) -> None:
    event.set()


class Unstarted:
    """What the worker looks at of an execution that has not begun."""

    def __init__(self, slot: Slot) -> None:
        self.task, self.row, self.slot = "task", None, slot
        self.ended = anyio.Event()

    async def run(self) -> None:
        raise AssertionError("it begins")

    def release(self) -> None:
        self.ended.set()
        self.slot.release()


@pytest.mark.usefixtures("nothing_left_behind")
async def test_an_execution_that_cannot_begin_is_forgotten() -> None:
    worker, runtime = new_worker()
    async with anyio.create_task_group() as group:
        runtime.group = group
    # The group has ended, and nobody has said so yet.
    free = worker.slots.free
    execution: Any = Unstarted(worker.slots.take("alice@example.com"))
    with pytest.raises(StanzaError) as refused:
        worker._launch(execution)
    assert refused.value.condition == "resource-constraint"
    assert execution.ended.is_set()
    assert worker.slots.free == free
    with anyio.fail_after(120):
        await worker.drain()  # nothing is waited for
