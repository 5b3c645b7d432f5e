"""The command about the record, and the record of commands."""

from pathlib import Path

import pytest

from component.app.schema import SCHEMA
from component.audit.lines import Line
from component.audit.protocol import AuditEvent
from component.audit.record import Audit
from component.audit.verify import Verification
from component.commands import (
    OPERATOR,
    Asking,
    CommandError,
    CommandResult,
    Commands,
    NoParams,
    Outline,
    read_words,
    recorded,
)
from component.config.service import Audit as AuditSettings
from component.features.audit_log.commands import AUDIT, AuditCommands, AuditParams
from component.features.task_commands.commands import CANCEL, OneTask
from component.kernel.pause_gate import PauseGate
from component.store import Storage
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

BOSS, ALICE = JID.parse("boss@a.example"), JID.parse("alice@a.example")


async def asked(path: Path, words: str) -> CommandResult:
    async with Storage.open(SCHEMA, path) as storage, Audit.open(storage, AuditSettings()) as audit:
        for number in range(30):
            who = "alice" if number % 2 else "bob"
            audit.record(
                AuditEvent(
                    kind="execute",
                    outcome="done",
                    principal=f"{who}@a.example",
                    subject=f"skill{number}",
                )
            )
        commands = AuditCommands(audit).commands()
        table = Commands(commands, [BOSS])
        assert table.get("audit", table.asking(ALICE)) is None
        asking = table.asking(BOSS)
        command = table.get("audit", asking)
        assert command is not None
        return await command.run(asking, read_words(command, words))


async def test_the_last_lines_the_latest_last(tmp_path: Path) -> None:
    answer = await asked(tmp_path, "")
    assert len(answer.text.splitlines()) == 20
    assert answer.text.endswith("execute done alice@a.example skill29")
    answer = await asked(tmp_path / "other", "principal=bob@a.example limit=2")
    assert isinstance(answer.value, list)
    assert [line.subject for line in answer.value if isinstance(line, Line)] == [
        "skill26",
        "skill28",
    ]


async def test_audit_verify_reports_a_log_that_is_complete_and_unchanged(tmp_path: Path) -> None:
    answer = await asked(tmp_path, "verify")
    assert isinstance(answer.value, Verification)
    assert answer.value.whole
    assert answer.text.startswith(
        "The audit log is complete and unchanged: 31 entries in 1 file, from "
    )


async def test_audit_verify_names_the_line_that_was_changed(tmp_path: Path) -> None:
    await asked(tmp_path, "")
    file = next((tmp_path / "audit").glob("*.jsonl"))
    file.write_bytes(file.read_bytes().replace(b"skill7", b"skillX"))
    answer = await asked(tmp_path, "verify")
    assert answer.text.startswith("The audit log is incomplete or was changed:\n")
    assert f"{file.name}:9 (line 9)" in answer.text


async def test_the_audit_command_refuses_an_invalid_time(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="'soon' is not a valid time"):
        await asked(tmp_path, "since=soon")


def test_the_audit_command_refuses_an_unknown_kind() -> None:
    with pytest.raises(CommandError, match="kind"):
        AUDIT.read([("kind", "gossip")])
    assert AUDIT.read([]) == AuditParams()


class Kept:
    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    async def settled(self) -> None: ...


HELLO = Outline(name="hello", title="Hello", about="say hello", params=NoParams)
STOP = Outline(name="stop", title="Stop", about="stop it", params=NoParams, who="admin")


async def _hello(_asking: Asking, _params: NoParams) -> CommandResult:
    return CommandResult("hello")


async def _broken(_asking: Asking, _params: object) -> CommandResult:
    raise CommandError("There is no such task here.")


async def test_what_admins_and_operators_do_is_recorded() -> None:
    kept = Kept()
    made = (HELLO.done_by(_hello), STOP.done_by(_hello), CANCEL.done_by(_broken))
    hello, stop, cancel = recorded(made, kept)
    admin, alice = Asking(principal=BOSS, admin=True), Asking(principal=ALICE)
    await hello.run(alice, NoParams())
    await hello.run(admin, NoParams())
    await stop.run(admin, NoParams())
    await stop.run(OPERATOR, NoParams())
    for asking in (admin, alice):
        with pytest.raises(CommandError):
            await cancel.run(asking, OneTask(task="t1"))
    assert [(each.outcome, each.principal, each.subject, each.task) for each in kept.events] == [
        ("done", str(BOSS), "stop", ""),
        ("done", "operator", "stop", ""),
        ("failed", str(BOSS), "cancel", "t1"),
    ]


def test_nobody_gets_new_work_in_while_it_cannot_be_recorded() -> None:
    refused: list[tuple[str, str]] = []
    full: list[str | None] = ["Requests cannot be recorded in the audit log at the moment."]
    intake = PauseGate([BOSS], 7, lambda: full[0], lambda who, why: refused.append((who, why)))
    for who in (BOSS, ALICE):
        with pytest.raises(StanzaError, match="cannot be recorded") as caught:
            intake.check(who)
        assert caught.value.condition == "resource-constraint"
    full[0] = None
    intake.check(ALICE)
    intake.paused = True
    intake.check(BOSS)
    with pytest.raises(StanzaError):
        intake.check(ALICE)
    assert refused == [
        (str(BOSS), "the audit log cannot be written"),
        (str(ALICE), "the audit log cannot be written"),
        (str(ALICE), "paused"),
    ]
