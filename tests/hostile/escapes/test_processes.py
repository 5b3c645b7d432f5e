"""Attacks of native code in confined children: each is stopped, its end has a reason, and calls of
others succeed meanwhile. They run as the user of the tests, as an ordinary user without user
namespaces, and thoroughly as one with them too.
"""

import os
import subprocess
import sys

import msgspec
import pytest

from tests.hostile.escapes.process_campaign import NAMES, TOGETHER, Outcome
from tests.profiles import THOROUGH

MODES = (
    dict.fromkeys(("own", "bare", "namespaces"), NAMES)
    if THOROUGH
    else {
        "own": (
            *(TOGETHER, "old_gate", "endless_loop", "ignored_deadline"),
            *("big_answer", "deep_message", "closed_pipe", "description_lies"),
            *("command_reads", "command_forks", "many_files", "other_principal"),
        ),
        "bare": (TOGETHER, "command_hides", "command_becomes_root"),
    }
)
"""The gate has one of each kind, and all that fail without a word in one call."""
NEEDS_NAMESPACES = {"many_files"}
"""What only a kernel with mount namespaces stops; `docs/explanation/sandbox.md` says so."""


pytestmark = pytest.mark.servers


def _can_change_user() -> bool:
    if os.getuid() != 0:
        return False
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.escapes.other_user", "bare", "/bin/true"],
        check=False,
        capture_output=True,
    )
    return done.returncode == 0


def _outcomes(mode: str) -> list[Outcome]:
    campaign = [sys.executable, "-B", "-m", "tests.hostile.escapes.process_campaign", *MODES[mode]]
    if mode != "own":
        if not _can_change_user():
            pytest.skip("only root can run it as another user")
        launcher = [sys.executable, "-m", "tests.hostile.escapes.other_user", mode]
        campaign = [*launcher, *campaign]
    done = subprocess.run(campaign, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return msgspec.json.decode(done.stdout, type=list[Outcome])


def test_at_least_25_attacks() -> None:
    assert len(set(NAMES)) == len(NAMES) > 25


@pytest.mark.parametrize("mode", MODES)
def test_each_attack_of_native_code_is_stopped(mode: str) -> None:
    outcomes = _outcomes(mode)
    allowed = NEEDS_NAMESPACES if mode == "bare" else set()
    assert [one.name for one in outcomes] == list(MODES[mode])
    escaped = {one.name: one.said for one in outcomes if not one.stopped}
    assert {name: said for name, said in escaped.items() if name not in allowed} == {}
    assert [one.name for one in outcomes if not one.honest] == [], "calls of others failed"
