"""`xmpp-agent agents` and `xmpp-agent budget`, without a service: on the storage."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import anyio
import click
import pytest

from component.app.schema import SCHEMA
from component.cli import frame
from component.cli.frame import ExitCode
from component.cli.rows import print_rows
from component.store import Storage
from component.store.database import Database
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
                "INSERT INTO spending (day, scope, subject, tokens, usd, calls)"
                " VALUES (?, ?, ?, 250, 0.5, 3)",
                (today, scope, of),
            )

    async def write() -> None:
        async with Storage.open(SCHEMA, DATA) as storage:
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
    killed = command("agents", "kill", "researcher", "--yes", "--json")
    assert json.loads(killed.output)["state"] == "killed"
    again = command("agents", "resume", "researcher")
    assert again.exit_code == ExitCode.FAILURE
    assert "it is killed" in again.output
    assert "no agent called 'nobody'" in command("agents", "pause", "nobody").output


def test_nobody_is_killed_by_a_script_that_has_not_said_so(command: RunCommand) -> None:
    result = command("agents", "kill", "researcher")
    assert result.exit_code == ExitCode.USAGE
    assert "--yes" in result.output
    assert states(command)["researcher"] == "created"


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("y\n", "killed"),
        ("n\n", "created"),
        ("\n", "created"),
        ("", "created"),
        ("?\nn\n", "created"),
    ],
)
def test_on_a_terminal_a_kill_is_asked_for_once(
    command: RunCommand, monkeypatch: pytest.MonkeyPatch, said: str, state: str
) -> None:
    monkeypatch.setattr(frame, "interactive", lambda: True)
    result = command("agents", "kill", "researcher", "--json", said=said)
    assert result.exit_code == (ExitCode.OK if state == "killed" else ExitCode.FAILURE)
    assert "Kill researcher? [y/N]: " in result.stderr
    assert "cannot be resumed. Its memory stays on disk." in result.stderr
    assert bool(result.stdout) == (state == "killed")  # what is asked is none of the JSON
    assert states(command)["researcher"] == state


def test_a_kill_is_not_asked_for_where_it_was_said_already(
    command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "interactive", lambda: True)
    result = command("agents", "kill", "-y", "researcher")
    assert result.exit_code == ExitCode.OK
    assert "[y/N]" not in result.output


@pytest.mark.parametrize(
    "line", ["agents pause", "agents resume", "tasks cancel", "pause", "status"]
)
def test_what_can_be_taken_back_asks_for_nothing(command: RunCommand, line: str) -> None:
    assert "--yes" not in command(*line.split(), "--help").output


def test_what_was_spent(command: RunCommand) -> None:
    rows = json.loads(command("budget", "--json").output)
    assert [(row["scope"], row["tokens"], row["limit_tokens"]) for row in rows] == [
        ("total", 250, 1000),
        ("principal", 250, None),
    ]
    shown = [line.split()[:2] for line in command("budget").output.splitlines()]
    assert shown[1:] == [["total", "everybody"], ["principal", "juliet@localhost"]]
    assert "Nothing was spent." in command("budget", "--day", "2020-01-01").output
    assert command("budget", "--day", "yesterday").exit_code == ExitCode.USAGE


def test_a_day_that_is_none_is_told_how_days_are_written(command: RunCommand) -> None:
    result = command("budget", "--day", "yesterday")
    assert "day is not valid: Day in UTC, such as 2026-11-22" in result.output
    assert "regex" not in result.output
    assert "[default: ]" not in command("budget", "--help").output


def test_the_list_fits_a_terminal_and_a_pipe(
    command: RunCommand, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = command("agents", "list").output.splitlines()
    assert plain[0].split() == ["Name", "State", "Created", "Changed", "Description"]
    assert all(line == line.rstrip() for line in plain)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_rows(json.loads(command("agents", "list", "--json").output))
    wide = click.unstyle(capsys.readouterr().out).splitlines()
    # Neither a name nor a time is broken.
    assert [line.split()[0] for line in wide if line[:1].isalpha()] == [
        *("Name", "assistant", "researcher")
    ]
    assert all(len(line) <= 80 for line in wide)
    assert all(re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  ", line) for line in wide[1:])
