"""Lives of the service hold what was promised, whatever fails; see `tests.simulation`."""

from pathlib import Path
from typing import Final

import pytest

from tests.simulation.life import draw
from tests.simulation.world import kinds, play

DAYS: Final = 20.0
LIVES: Final = 9
"""Lives of each of the two files; two processes take half a minute for them."""
SEEDS: Final = range(1, 1 + LIVES)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_life_holds_every_rule(seed: int, tmp_path: Path) -> None:
    world, violation = play(draw(seed, DAYS, kinds()), tmp_path / "life")
    print(f"{world.days:.0f} simulated days, {world.kills} kills")
    assert violation is None, f"{violation}; replay it: make simulate SEED={seed}"
