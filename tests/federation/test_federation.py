"""The scenarios of `scenarios.py`, in a network of their own: in a thorough run all of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.watchdog import Watchdog

NETWORK = Path(__file__).parents[1] / "tools" / "network.sh"
SCENARIOS = Path(__file__).with_name("scenarios.py")

pytestmark = pytest.mark.servers


def test_agents_of_three_domains_work_together(tmp_path_factory: pytest.TempPathFactory) -> None:
    temporary = tmp_path_factory.mktemp("f") / "t"
    run = [str(NETWORK), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        [*run, f"--basetemp={temporary}", str(SCENARIOS)],
        cwd=SCENARIOS.parents[2],
        env={name: value for name, value in os.environ.items() if "XDIST" not in name},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as scenarios:
        watchdog = Watchdog(scenarios.pid)
        try:
            output, _ = scenarios.communicate()
        except BaseException:
            watchdog.kill_group()
            raise
        watchdog.stop()
    assert scenarios.returncode == 0, output
