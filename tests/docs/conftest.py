"""What the tests of the guides share: the command line in the process of the test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from component.cli.frame import ExitCode
from component.cli.group import group
from tests.component.sandbox.unreported import no_confinement_report
from tests.logs import restored_logs
from tests.servers.agent_process import environment

__all__ = ["commands", "no_confinement_report"]

Commands = Callable[..., str]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """Run a command line of a guide in the directory of the test; return what it prints, or its
    error if it ends with another code than 0.
    """

    def run(line: str, *more: str, code: int = ExitCode.OK, **variables: str) -> str:
        program, *words = line.split()
        assert program == "xmpp-agent"
        monkeypatch.chdir(tmp_path)
        done = CliRunner().invoke(group, [*words, *more], env={**environment(), **variables})
        assert done.exit_code == code, (done.output, done.exception)
        return done.stdout if code == ExitCode.OK else done.stderr

    with restored_logs():
        yield run
