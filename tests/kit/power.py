"""What a power failure leaves of the files that a test writes as a service."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.kit.disk import Disk, simulated_disk
from tests.kit.process import Process

SEEDS: Final = range(40)
"""As many outcomes are drawn."""


class Machine:
    """A machine on which a service runs, whose power can fail; see `run_machine`.

    Attributes:
        data: the directory of the service.
        disk: the simulated disk.
        now: the simulated seconds.
        process: the process of the service.
    """

    disk: Disk

    def __init__(self, root: Path) -> None:
        self.data = root / "data"
        self.data.mkdir()
        self.now = 0.0
        self.process = Process()
        self._root = root

    def clock(self) -> float:
        """Return the simulated seconds."""
        return self.now

    def kill(self, left: Path, *, power_fails: bool = False) -> None:
        """Kill the process, and copy what is left of its files to a directory."""
        self.process.is_alive = False
        shutil.copytree(self.data, left)
        self.disk.copied(self.data, left, power_fails=power_fails)

    def power_fails(self) -> dict[str, bytes]:
        """Return the files that are left, by their names."""
        left = self._root / "left"
        self.kill(left, power_fails=True)
        return {
            str(path.relative_to(left)): path.read_bytes()
            for path in left.rglob("*")
            if path.is_file()
        }


@contextmanager
def run_machine(root: Path, seed: int = 0) -> Iterator[Machine]:
    """Make a machine whose files are in a directory; the current task is its service."""
    machine = Machine(root)
    with simulated_disk(root, machine.clock, seed) as machine.disk, machine.process.entered():
        yield machine


def after_power_failures(
    root: Path, work: Callable[[Path], None], later_s: float = 0
) -> list[dict[str, bytes]]:
    """Return what is left after a power failure, for several seeds.

    Args:
        root: has a directory for each seed.
        work: what the service does, with its data directory.
        later_s: seconds between that and the failure.
    """
    found = []
    for seed in SEEDS:
        (root / str(seed)).mkdir()
        with run_machine(root / str(seed), seed) as machine:
            work(machine.data)
            machine.now += later_s
            found.append(machine.power_fails())
    return found
