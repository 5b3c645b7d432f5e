"""What becomes of skills and calls when workers come and go."""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from component.app.schema import SCHEMA
from component.features.workers import client, statements
from component.store import Storage
from component.tasks.rows import TERMINAL
from tests.component.features.workers.support import (
    Serving,
    WorkerProgram,
    in_thread,
    serving,
    workers,
)
from tests.servers.postgres import Postgres
from tests.waiting import eventually
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Result
from xep.stanza_error import StanzaError

pytestmark = [pytest.mark.servers, pytest.mark.anyio]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop: what is tested here is in other processes."""
    return "trio"


@pytest.fixture(autouse=True)
def _the_service_looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks for new and lost workers every five seconds otherwise."""
    monkeypatch.setattr(client, "TICK_S", 0.05)


async def says(running: Serving, text: str, skill: str, /, **params: object) -> bool:
    """Return whether a skill can be called and returns a text."""
    try:
        answer = await running.world.run(skill, json=params)
    except StanzaError:
        return False
    return isinstance(answer, Result) and answer.outputs[0].text == text


async def begun(running: Serving, program: WorkerProgram, line: str, skill: str, **how: Any) -> str:
    """Start a task whose call begins, and return it.

    A worker that counts as lost after a few seconds may be counted as lost before it has the call,
    on a busy machine; then the task fails, and another one is started.
    """
    while True:
        task = await running.world.task(skill, **how)

        async def is_decided(task: str = task) -> bool:
            return line in program.lines() or (await running.world.get(task)).state in TERMINAL

        await eventually(is_decided)
        if line in program.lines():
            return task


async def test_without_a_worker_calls_fail_at_once_and_it_comes_back(
    tmp_path: Path, postgres_url: str
) -> None:
    # A worker that is stopped says so: nobody is counted as lost.
    with workers(tmp_path, postgres_url, drain_s=1) as (program,):
        async with serving(
            lambda: Storage.open(SCHEMA, tmp_path / "data"), postgres_url, "shout"
        ) as running:
            assert await in_thread(program.stop) == 0

            numbers = count()
            refused: list[int] = []

            async def unavailable() -> bool:
                number = next(numbers)  # one that comes before the service knows waits for a worker
                try:
                    await running.world.run("pay", json={"number": number})
                except StanzaError as error:
                    if "No worker that has the skill pay" in (error.text or ""):
                        refused.append(number)
                return bool(refused)

            await eventually(unavailable)
            assert running.registry.get("shout") is not None
            await in_thread(program.start)

            await eventually(lambda: says(running, "A", "shout", text="a"))
            assert f"pay {refused[0]}" not in program.lines()


async def test_another_version_is_offered_when_all_workers_have_it(
    tmp_path: Path, postgres_url: str
) -> None:
    newer = tmp_path / "newer.py"
    newer.write_text(
        "from xmpp_agent import skill\n\n\n@skill(read_only=True, destructive=False)\n"
        'def shout(text: str, sign: str = "!") -> str:\n    """Shout."""\n'
        "    return text.upper() + sign\n"
    )
    with workers(tmp_path, postgres_url, "old") as (old,):
        async with serving(
            lambda: Storage.open(SCHEMA, tmp_path / "data"), postgres_url, "shout"
        ) as running:
            with (
                workers(tmp_path, postgres_url, "new", modules=[str(newer)]) as (_,),
                capture_logs() as logs,
            ):
                await eventually(lambda: [one for one in logs if "different versions" in str(one)])
                assert await says(running, "A", "shout", text="a")
                await in_thread(old.stop)

                await eventually(lambda: says(running, "A!", "shout", text="a"))


async def test_a_repeatable_call_that_ended_its_worker_too_often_is_given_up(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "MOST_ATTEMPTS", 1)
    with workers(tmp_path, postgres_url, "one", lost_after_s=3) as (program,):
        async with serving(
            lambda: Storage.open(SCHEMA, tmp_path / "data"), postgres_url, "kill_me"
        ) as running:
            task = await begun(running, program, "kill me", "kill_me")
            failed = await running.world.reaches(task, *TERMINAL)
            assert failed.failure is not None
            assert isinstance(failed.failure.conditions[0], errors.RemoteFailure)
        assert program.lines().count("kill me") == 1


async def test_calls_go_on_when_the_database_is_back(
    tmp_path: Path, make_postgres: Callable[[], Postgres]
) -> None:
    server = await in_thread(make_postgres)
    url = server.new_database()
    told = tmp_path / "told"
    # However long it takes to connect again: nobody is counted as lost.
    with workers(tmp_path, url) as (program,):
        async with serving(
            lambda: Storage.open(SCHEMA, tmp_path / "data"), url, "pay", "pay_when_told"
        ) as running:
            task = await running.world.task("pay_when_told", json={"number": 1, "file": str(told)})
            await eventually(lambda: "begin pay 1" in program.lines())
            await in_thread(server.stop)
            told.touch()
            await eventually(lambda: "pay 1" in program.lines())
            await in_thread(server.start)
            done = await running.world.reaches(task, *TERMINAL)
            assert done.result is not None, done.failure
            assert done.result.outputs[0].text == "paid 1"
            await eventually(lambda: says(running, "paid 2", "pay", number=2))
        assert program.lines().count("begin pay 1") == 1


async def test_a_worker_that_was_counted_as_lost_cannot_write(
    tmp_path: Path, postgres_url: str
) -> None:
    told = tmp_path / "told"
    with workers(tmp_path, postgres_url, lost_after_s=3) as (program,):
        async with serving(
            lambda: Storage.open(SCHEMA, tmp_path / "data"), postgres_url, "pay", "pay_when_told"
        ) as running:
            call = {"number": 1, "file": str(told)}
            task = await begun(running, program, "begin pay 1", "pay_when_told", json=call)
            program.send(signal.SIGSTOP)
            failed = await running.world.reaches(task, *TERMINAL)
            told.touch()
            program.send(signal.SIGCONT)
            assert failed.failure is not None
            assert isinstance(failed.failure.conditions[0], errors.OutcomeUnknown)
            await eventually(lambda: "counted as lost" in "".join(program.log))
            assert (await running.world.get(task)).state == "failed"
            # It is alive again, and serves.
            await eventually(lambda: says(running, "paid 2", "pay", number=2))
