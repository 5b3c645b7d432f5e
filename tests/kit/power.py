"""What a power failure leaves of the files that a test writes as a service."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.kit.disk import Disk, simulated_disk
from tests.kit.process import Process

SEEDS: Final = range(40)
"""As many outcomes are drawn."""


class Machine:
    """A directory of a service on a simulated disk.

    The task that makes it acts as the process of the service until the power fails.

    Attributes:
        data: the directory.
        now: the simulated seconds.
        process: the process.
    """

    def __init__(self, root: Path) -> None:
        self.data = root / "data"
        self.data.mkdir()
        self.now = 0.0
        self.process = Process()
        self.process.enter()
        self._root = root

    def clock(self) -> float:
        """Return the simulated seconds."""
        return self.now

    def power_fails(self, disk: Disk) -> dict[str, bytes]:
        """Return the files that are left, by their names."""
        self.process.is_alive = False
        left = self._root / "left"
        shutil.copytree(self.data, left)
        disk.copied(self.data, left, power_fails=True)
        return {
            str(path.relative_to(left)): path.read_bytes()
            for path in left.rglob("*")
            if path.is_file()
        }


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
        machine = Machine(root / str(seed))
        with simulated_disk(root / str(seed), machine.clock, seed) as disk:
            work(machine.data)
            machine.now += later_s
            found.append(machine.power_fails(disk))
    return found
