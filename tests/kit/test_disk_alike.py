"""The simulated disk is like a real one: the same script has the same results on both."""

import errno
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count, groupby
from pathlib import Path
from typing import Any

import pytest

from tests.kit import full_disk
from tests.kit.disk import How
from tests.kit.disk_script import left, live
from tests.kit.power import run_machine

Left = tuple[tuple[str, str], ...]
ROOT = Path(__file__).parents[2]


def simulated_kills(root: Path) -> Iterator[Left]:
    """Yield what is left if a process is killed before each operation, and what if it ends."""
    for number in count(1):
        home = root / str(number)
        home.mkdir(parents=True)
        with run_machine(home) as machine:
            kill = partial(machine.kill, home / "left")
            machine.disk.strike_before(machine.process, number, kill)
            live(machine.data)
            has_ended = machine.process.is_alive
            machine.process.is_alive = False
        yield left(machine.data if has_ended else home / "left")
        if has_ended:
            return


def real_kills(root: Path) -> Iterator[Left]:
    """Yield what is left after each change of the files of a real process, and after its end."""
    root.mkdir()
    command = [sys.executable, "-m", "tests.kit.killing", str(root)]
    subprocess.run(command, cwd=ROOT, check=True)
    for number in range(len(list(root.iterdir()))):
        yield left(root / str(number))


@pytest.mark.ports
def test_a_kill_leaves_the_same_files_as_on_the_real_disk(tmp_path: Path) -> None:
    simulated = [one for one, _ in groupby(simulated_kills(tmp_path / "simulated"))]
    real = [one for one, _ in groupby(real_kills(tmp_path / "real"))]
    assert len(simulated) > 20
    assert simulated == real


def really_full(place: Path) -> Any:
    """Return what comes of a small disk, mounted at a directory in a namespace of its own."""
    place.mkdir()
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    command = ["unshare", *as_root, "--mount", sys.executable, "-m", "tests.kit.full_disk", place]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


@pytest.mark.ports
def test_a_full_disk_has_the_same_errors_as_a_real_one(tmp_path: Path) -> None:
    real = really_full(tmp_path / "real")
    with run_machine(tmp_path) as machine:

        def fails(how: How) -> None:
            machine.disk.fails = how

        simulated = full_disk.run(machine.data, lambda: fails("full"), lambda: fails(""))
        machine.process.is_alive = False
    assert json.loads(json.dumps(simulated)) == real
    numbers = {one["name"]: one["number"] for one in real[0]}
    assert numbers["a small commit"] == sqlite3.SQLITE_FULL
    assert numbers["lines of the audit log"] == errno.ENOSPC
    assert numbers["a read"] is numbers["a removal"] is None
