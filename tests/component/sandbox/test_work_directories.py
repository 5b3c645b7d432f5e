"""The working directories of children go with their service, at the latest with the next one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from component.sandbox.process import WorkDirectories

_KILLED = """
import os, signal
from component.sandbox.process import WorkDirectories
made = WorkDirectories().new()
open(f"{made}/left", "w").close()
print(made, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def test_those_of_a_killed_service_are_removed_by_the_next_one(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True)  # noqa: PLW1510 - it kills itself
    left = Path(killed.stdout.strip())
    assert (left / "left").exists()
    running = WorkDirectories()
    assert not left.parent.exists()
    running.close()
    assert not list(tmp_path.iterdir())


def test_those_of_a_running_service_stay(tmp_path: Path) -> None:
    first = WorkDirectories()
    work = Path(first.new())
    second = WorkDirectories()
    assert work.is_dir()
    assert work.stat().st_mode & 0o777 == 0o700
    second.close()
    first.close()
    assert not list(tmp_path.iterdir())


def test_what_others_put_there_stays(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (tmp_path / "xmpp-agent-skills-link").symlink_to(elsewhere)
    (tmp_path / "xmpp-agent-skills-file").touch()
    other = tmp_path / "xmpp-agent-skills-other"
    other.mkdir()
    if os.geteuid() == 0:
        os.chown(other, 12345, 12345)
    WorkDirectories().close()
    assert (elsewhere / "file").exists()
    assert (tmp_path / "xmpp-agent-skills-file").exists()
    assert other.exists() == (os.geteuid() == 0)
