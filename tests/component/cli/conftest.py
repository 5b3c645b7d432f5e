"""What the tests of commands share: a server, and a directory with an agent.toml for it."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from component.app import checks
from component.cli.group import group
from component.kernel.check import Check
from tests.component.cli.embedded import Embedded, embedded_server
from tests.component.sandbox.unreported import no_confinement_report
from tests.logs import restored_logs
from tests.servers.agent_process import environment

__all__ = ["RunCommand", "check_sandbox", "command", "embedded", "no_confinement_report"]

RunCommand = Callable[..., Result]


@pytest.fixture(scope="package")
def embedded() -> Iterator[Embedded]:
    with embedded_server() as server:
        yield server


@pytest.fixture(scope="package")
def check_sandbox() -> Callable[[], Awaitable[Check]]:
    """Finds once for all tests what `doctor` tries out in confined processes."""
    unpatched = checks.check_sandbox
    found: list[Check] = []

    async def check() -> Check:
        if not found:
            found.append(await unpatched())
        return found[0]

    return check


@pytest.fixture
def command(
    embedded: Embedded,
    check_sandbox: Callable[[], Awaitable[Check]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[RunCommand]:
    """Run a command in a directory with an agent.toml for the embedded server.

    Settings such as `server__port=1` go into its environment; `said` is typed. No output may hold
    the secret.
    """
    monkeypatch.setattr(checks, "check_sandbox", check_sandbox)
    monkeypatch.chdir(tmp_path)
    Path("agent.toml").write_text(embedded.agent_toml())

    def run(
        *arguments: str, secret: str = embedded.secret, said: str = "", **settings: object
    ) -> Result:
        given = {**environment(**settings), "AGENT_SECRET": secret}
        result = CliRunner().invoke(group, arguments, env=dict(given), input=said)
        assert secret not in result.output
        assert embedded.secret not in result.output
        return result

    with restored_logs():
        yield run
