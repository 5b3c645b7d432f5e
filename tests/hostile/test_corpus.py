"""What the fuzzer starts from, and whatever it has found, holds."""

import pytest

from tests.hostile.fuzz import CORPUS
from tests.hostile.targets import TARGETS

INPUTS = sorted(path for path in CORPUS.rglob("*") if path.is_file())


def test_every_target_has_inputs() -> None:
    assert {path.parent.name for path in INPUTS} == set(TARGETS)


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_known_hostile_inputs_are_handled(path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_handles_trivial_inputs(target: str) -> None:
    for data in (b"", b"\x00", b"\xff" * 3):
        TARGETS[target](data)
