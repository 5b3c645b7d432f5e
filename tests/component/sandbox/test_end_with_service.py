"""Children end with the service, however it ends; and it says what the system cannot do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from component.sandbox import process_skills, report
from component.sandbox.process_skills import ChildPool
from component.sandbox.report import ConfinementReport, Guarantee, log_confinement
from tests.component.sandbox import module_of_skills
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

SERVICE = f"""
import anyio
from component.sandbox.process_skills import ChildPool, ProcessSkills
from component.sandbox.profile import Profile
from component.skills import Context
from tests.component.sandbox.plain_functions import plain_functions

async def main():
    children = ChildPool()
    async with anyio.create_task_group() as group:
        await group.start(children.run)
        context = Context(principal="ann@test", sender="ann@test/x", skill="counted")
        skills = ProcessSkills(children, Profile(), {module_of_skills.__file__!r}, plain_functions)
        await skills.call("counted", {{}}, context)
        (child,) = children._alive
        print("child", child._process.pid, flush=True)
        group.start_soon(skills.call, "waits", {{}}, context)
        await anyio.sleep_forever()

anyio.run(main)
"""


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_children_end_when_the_service_is_killed() -> None:
    async with await anyio.open_process(
        [sys.executable, "-c", SERVICE],
        stdout=subprocess.PIPE,
        stderr=None,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    ) as service:
        assert service.stdout is not None
        said = b""
        while b"child" not in said or not said.endswith(b"\n"):
            said += await service.stdout.receive()
        child = int(said.split()[-1])
        assert _runs(child)
        os.kill(service.pid, signal.SIGKILL)
        with anyio.fail_after(120):
            while _runs(child):  # noqa: ASYNC110 - the kernel tells nobody
                await anyio.sleep(0.05)


async def test_the_log_says_what_does_not_hold_when_children_are_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = ConfinementReport(
        (
            Guarantee("a", False, True, "do a"),
            Guarantee("b", False, False, "do b"),
            Guarantee("c", True, True, "do c"),
        )
    )

    async def reported() -> ConfinementReport:
        return found

    monkeypatch.setattr(report, "confinement_report", reported)
    monkeypatch.setattr(process_skills, "log_confinement", log_confinement)
    with capture_logs() as logs:
        async with anyio.create_task_group() as group:
            await group.start(ChildPool().run)
            await eventually(lambda: len(logs) == 2)
            group.cancel_scope.cancel()
    assert [(line["log_level"], line["lacks"]) for line in logs] == [
        ("error", "do a"),
        ("warning", "do b"),
    ]
