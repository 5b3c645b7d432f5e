"""Every command of the operator, on both databases, while the service runs, is paused and stopped.

The commands are those of the command line: a new one needs a case in `CASES`, or a reason in
`NOT_HERE`.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import click
import pytest

from component.app.schema import SCHEMA
from component.cli.frame import ExitCode
from component.cli.group import group
from component.store import Storage
from tests.component.cli.conftest import RunCommand
from tests.component.cli.embedded import Embedded
from tests.component.features.task_commands.stored import complete, fail, insert
from tests.servers.agent_process import AgentProcess
from xep.fluux_agent import errors

pytestmark = pytest.mark.ports

NOT_HERE: Mapping[str, str] = {
    "init": "writes the configuration",
    "run": "is the service",
    "worker": "is another service",
    "demo": "has a service of its own",
    "skills new": "needs no configuration",
    "skills test": "needs no configuration",
    "upgrade": "has tests of its own, with databases of two releases",
    "rollback": "likewise",
}
STATES: Final = ("running", "paused", "stopped")
NEEDS_SERVICE = "The service is not running on data, and this command needs it."
FOR = ("--for", "juliet@localhost")
MONDAY = ("--when", "every monday at 9")
EXPORT = '{"format": 1, "agent": "assistant", "person": "juliet@localhost", "memories": []}'


class Case(NamedTuple):
    """How a command is called, and its outcome.

    Attributes:
        words: what follows its name.
        fails: the sentence with which it fails; by the state of the service, or in every state.
        json: what it prints with `--json`: one value, or one per line; "" without that option.
    """

    words: tuple[str, ...] = ()
    fails: Mapping[str, str] | str = {}
    json: str = "value"


ONLINE = {"stopped": NEEDS_SERVICE}
OFFLINE_ROOMS = {"stopped": "This works only while the service runs."}
NO_ROOM = dict.fromkeys(("running", "paused"), "is not in the room") | OFFLINE_ROOMS
CASES: Mapping[str, Case] = {
    "status": Case(),
    "tasks list": Case(),
    "tasks show": Case(("t-1",)),
    "tasks retry": Case(("t-failed",)),
    "tasks release": Case(("t-1",), "Task t-1 is not set aside"),
    "tasks queues": Case(),
    "tasks cancel": Case(("t-1",)),
    "schedules add": Case(
        (*FOR, "--when", "every monday at 9", "--goal", "Sum up.", "--name", "s")
    ),
    "schedules list": Case(),
    "schedules pause": Case(("s", *FOR)),
    "schedules resume": Case(("s", *FOR)),
    "schedules remove": Case(("s", *FOR)),
    "watches list": Case(),
    "watches show": Case(("builds",)),
    "watches pause": Case(("builds",)),
    "watches resume": Case(("builds",)),
    "watches remove": Case(("builds",), "settings"),
    "rooms list": Case(),
    "rooms join": Case(("lab@rooms.localhost",), OFFLINE_ROOMS),
    "rooms leave": Case(("lab@rooms.localhost",), OFFLINE_ROOMS),
    "rooms mode": Case(("lab@rooms.localhost", "never"), NO_ROOM),
    "rooms persona": Case(("lab@rooms.localhost", "reset"), NO_ROOM),
    "notifications list": Case(),
    "notifications drop": Case(("all", "--person", "juliet@localhost")),
    "notifications quiet": Case(("--person", "juliet@localhost", "--hours", "22:00-07:00")),
    "objects export": Case(FOR, ONLINE),
    "peers list": Case(),
    "grants list": Case(),
    "grants revoke": Case(("5e88",), "There is no grant '5e88'."),
    "grants new-keys": Case(),
    "audit trace": Case(("t-1",)),
    "audit verify": Case(),
    "audit tail": Case(json="lines"),
    "audit query": Case(json="lines"),
    "agents list": Case(),
    "agents tell": Case(("assistant", "Sum up.", *FOR), ONLINE),
    "agents pause": Case(("researcher",)),
    "agents resume": Case(("researcher",)),
    "agents kill": Case(("researcher", "--yes")),
    "memory export": Case(FOR, ONLINE),
    "memory import": Case((*FOR, EXPORT), ONLINE),
    "memory missing": Case(("restore", *FOR), ONLINE),
    "memory forget": Case((*FOR, "--yes"), ONLINE),
    "budget": Case(),
    "skills list": Case(),
    "skills show": Case(("word-count",)),
    "skills approve": Case(("word-count", "--yes")),
    "skills revoke": Case(("word-count",)),
    "skills reject": Case(("word-count",), "proposed"),
    "skills call": Case(("echo", "text=hello"), json=""),
    "policy explain": Case(("juliet@localhost", "echo")),
    "doctor": Case(fails="1 check failed.", json="lines"),
    "resume": Case(),
    "pause": Case(),
    "reload": Case(fails=ONLINE, json=""),
    "health": Case(fails={"stopped": "The service is not running on data."}, json=""),
}


def commands(of: click.Group, before: str = "") -> Iterator[str]:
    """Yield the names of all commands, with those of their groups."""
    context = click.Context(of)
    for name in of.list_commands(context):
        found = of.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_every_command_has_a_case() -> None:
    assert set(commands(group)) == CASES.keys() | NOT_HERE.keys()


SETTINGS = """
[llm]
provider = "vllm"
model = "none"
base_url = "http://127.0.0.1:1"
[[agents]]
name = "researcher"
description = "Finds out."
[skills]
directories = ["skills"]
[watches]
services = ["pubsub.localhost"]
[[watch]]
name = "builds"
service = "pubsub.localhost"
node = "builds"
principal = "juliet@localhost"
goal = "Say which build failed."
[[peer]]
name = "research"
jid = "agent.example.net"
"""
EXAMPLES = Path(__file__).parents[3] / "examples" / "skills"


async def _store_tasks(**where: str) -> None:
    async with Storage.open(SCHEMA, Path("data"), **where) as storage:
        await storage.write(lambda db: insert(db, "t-1"))
        await storage.write(lambda db: fail(db, insert(db, "t-failed"), errors.internal()))
        await storage.write(lambda db: complete(db, insert(db, "t-done")))


@pytest.fixture(params=STATES)
def state(
    request: pytest.FixtureRequest,
    database_kind: str,
    command: RunCommand,
    embedded: Embedded,
    tmp_path: Path,
) -> Iterator[tuple[str, RunCommand]]:
    """The state of a service with tasks, a watch and a skill in a directory."""
    postgres = request.getfixturevalue("migrated_url") if database_kind == "postgresql" else ""
    with ExitStack() as stack:
        toml = embedded.agent_toml() + SETTINGS
        given = {"storage__postgres": postgres}

        def run(*words: str) -> Any:
            return command(*words, **given)

        shutil.copytree(EXAMPLES / "word-count", "skills/word-count")
        anyio.run(lambda: _store_tasks(**({"postgres": postgres} if postgres else {})))
        service = stack.enter_context(AgentProcess(embedded, tmp_path, toml=toml, **given))
        service.connected()
        if request.param == "paused":
            assert run("pause").exit_code == ExitCode.OK
        elif request.param == "stopped":
            assert service.stop() == ExitCode.OK
        yield request.param, run


def test_every_command_gives_its_result_or_a_sentence(state: tuple[str, RunCommand]) -> None:
    name, run = state
    for command, case in CASES.items():
        words = (*command.split(), *case.words)
        result = run(*words, "--json") if case.json else run(*words)
        why = f"{name}: {command}: {result.output} {result.exception!r}"
        fails = case.fails if isinstance(case.fails, str) else case.fails.get(name, "")
        assert result.exit_code == (ExitCode.FAILURE if fails else ExitCode.OK), why
        assert isinstance(result.exception, SystemExit | None), why
        assert fails in result.stderr, why
        assert bool(fails) == result.stderr.startswith("error: "), why
        if case.json and result.stdout:
            texts = result.stdout.splitlines() if case.json == "lines" else [result.stdout]
            assert all(map(json.loads, texts)) or texts == ["[]\n"], why
        assert result.stdout or fails, why
