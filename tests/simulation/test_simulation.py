"""The service holds what it promises in simulated lives, whatever fails; see `tests.simulation`."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.life import draw
from tests.simulation.report import SIMULATED
from tests.simulation.world import kinds, play

DAYS: Final = 20.0
LIVES: Final = 17
"""Together over a year, and over 300 kills."""
FOUND: Final = Path(__file__).with_name("seeds.txt")
"""Seeds that have found faults, a line for each, with what it was."""


def found() -> list[int]:
    """Return the seeds that have found faults."""
    return [int(line.split()[0]) for line in FOUND.read_text().splitlines() if line.strip()]


@pytest.mark.parametrize("seed", [*range(1, 1 + LIVES), *found()])
def test_a_life_violates_no_rule(
    seed: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    world, violation = play(draw(seed, DAYS, kinds()), tmp_path / "life")
    record_property(SIMULATED, (world.days, world.kills))
    assert violation is None, f"{violation}; make simulate SEED={seed} replays it"
