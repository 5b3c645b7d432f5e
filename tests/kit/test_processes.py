"""A seed means the same in every process, whatever its hashes and addresses are."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import tempfile
from pathlib import Path

import trio
from trio.testing import MockClock

from tests.kit.test_kit import talk

async def main():
    with tempfile.TemporaryDirectory() as directory:
        for stanza in await talk(Path(directory), seed=7):
            print(*stanza, file=sys.stderr)  # the log goes to stdout

trio.run(main, clock=MockClock(autojump_threshold=0))
"""


@pytest.mark.thorough
def test_a_seed_gives_the_same_stanzas_in_every_process() -> None:
    runs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
        ).stderr
        for seed in (1, 2, 3)
    }
    assert len(runs) == 1
