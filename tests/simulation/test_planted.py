"""The faults of `tests.simulation.planted` fit the source, and lives find them."""

import shutil
from pathlib import Path

import pytest

from tests.profiles import SEED, THOROUGH
from tests.simulation.planted import FAULTS, ROOT, Planted, apply, find

NAMES = [one.name for one in FAULTS]


@pytest.mark.parametrize("fault", FAULTS, ids=NAMES)
def test_a_planted_fault_fits_the_source(fault: Planted, tmp_path: Path) -> None:
    for file in {edit.file for edit in fault.edits}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)

    apply(fault, tmp_path)

    for edit in fault.edits:
        compile((tmp_path / edit.file).read_text(), edit.file, "exec")


def test_planted_faults_have_names_of_their_own() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 20


@pytest.mark.skipif(not THOROUGH, reason="takes up to ten minutes for each: make thorough")
@pytest.mark.parametrize("fault", FAULTS, ids=NAMES)
def test_lives_find_a_planted_fault(fault: Planted) -> None:
    found = find(fault, first=1000 * SEED)
    assert found is not None, fault.about
    print(f"seed {found.seed}, {found.seconds:.0f} s: {found.rule}")
