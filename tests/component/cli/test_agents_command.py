"""`xmpp-agent agents` and `xmpp-agent budget`, without a service: on the storage."""

import json
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from component.cli.exit_codes import ExitCode
from component.storage import Storage
from component.storage.database import Database
from tests.component.cli.conftest import RunCommand

DATA = Path("data")


@pytest.fixture(autouse=True)
def _declared(command: RunCommand) -> None:
    """Two agents, and what they spent today."""
    assert command, "it makes the directory"
    path = Path("agent.toml")
    path.write_text(
        path.read_text()
        + '\n[[agents]]\nname = "researcher"\ndescription = "Finds out."\n'
        + "[budgets.total]\ntokens = 1000\n"
    )
    today = datetime.now(UTC).date().isoformat()

    def op(database: Database) -> None:
        for scope, of in (("day", "all"), ("principal", "juliet@localhost")):
            database.execute(
                "INSERT INTO spending VALUES (?, ?, ?, 250, 0.5, 3)", (today, scope, of)
            )

    async def write() -> None:
        async with Storage.open(DATA) as storage:
            await storage.write(op)

    anyio.run(write)


def states(command: RunCommand) -> dict[str, str]:
    found = json.loads(command("agents", "list", "--json").output)
    return {one["name"]: one["state"] for one in found}


def test_agents_are_paused_and_killed_for_the_next_start(command: RunCommand) -> None:
    assert states(command) == {"assistant": "created", "researcher": "created"}
    assert command("agents", "pause", "researcher").exit_code == ExitCode.OK
    assert states(command)["researcher"] == "paused"
    assert command("agents", "resume", "researcher").exit_code == ExitCode.OK
    killed = command("agents", "kill", "researcher", "--json")
    assert json.loads(killed.output)["state"] == "killed"
    again = command("agents", "resume", "researcher")
    assert again.exit_code == ExitCode.FAILURE
    assert "it is killed" in again.output
    assert "no agent called 'nobody'" in command("agents", "pause", "nobody").output


def test_what_was_spent(command: RunCommand) -> None:
    rows = json.loads(command("budget", "--json").output)
    assert [(row["scope"], row["tokens"], row["limit_tokens"]) for row in rows] == [
        ("day", 250, 1000),
        ("principal", 250, None),
    ]
    assert "juliet@localhost" in command("budget").output
    assert "Nothing was spent." in command("budget", "--day", "2020-01-01").output
    assert command("budget", "--day", "yesterday").exit_code == ExitCode.USAGE
