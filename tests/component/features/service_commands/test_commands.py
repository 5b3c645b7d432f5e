"""How the service is, and whether it takes on new work."""

import functools
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from component.commands import OPERATOR, Asking, CommandResult, Commands, read_words
from component.features.service_commands.commands import (
    PAUSE,
    AdminCommands,
    ServiceStatus,
    Vitals,
)
from component.kernel.pause_gate import PauseGate
from component.kernel.tasks import TaskSubsystem
from component.store import Storage, StorageError
from component.store.outages import Outage
from component.store.shared import Switches
from component.tasks.admin import Counts
from tests.overtaking import overtake
from xep.fluux_agent.errors import Retry
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
ALICE, BOSS = JID.parse("alice@a.example"), JID.parse("boss@a.example")


class Counted:
    def __init__(self, outage: Outage | None) -> None:
        self.outage = outage

    async def find_outage(self) -> Outage | None:
        return self.outage

    async def counts(self) -> Counts:
        if self.outage is not None:
            raise StorageError(self.outage.reason)
        return Counts(running=2, input_required=1, completed=7, owned=2, queued=3)


class Remembered:
    """Switches in memory."""

    def __init__(self) -> None:
        self.on: set[str] = set()
        self.one_at_a_time = anyio.Lock()

    async def is_on(self, name: str) -> bool:
        return name in self.on

    async def turn(self, name: str, *, on: bool) -> bool:
        before = name in self.on
        (self.on.add if on else self.on.discard)(name)
        return before != on


def commands(intake: PauseGate | None, outage: Outage | None = None, **vitals: Any) -> Commands:
    said = Vitals(
        software="agent",
        version="1.2",
        domain="agent.example",
        storage="SQLite",
        skills=4,
        models=("vllm one", "openai two"),
        python="3.11",
        backend="trio",
        **vitals,
    )
    ledger: Any = Counted(outage)
    switches: Any = Remembered()
    made = AdminCommands(lambda _zone: said, ledger, switches, intake, zone_of)
    return Commands(made.commands(), [BOSS])


async def zone_of(asking: Asking) -> str:
    return "UTC" if asking.principal is None else "Europe/Berlin"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("component.system.now", lambda: NOW)


async def run(table: Commands, name: str, **params: str) -> CommandResult:
    command = table.get(name, OPERATOR)
    assert command is not None
    return await command.run(OPERATOR, command.read(params.items()))


async def test_the_status_says_how_it_is() -> None:
    since = NOW - timedelta(days=1, hours=2, minutes=3)
    table = commands(PauseGate(), started=since, connected_since=NOW - timedelta(seconds=5))
    answer = await run(table, "status")
    assert isinstance(answer.value, ServiceStatus)
    assert answer.value.uptime_s == 93_780
    assert answer.value.tasks.input_required == 1
    assert answer.text.splitlines() == [
        "agent 1.2 for agent.example",
        "Up for 1 d 2 h, since yesterday at 9:57 UTC.",
        "Connected since today at 11:59 UTC.",
        "Tasks: 2 running, 1 input-required, 7 completed.",
        "2 running, 3 waiting.",
        "Models: vllm one, openai two.",
        "4 skills. Storage: SQLite.",
        "Python 3.11, trio.",
    ]


async def test_the_status_has_the_times_of_the_admin() -> None:
    table = commands(PauseGate(), Outage(NOW, "The disk is full."), started=NOW)
    asking = table.asking(BOSS)
    command = table.get("status", asking)
    assert command is not None
    text = (await command.run(asking, command.read())).text
    assert "since today at 13:00." in text
    assert "cannot be used since today at 13:00. The disk" in text
    assert "UTC" not in text


async def test_the_status_without_a_service_or_a_connection() -> None:
    assert "not running here" in (await run(commands(None), "status")).text
    text = (await run(commands(PauseGate(), started=NOW), "status")).text
    assert "Not connected to the XMPP server." in text
    assert "Up for 0 s" in text


async def test_a_pause_refuses_new_work_of_all_but_admins() -> None:
    intake = PauseGate([BOSS], retry_after_s=30)
    table = commands(intake, started=NOW)
    intake.check(ALICE)
    assert "Paused" in (await run(table, "pause")).text
    assert "already" in (await run(table, "pause")).text
    intake.check(BOSS)
    with pytest.raises(StanzaError) as caught:
        intake.check(ALICE)
    assert (caught.value.condition, caught.value.type) == ("resource-constraint", "wait")
    assert Retry(after=30) in caught.value.application
    assert "Paused" in (await run(table, "status")).text
    assert "accepted again" in (await run(table, "resume")).text
    assert "not paused" in (await run(table, "resume")).text
    intake.check(ALICE)


async def test_a_pause_lasts_although_an_older_reading_arrives_later(storage: Storage) -> None:
    gate, switches = PauseGate(), Switches(storage)
    unused: Any = None
    table = Commands(AdminCommands(unused, unused, switches, gate).commands(), [BOSS])
    tasks: Any = SimpleNamespace(pause_gate=gate, switches=switches)
    reload = functools.partial(TaskSubsystem.reload_switches, tasks, None)
    pause = functools.partial(run, table, "pause")
    await overtake(storage, reload, pause, switches.one_at_a_time)
    assert gate.paused


async def test_a_service_that_does_not_run_begins_paused() -> None:
    table = commands(None)
    assert "Paused" in (await run(table, "pause")).text
    assert "Paused" in (await run(table, "status")).text
    assert "accepted again" in (await run(table, "resume")).text


async def test_only_admins_pause() -> None:
    everybody = commands(PauseGate()).asking(ALICE)
    assert commands(PauseGate()).of(everybody) == ()


async def test_the_status_names_an_outage_of_the_database() -> None:
    table = commands(PauseGate(), Outage(NOW, "The disk is full."), started=NOW)
    answer = await run(table, "status")
    assert isinstance(answer.value, ServiceStatus)
    assert answer.value.tasks is None
    (warning,) = answer.value.warnings
    assert warning == ("The database cannot be used since today at 12:00 UTC. The disk is full.")
    assert f"Warning: {warning}" in answer.text.splitlines()


async def test_pause_and_resume_say_in_the_log_who_and_why() -> None:
    table = commands(PauseGate(), started=NOW)
    with capture_logs() as logs:
        await run(table, "pause", reason="an upgrade")
        await run(table, "pause")
        await run(table, "resume")
    assert [(line["event"], line["by"], line.get("reason")) for line in logs] == [
        ("paused: new requests are rejected", "operator", "an upgrade"),
        ("resumed: requests are accepted", "operator", None),
    ]


def test_the_reason_of_a_pause_takes_all_words() -> None:
    assert read_words(PAUSE, "an upgrade").reason == ("an", "upgrade")
