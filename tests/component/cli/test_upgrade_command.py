"""`xmpp-agent upgrade`, `rollback` and `health` on the command line."""

from pathlib import Path

import anyio
import pytest

from component.app import schema
from component.app.schema import SCHEMA
from component.cli.frame import ExitCode
from component.store import Storage
from component.store.schema import FIRST, Migration, Schema, Table
from tests.component.cli.conftest import RunCommand
from tests.component.cli.embedded import Embedded
from tests.servers.agent_process import AgentProcess

NOTES = Table(name="notes", columns="text TEXT PRIMARY KEY")
NEWER = Schema(
    (*SCHEMA.tables[1:], NOTES),
    (*SCHEMA.migrations, Migration(about="adds notes", sqlite=(NOTES.statement("sqlite"),))),
)
DATA = Path("data")


@pytest.fixture
def _older_database(command: RunCommand) -> None:
    """In the directory of `command`."""

    async def make() -> None:
        async with Storage.open(SCHEMA, DATA):
            pass

    anyio.run(make)


@pytest.mark.usefixtures("_older_database")
def test_an_upgrade_is_rehearsed_done_and_undone(
    command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is nothing to do" in command("upgrade").stdout
    monkeypatch.setattr(schema, "SCHEMA", NEWER)
    rehearsed = command("upgrade", "--rehearse")
    assert rehearsed.stdout == f"The upgrade from version {FIRST} to {FIRST + 1} succeeds.\n"
    upgraded = command("upgrade").stdout
    assert f"from version {FIRST} to {FIRST + 1}" in upgraded
    assert "before-upgrade" in upgraded
    assert f"Put the backup of version {FIRST} back" in command("rollback").stdout
    nothing = command("rollback")
    assert nothing.exit_code == ExitCode.FAILURE
    assert "There is no upgrade to undo" in nothing.stderr


@pytest.mark.usefixtures("_older_database")
def test_doctor_warns_of_an_upgrade_that_the_next_start_does(
    command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.app.checks.SCHEMA", NEWER)
    report = command("doctor")
    assert "warn   storage" in report.stdout
    assert "Start the service, which upgrades it" in report.stdout


def test_without_a_database_there_is_nothing_to_upgrade(command: RunCommand) -> None:
    for arguments in (("upgrade",), ("upgrade", "--rehearse"), ("rollback",)):
        result = command(*arguments)
        assert result.exit_code == ExitCode.FAILURE
        assert "There is no database in" in result.stderr


def test_a_service_that_does_not_run_is_not_healthy(command: RunCommand) -> None:
    result = command("health")
    assert result.exit_code == ExitCode.FAILURE
    assert "The service is not running on" in result.stderr


@pytest.mark.ports
def test_a_service_that_answers_is_healthy(command: RunCommand, embedded: Embedded) -> None:
    with AgentProcess(embedded, Path.cwd()) as agent:
        agent.connected()
        assert command("health", "--connected").stdout.startswith("The service runs, connected")
