"""A running service whose disk is full: it says so, loses nothing, and goes on with new space."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.cli.conftest import RunCommand
from tests.component.cli.embedded import Embedded
from tests.component.cli.test_doctor import checks
from tests.servers.agent_process import AgentProcess
from tests.servers.chatting import asks, heard, say

pytestmark = pytest.mark.ports

SKILLS = '''
from pathlib import Path

import anyio

from component.skills import skill

@skill(destructive=False)
async def bake(cake: str) -> str:
    """Bake a cake, which takes until it is done."""
    while not Path(f"{cake}.done").exists():
        await anyio.sleep(0.02)
    return f"{cake} is baked."
'''
REFUSED = "because of an error on my side"


class Disk:
    """A small disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Use all space that is left."""
        page = bytes(os.statvfs(self.path).f_bsize)
        with (self.path / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(page)
        assert os.statvfs(self.path).f_bavail == 0

    def free(self) -> None:
        """Give the space back."""
        (self.path / "filler").unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("a small disk can be mounted by root alone")
    yield Disk(path)
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def warnings(command: RunCommand) -> list[str]:
    found: list[str] = json.loads(command("status", "--json").stdout)["warnings"]
    return found


def test_a_full_disk_is_shown_and_nothing_that_was_accepted_is_lost(
    command: RunCommand, embedded: Embedded, disk: Disk, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(SKILLS)
    assistant = f"assistant@{embedded.component_domain}"
    with (
        AgentProcess(
            embedded, tmp_path, skills__modules=["./own.py"], limits__inline_s=0.1
        ) as agent,
        embedded.login() as juliet,
    ):
        agent.connected()
        asks(juliet, assistant, "/run bake cake=apple", "takes a while")
        disk.fill()
        asks(juliet, assistant, "/run bake cake=cherry", REFUSED)
        agent.wait_log("the database cannot be used")
        assert "full" in warnings(command)[0]
        verdict, text = checks(command("doctor", "--json"))["service"]
        assert (verdict, "the disk or the quota is full" in text) == ("warning", True)
        (tmp_path / "apple.done").touch()
        asks(juliet, assistant, "/tasks", "Bake is running")

        disk.free()
        agent.wait_log("the database can be used again")
        heard(juliet, "apple is baked.")
        assert warnings(command) == []
        say(juliet, assistant, "/run bake cake=plum")
        (tmp_path / "plum.done").touch()
        heard(juliet, "plum is baked.")
        loud = [one for one in agent.log() if one["level"] not in ("debug", "info")]
        assert {one["event"] for one in loud} == {"the database cannot be used"}
        assert len(loud) <= 1 + loud[-1]["seconds"] // 60, "a line a minute"
