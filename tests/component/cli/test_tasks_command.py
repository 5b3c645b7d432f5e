"""`xmpp-agent tasks`, `status`, `pause`, `resume`: without a service on real rows, with one through
its socket.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from component.app.schema import SCHEMA
from component.cli.frame import ExitCode
from component.cli.rows import print_sheet
from component.commands import AnyCommand, Commands
from component.control.server import ControlServer
from component.features.task_commands.commands import TaskCommands
from component.store import Storage
from component.store.database import Database
from component.tasks.admin import TaskAdmin
from component.tasks.protocol import TaskLimits
from tests.component.cli.conftest import RunCommand
from tests.component.cli.embedded import Embedded
from tests.component.features.task_commands.stored import (
    ALICE,
    BOB,
    complete,
    fail,
    insert,
)
from tests.servers.agent_process import AgentProcess
from tests.servers.talk import execute, output
from xep.fluux_agent import errors

DATA = Path("data")


def stored(*ops: Callable[[Database], Any]) -> None:
    async def write() -> None:
        async with Storage.open(SCHEMA, DATA) as storage:
            for op in ops:
                await storage.write(op)

    anyio.run(write)


def three_tasks() -> None:
    stored(
        lambda db: insert(db, "t-1"),
        lambda db: complete(db, insert(db, "t-2", principal=BOB), "all \x9b31m of\nit"),
        lambda db: fail(db, insert(db, "t-3"), errors.internal()),
    )


class HasCommands(Protocol):
    def commands(self) -> tuple[AnyCommand, ...]: ...


def of_tasks(storage: Storage) -> HasCommands:
    return TaskCommands(TaskAdmin(storage, TaskLimits()))


@contextmanager
def service(made: Callable[[Storage], HasCommands] = of_tasks) -> Iterator[None]:
    """A running service, as far as the command line knows: a locked storage and a socket."""

    async def run(started: anyio.Event, scope: anyio.CancelScope) -> None:
        with scope:
            async with Storage.open(SCHEMA, DATA) as storage, anyio.create_task_group() as tasks:
                commands = Commands(made(storage).commands())
                await tasks.start(ControlServer(DATA, commands).run)
                started.set()

    with start_blocking_portal() as portal:
        started, scope = portal.call(anyio.Event), portal.call(anyio.CancelScope)
        future = portal.start_task_soon(run, started, scope)
        portal.call(started.wait)
        yield
        portal.call(scope.cancel)
        future.result()


@pytest.fixture(params=["without a service", "with one"])
def tasks(command: RunCommand, request: pytest.FixtureRequest) -> Iterator[RunCommand]:
    """`xmpp-agent tasks` on three tasks."""
    three_tasks()
    if request.param == "with one":
        with service():
            yield lambda *words: command("tasks", *words)
    else:
        yield lambda *words: command("tasks", *words)


def listed(tasks: RunCommand, *words: str) -> list[str]:
    result = tasks("list", "--json", *words)
    assert result.exit_code == ExitCode.OK, result.output
    return sorted(task["id"] for task in json.loads(result.stdout))


def test_list_and_its_filters(tasks: RunCommand) -> None:
    assert listed(tasks) == ["t-1", "t-2", "t-3"]
    assert listed(tasks, "--state", "failed") == ["t-3"]
    assert listed(tasks, "--principal", BOB) == ["t-2"]
    assert len(listed(tasks, "--limit", "2")) == 2
    assert listed(tasks, "--state", "cancelling") == []


def test_tasks_list_prints_a_table_of_tasks(tasks: RunCommand) -> None:
    result = tasks("list")
    header, *rows = result.stdout.splitlines()
    assert header.split() == ["Id", "Skill", "State", "Principal", "Created", "Updated"]
    assert sorted(row.split()[:4] for row in rows) == [
        ["t-1", "report", "accepted", ALICE],
        ["t-2", "report", "completed", BOB],
        ["t-3", "report", "failed", ALICE],
    ]
    assert "\x1b" not in result.output
    assert tasks("list", "--state", "running").stdout == "There are no tasks that are running.\n"


def test_tasks_show_prints_a_task_with_its_outputs(tasks: RunCommand) -> None:
    result = tasks("show", "t-2")
    fields = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if line[0] != " ")
    assert fields["State"].strip() == "completed"
    assert fields["Outputs"].startswith("summary text/plain all")
    assert "\x9b" not in result.output  # a terminal would act on it
    whole = json.loads(tasks("show", "--json", "t-2").stdout)
    assert whole["principal"] == BOB
    assert whole["outputs"][0]["text"].endswith("of\nit")


def test_cancel_and_retry(tasks: RunCommand) -> None:
    cancelled = json.loads(tasks("cancel", "--json", "t-1").stdout)
    assert cancelled["state"] == "cancelled"
    again = json.loads(tasks("retry", "--json", "t-3").stdout)
    assert (again["state"], again["principal"]) == ("accepted", ALICE)
    assert listed(tasks, "--state", "accepted") == [again["id"]]


@pytest.mark.parametrize("words", [("show", "t-9"), ("cancel", "t-9"), ("retry", "t-9")])
def test_an_unknown_task(tasks: RunCommand, words: tuple[str, ...]) -> None:
    result = tasks(*words)
    assert result.exit_code == ExitCode.FAILURE
    assert result.stdout == ""
    assert result.stderr == "error: There is no such task here.\n"


def test_tasks_retry_refuses_a_completed_task(tasks: RunCommand) -> None:
    result = tasks("retry", "t-2")
    assert result.exit_code == ExitCode.FAILURE
    assert result.stderr.startswith("error: Task t-2 is completed")


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--limit", "0"),
        ("list", "--limit", "many"),
        ("list", "--state", "nosuch"),
        ("list", "--all"),
        ("show",),
        ("show", "t-1", "t-2"),
    ],
)
def test_a_command_line_that_is_wrong(command: RunCommand, words: tuple[str, ...]) -> None:
    result = command("tasks", *words)
    assert result.exit_code == ExitCode.USAGE
    assert "Usage: " in result.stderr


def test_help_has_the_options_of_the_definition(command: RunCommand) -> None:
    text = command("tasks", "list", "--help").stdout
    assert "Only tasks of this bare JID." in text
    assert "[default: 20]" in text
    assert "input-required" in text
    assert "xmpp-agent tasks list --state running" in text
    assert "--all" not in text
    assert "TASK" in command("tasks", "show", "--help").stdout


def test_before_the_first_start_there_is_nothing(command: RunCommand) -> None:
    result = command("tasks", "list")
    assert result.exit_code == ExitCode.FAILURE
    assert result.stderr.startswith(
        "error: There is no database in data: the service has not run there"
    )
    assert not DATA.exists()


def test_a_service_that_has_no_socket_yet(command: RunCommand) -> None:
    three_tasks()

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Storage.open(SCHEMA, DATA)),
    ):
        result = command("tasks", "list")
    assert result.exit_code == ExitCode.FAILURE
    assert "is in use by process" in result.stderr


def test_the_status_without_a_service(command: RunCommand) -> None:
    three_tasks()
    result = command("status", "--json")
    assert result.exit_code == ExitCode.OK, (result.output, result.exception)
    status = json.loads(result.stdout)
    assert (status["started"], status["storage"], status["skills"]) == (None, "SQLite", 25)
    assert (status["tasks"]["completed"], status["tasks"]["queued"]) == (1, 1)
    sheet = command("status").stdout
    assert "completed 1" in sheet


def test_a_service_can_be_paused_before_it_runs(command: RunCommand) -> None:
    three_tasks()
    assert "Paused" in command("pause").stdout
    assert json.loads(command("status", "--json").stdout)["paused"] is True
    assert "accepted again" in command("resume").stdout
    assert json.loads(command("status", "--json").stdout)["paused"] is False


def test_seconds_are_shown_as_people_say_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_sheet({"uptime_s": 7384, "paused": False})
    assert [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()] == [
        ["Uptime", "2 h 3 min"],
        ["Paused", "no"],
    ]


def test_commands_reach_a_running_service_through_its_socket(
    embedded: Embedded, tmp_path: Path, command: RunCommand
) -> None:
    """Pause, resume, status and tasks go through the socket of a service in its own process."""
    with AgentProcess(embedded, tmp_path) as service, embedded.login() as juliet:
        service.connected()
        status = json.loads(command("status", "--json").stdout)
        assert status["connected_since"] is not None
        assert (status["storage"], status["paused"]) == ("SQLite", False)
        asked = execute("echo", text="hello")
        domain = embedded.component_domain
        assert output(juliet.iq(domain, asked, "set")) == "hello"
        assert "Paused" in command("pause").stdout
        refused = juliet.iq(domain, asked, "set")
        assert refused.get("type") == "error"
        assert (
            refused.find(".//{urn:ietf:params:xml:ns:xmpp-stanzas}resource-constraint") is not None
        )
        assert json.loads(command("status", "--json").stdout)["paused"] is True
        assert "accepted again" in command("resume").stdout
        assert output(juliet.iq(domain, asked, "set")) == "hello"
        assert command("tasks", "list").stdout == "There are no tasks.\n"
        assert command("tasks", "show", "nosuch").exit_code == ExitCode.FAILURE
        assert service.stop() == ExitCode.OK
    assert not (DATA / "control.sock").exists()
    # And without it, on the storage that it left.
    assert json.loads(command("status", "--json").stdout)["started"] is None
    assert command("tasks", "list", "--json").stdout == "[]\n"
