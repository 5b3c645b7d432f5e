"""`xmpp-agent` and its commands, run in this process: what a command does is not another thing in a
process of its own, which takes a second to start (`tests/component/cli/test_doctor.py` has one).
"""

import contextlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from component.app import checks
from component.cli.group import group
from component.kernel.check import Check
from tests.logs import restored_logs
from tests.servers.agent_process import environment


def run(directory: Path, *words: str, secret: str = "", **settings: object) -> Result:
    """Run a command in a directory, with settings such as `server__port=1` in its environment."""
    given = {**environment(**settings), "AGENT_SECRET": secret}
    with restored_logs(), contextlib.chdir(directory), pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "check_sandbox", _unconfined)
        return CliRunner().invoke(group, words, env=dict(given))


async def _unconfined() -> Check:
    """What confined processes can do here is not tried out: it takes longer than most commands."""
    return Check("confinement", "ok", "")


def doctor(
    directory: Path, secret: str, **settings: object
) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code of `doctor`, and the verdict and the text of each check by its name.

    Its output must not hold the secret.
    """
    done = run(directory, "doctor", "--json", secret=secret, **settings)
    assert secret not in done.output
    found = [json.loads(line) for line in done.stdout.splitlines()]
    verdicts = {check["name"]: (check["verdict"], check["text"]) for check in found}
    verdicts.pop("confinement", None)
    return done.exit_code, verdicts
