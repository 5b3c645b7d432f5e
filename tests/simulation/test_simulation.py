"""The service holds what it promises in simulated lives, whatever fails; see `tests.simulation`."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.areas.peers import Delegate, Job
from tests.simulation.life import CALLERS, DAYS, Life, draw
from tests.simulation.report import SIMULATED
from tests.simulation.world import kinds, play, read_life

LIVES: Final = 12
FOUND: Final = Path(__file__).with_name("found")
"""Short lives that have found faults."""
PEERS_SEED: Final = 2
"""A seed of a life that has agents of other domains."""


@pytest.mark.parametrize("seed", range(1, 1 + LIVES))
def test_a_life_violates_no_rule(
    seed: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    world, violation = play(draw(seed, DAYS, kinds()), tmp_path / "life")
    record_property(SIMULATED, (world.days, world.kills))
    assert violation is None, f"{violation}; make simulate SEED={seed} replays it"


@pytest.mark.parametrize("name", sorted(one.stem for one in FOUND.glob("*.json")))
def test_a_life_that_has_found_a_fault_violates_no_rule(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    file = FOUND / f"{name}.json"
    world, violation = play(read_life(file), tmp_path / "life")
    record_property(SIMULATED, (world.days, world.kills))
    assert violation is None, f"{violation}; make simulate LIFE={file} replays it"


def test_services_of_three_domains_leave_no_memory_held(tmp_path: Path) -> None:
    # The services know the skills of each other a few seconds after their start.
    job = Job(wait=60.0, who=CALLERS[0], skill="search_for")
    life = Life(PEERS_SEED, 1.0, (Delegate(at=60.0, number=1, jobs=(job,)),))
    world, violation = play(life, tmp_path / "life")
    assert violation is None
    assert "found x1000" in "".join(str(entry) for entry in world.history.entries)
    left = weakref.ref(world)
    del world
    gc.collect()
    assert left() is None
