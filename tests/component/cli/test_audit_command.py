"""`xmpp-agent audit`: what it finds, what it says, and its exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from component.app.schema import SCHEMA
from component.audit.files import files_in
from component.audit.protocol import AuditEvent
from component.audit.record import Audit
from component.cli.group import group
from component.config.service import Audit as AuditSettings
from component.store import Storage
from tests.component.cli.conftest import RunCommand

_TOML = """
[server]
component_domain = "agent.example.com"
component_secret = "secret"
[storage]
path = "{path}"
"""


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(_TOML.format(path=tmp_path / "data"))
    return path


@pytest.fixture
def recorded(tmp_path: Path, toml: Path) -> Path:
    async def life() -> None:
        path = tmp_path / "data"
        async with (
            Storage.open(SCHEMA, path) as storage,
            Audit.open(storage, AuditSettings()) as audit,
        ):
            for name in ("juliet", "romeo", "juliet"):
                who = f"{name}@example.com"
                audit.record(
                    AuditEvent(kind="execute", outcome="done", principal=who, subject="echo")
                )
            audit.record(
                AuditEvent(
                    kind="policy", outcome="refused", principal="m@x.org", detail="a \x1b[31m b"
                )
            )

    anyio.run(life)
    return toml


def run(toml: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(group, ["audit", *arguments, "--config", str(toml)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_a_whole_record_is_whole(recorded: Path) -> None:
    result = run(recorded, "verify")
    assert result.exit_code == 0
    assert "The audit log is complete and unchanged: 6 entries in 1 file," in result.stdout
    known = result.stdout.split("The last one is ")[1].strip()
    assert run(recorded, "verify", "--known", known).exit_code == 0


def test_a_changed_line_is_named_with_its_file(recorded: Path) -> None:
    file = files_in(recorded.parent / "data" / "audit")[0]
    file.write_bytes(file.read_bytes().replace(b"romeo", b"paris"))
    result = run(recorded, "verify")
    assert result.exit_code == 1
    assert f"{file.name}:3 (line 3) does not have the hash of its content" in result.stderr
    assert "--after 3" in result.stderr
    assert run(recorded, "verify", "--after", "3").exit_code == 0
    shown = json.loads(run(recorded, "verify", "--json").stdout)
    assert shown["whole"] is False
    assert [(each["file"], each["seq"]) for each in shown["findings"]] == [(file.name, 3)]


def test_a_tail_that_was_cut_off_is_known_from_the_database(recorded: Path) -> None:
    file = files_in(recorded.parent / "data" / "audit")[0]
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-2]))
    result = run(recorded, "verify")
    assert result.exit_code == 1
    assert "lines 5 to 6 are missing" in result.stderr
    assert run(recorded, "verify", "--files-only").exit_code == 0


def test_a_database_that_cannot_be_read_is_an_error(recorded: Path) -> None:
    (recorded.parent / "data" / "agent.db").write_bytes(b"no database" * 500)
    result = run(recorded, "verify")
    assert result.exit_code == 1
    assert "--files-only" in result.stderr


def test_a_record_without_its_database_is_not_called_whole(recorded: Path) -> None:
    known = run(recorded, "verify").stdout.split("The last one is ")[1].strip()
    for file in (recorded.parent / "data").glob("agent.db*"):
        file.unlink()
    result = run(recorded, "verify")
    assert result.exit_code == 1
    assert "the database has no entry for it" in result.stderr
    assert "--files-only" in result.stderr
    assert run(recorded, "verify", "--files-only", "--known", known).exit_code == 0


def test_nothing_recorded_yet_is_said(toml: Path) -> None:
    assert "There is no audit log in" in run(toml, "verify").stdout
    assert run(toml, "tail").stdout == ""


@pytest.mark.parametrize("known", ["soon", "1:abc", ":", "1:" + "g" * 64])
def test_what_is_no_line_cannot_be_known(toml: Path, known: str) -> None:
    result = run(toml, "verify", "--known", known)
    assert result.exit_code == 2
    assert "give the number and the hash" in result.stderr


def test_query_finds_in_both_orders_and_as_json(recorded: Path) -> None:
    found = run(recorded, "query", "--principal", "juliet@example.com", "--json").stdout
    assert [json.loads(line)["seq"] for line in found.splitlines()] == [2, 4]
    found = run(recorded, "query", "--kind", "execute", "--newest-first", "--limit", "1").stdout
    assert found.endswith("execute done juliet@example.com echo\n")
    assert run(recorded, "query", "--until", "1h").stdout == ""
    assert len(run(recorded, "query", "--since", "1h").stdout.splitlines()) == 6


def test_audit_query_on_the_command_line_refuses_an_invalid_time(recorded: Path) -> None:
    result = run(recorded, "query", "--since", "soon")
    assert result.exit_code == 2
    assert "'soon' is not a valid time: write 2026-03-01" in result.stderr


def test_nothing_that_a_terminal_acts_on_gets_through(recorded: Path) -> None:
    shown = run(recorded, "query", "--outcome", "refused").stdout
    assert "\x1b" not in shown
    assert "(a \N{REPLACEMENT CHARACTER}[31m b)" in shown


def test_tail_shows_the_last_lines(recorded: Path) -> None:
    shown = run(recorded, "tail", "-n", "2").stdout.splitlines()
    assert len(shown) == 2
    assert shown[1].endswith("record closed")


def test_tail_follows_until_it_is_interrupted(recorded: Path) -> None:
    async def more() -> None:
        path = recorded.parent / "data"
        async with (
            Storage.open(SCHEMA, path) as storage,
            Audit.open(storage, AuditSettings()) as audit,
        ):
            audit.record(AuditEvent(kind="execute", outcome="done", subject="followed"))

    # Whoever started the tests in the background may have had the signal ignored.
    main = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from component.cli.main import main; main()"
    )
    command = [sys.executable, "-c", main, "audit", "tail", "-f", "-n", "1"]
    with subprocess.Popen(
        [*command, "--config", str(recorded)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            assert "record closed" in process.stdout.readline()
            anyio.run(more)
            assert "record opened" in process.stdout.readline()
            assert process.stdout.readline().endswith("execute done followed\n")
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
        finally:
            process.kill()


def test_the_kinds_on_the_command_line_are_those_of_events() -> None:
    from typing import get_args

    from component.audit.protocol import EventKind
    from component.cli.audit import _KINDS

    assert get_args(EventKind) == _KINDS


@pytest.mark.parametrize("name", ["query", "tail"])
def test_lines_are_promised_as_json_lines(command: RunCommand, name: str) -> None:
    assert "Print JSON, one object per line." in command("audit", name, "--help").output
    assert "one object a line" not in command("audit", "verify", "--help").output


def test_a_trace_of_unknown_work_is_said(recorded: Path) -> None:
    result = run(recorded, "trace", "9f86d081884c7d659a2feaa0c55ad015")
    assert result.exit_code == 1
    assert "There is no task and no trace '9f86d081884c7d659a2feaa0c55ad015' here." in result.output
    assert run(recorded, "trace", "x", "--json").output == "[]\n"
