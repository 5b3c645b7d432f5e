"""Workers and services are killed at random, and nothing runs twice.

The ordinary run has 64 calls and one kill; `make thorough` has 10,000. WORKER_CALLS says how many.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from component.app.schema import SCHEMA
from component.store import Storage
from component.tasks.rows import TERMINAL
from tests.component.features.workers import service_process
from tests.component.features.workers.support import (
    Serving,
    WorkerProgram,
    in_thread,
    serving,
    workers,
)
from tests.profiles import THOROUGH
from tests.servers.watchdog import Watchdog
from tests.waiting import eventually
from xep.fluux_agent.errors import OutcomeUnknown
from xep.fluux_agent.execute import Accepted, Result
from xep.stanza_error import StanzaError

pytestmark = [pytest.mark.servers, pytest.mark.anyio]

CALLS: Final = int(os.environ.get("WORKER_CALLS", "10000" if THOROUGH else "64"))
KILLS: Final = max(1, CALLS // 100)
WORKERS: Final = ("one", "two", "three") if THOROUGH else ("one", "two")
AT_ONCE: Final = 48
SECONDS: Final = 0.1 if THOROUGH else 0.3
"""How long a call takes: long enough that some run when a worker is killed."""
SEED: Final = 20
LIMITS: Final = {"running_total": 64, "running_per_principal": 64, "tasks_per_principal": 10_000}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop: what is tested here is in other processes."""
    return "trio"


async def outcome(
    served: Serving, skill: str, number: int, seconds: float = SECONDS, **how: Any
) -> str:
    """Call a skill until its end: its text, or the condition of its failure."""
    try:
        answer = await served.world.run(skill, json={"number": number, "seconds": seconds}, **how)
    except StanzaError as error:
        return type(error.application[0]).__name__
    if isinstance(answer, Accepted):
        task = await served.world.reaches(answer.task, *TERMINAL)
        if task.failure is not None:
            return type(task.failure.conditions[0]).__name__
        assert task.result is not None
        answer = task.result
    assert isinstance(answer, Result)
    return answer.outputs[0].text


async def kill_at_random(running: list[WorkerProgram], done: list[str], kills: int) -> None:
    """Kill workers one after another, each when more calls have ended, and start them again."""
    dice = random.Random(SEED)
    for kill in range(kills):
        goal = CALLS * (kill + dice.random()) / (kills + 1)
        await eventually(partial(lambda goal: len(done) >= goal, goal))
        victim = dice.choice(running)
        await in_thread(victim.kill)
        if kill < kills - 1:  # the others serve the rest
            await in_thread(victim.start)


async def test_nothing_runs_twice_when_workers_are_killed(
    tmp_path: Path, postgres_url: str
) -> None:
    outcomes: dict[tuple[str, int], str] = {}
    done: list[str] = []

    async def call(served: Serving, numbers: itertools.count[int]) -> None:
        while (number := next(numbers)) < CALLS:
            skill = "pay" if number % 2 else "store"
            outcomes[skill, number] = await outcome(served, skill, number)
            done.append(skill)

    def open_storage() -> AbstractAsyncContextManager[Storage]:
        return Storage.open(SCHEMA, tmp_path / "data")

    with workers(tmp_path, postgres_url, *WORKERS, lost_after_s=3.0) as running:
        async with (
            serving(open_storage, postgres_url, "pay", "store", limits=LIMITS) as served,
            anyio.create_task_group() as group,
        ):
            group.start_soon(kill_at_random, running, done, KILLS)
            numbers = itertools.count()
            for _ in range(AT_ONCE):
                group.start_soon(call, served, numbers)
        begun, ended = Counter[str](), Counter[str]()
        for line in running[0].lines():
            (begun if line.startswith("begin ") else ended)[line.removeprefix("begin ")] += 1

    assert len(outcomes) == CALLS
    unknown = 0
    for (skill, number), found in outcomes.items():
        what = f"{skill} {number}"
        if skill == "store":
            assert found == f"stored {number}", what
            assert ended[what] >= 1, what
        elif found == OutcomeUnknown.__name__:
            unknown += 1
            assert begun[what] <= 1, what  # it may have been killed just before that line
        else:
            assert found == f"paid {number}", what
            assert (begun[what], ended[what]) == (1, 1), what
    repeated = sum(count - 1 for what, count in begun.items() if what.startswith("store"))
    # Of a few kills on a busy machine, none may hit such a call.
    assert unknown or not THOROUGH, "no worker was killed while it ran a call with effects"
    print(f"{CALLS} calls, {KILLS} kills: {unknown} unknown, {repeated} repeated")


def start_service(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", service_process.__name__, *arguments], start_new_session=True
    )


@pytest.mark.parametrize(
    ("when", "mode"),
    [
        pytest.param("running", "auto", marks=pytest.mark.thorough),
        ("ended", "async"),
    ],
)
async def test_a_service_that_is_killed_follows_the_call_again(
    worker: WorkerProgram, queue_url: str, tmp_path: Path, when: str, mode: str
) -> None:
    number, data = {"running": 1, "ended": 2}[when], tmp_path / "data"
    killed = start_service(str(data), queue_url, mode, str(number))
    watchdog = Watchdog(killed.pid)
    begun, ended = f"begin pay {number}", f"pay {number}"
    await eventually(lambda: begun in worker.lines() or killed.poll() is not None)
    watchdog.kill_group()
    await in_thread(killed.wait)
    if when == "ended":
        await eventually(lambda: ended in worker.lines())
    async with serving(lambda: Storage.open(SCHEMA, data), queue_url, "pay") as served:
        # The request is repeated: it is answered with what the worker did, and done once.
        answer = await outcome(served, "pay", number, id="once", mode=mode, seconds=1.5)
        assert answer == f"paid {number}"
    assert [line for line in worker.lines() if line in (begun, ended)] == [begun, ended]
