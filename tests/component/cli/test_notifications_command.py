"""`xmpp-agent notifications` as a process, without a service and with one."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from component.cli.exit_codes import ExitCode
from component.storage import Storage
from component.storage.notifications import Notification, NotificationStore, Preferences
from tests.component.cli.embedded import Embedded
from tests.servers.agent_process import PROGRAM, AgentProcess
from xep.jid import JID

AGENT = JID.parse("assistant@agent.localhost")
JULIET = JID.parse("juliet@localhost")
ROMEO = JID.parse("romeo@localhost")
TIMEOUT = 120.0  # seconds; a bound for a busy machine, not an expectation


@pytest.fixture
def service(embedded: Embedded, tmp_path: Path) -> Iterator[AgentProcess]:
    """A service that is not running, and holds two notifications for Juliet and one for Romeo."""
    with AgentProcess(embedded, tmp_path) as process:
        process.connected()
        process.stop()
        anyio.run(hold, tmp_path / "data")
        yield process


async def hold(data: Path) -> None:
    async with Storage.open(data) as storage:
        store = NotificationStore(storage)
        for number, person in enumerate((JULIET, JULIET, ROMEO)):
            # They wait until their people are online, so no service sends them meanwhile.
            await store.add(
                [
                    Notification(
                        id=f"n{number}",
                        agent=AGENT,
                        person=person,
                        title="Build",
                        text=f"Build {number} has failed.",
                        waits_online=True,
                    )
                ],
                10,
            )


def run(service: AgentProcess, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "notifications", *words],
        cwd=service.directory,
        env={**os.environ, "AGENT_SECRET": service.secret},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def listed(service: AgentProcess, *words: str) -> list[Any]:
    done = run(service, "list", "--json", *words)
    assert done.returncode == ExitCode.OK, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("is_running", [False, True])
def test_list_drop_and_quiet(service: AgentProcess, is_running: bool) -> None:
    if is_running:
        service.start()
        service.connected()
    # Those of different people are in the order of the machine's clock, which may step back.
    assert sorted(one["id"] for one in listed(service)) == ["n0", "n1", "n2"]
    assert [one["id"] for one in listed(service, "--person", str(JULIET))] == ["n0", "n1"]
    (one,) = listed(service, "--person", str(ROMEO))
    assert (one["title"], one["text"], one["person"]) == (
        "Build",
        "Build 2 has failed.",
        str(ROMEO),
    )
    assert "Build 2 has failed." in run(service, "list").stdout

    assert run(service, "drop", "n0").returncode == ExitCode.OK
    assert sorted(one["id"] for one in listed(service)) == ["n1", "n2"]
    gone = run(service, "drop", "n0")
    assert gone.returncode != ExitCode.OK
    assert "This notification does not exist" in gone.stderr
    everybody = run(service, "drop", "all")
    assert "Say whose notifications" in everybody.stderr
    assert run(service, "drop", "all", "--person", str(JULIET)).returncode == ExitCode.OK
    assert [one["id"] for one in listed(service)] == ["n2"]

    words = ("quiet", "--person", str(JULIET), "--hours", "21:00-06:30", "--zone", "Europe/Paris")
    assert run(service, *words).returncode == ExitCode.OK
    told = json.loads(run(service, "quiet", "--person", str(JULIET), "--json").stdout)
    assert told == {"hours": "21:00-06:30", "zone": "Europe/Paris", "urgent": False}
    wrong = run(service, "quiet", "--person", str(JULIET), "--hours", "late")
    assert wrong.returncode != ExitCode.OK
    if is_running:
        service.stop()

    async def preferences() -> Preferences:
        async with Storage.open(service.directory / "data") as storage:
            return await NotificationStore(storage).preferences(JULIET)

    stored = anyio.run(preferences)
    assert (stored.quiet, stored.zone) == ("21:00-06:30", "Europe/Paris")
