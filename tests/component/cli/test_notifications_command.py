"""`xmpp-agent notifications`: without a service on real rows, with one through its socket."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import Result

from component.app.schema import SCHEMA
from component.cli.frame import ExitCode
from component.config.work import Notifications
from component.features.notifications.commands import NotificationCommands
from component.kernel.contacts import PersonZones
from component.store import Storage
from component.store.notifications import Notification, NotificationStore, Preferences
from tests.component.cli.conftest import RunCommand
from tests.component.cli.test_tasks_command import DATA, service
from xep.jid import JID

AGENT = JID.parse("assistant@agent.localhost")
JULIET = JID.parse("juliet@localhost")
ROMEO = JID.parse("romeo@localhost")


def _commands(storage: Storage) -> NotificationCommands:
    store = NotificationStore(storage)
    return NotificationCommands(store, Notifications(), PersonZones(store, "UTC"))


async def hold(data: Path) -> None:
    async with Storage.open(SCHEMA, data) as storage:
        store = NotificationStore(storage)
        for number, person in enumerate((JULIET, JULIET, ROMEO)):
            # They wait until their people are online, so no service sends them meanwhile.
            await store.add(
                [
                    Notification(
                        id=f"n{number}",
                        agent=AGENT,
                        person=person,
                        title="Build",
                        text=f"Build {number} has failed.",
                        waits_online=True,
                    )
                ],
                10,
            )


@pytest.mark.parametrize("is_running", [False, True])
def test_held_notifications_are_listed_and_dropped_and_quiet_hours_set(
    command: RunCommand, is_running: bool
) -> None:
    anyio.run(hold, DATA)
    if is_running:
        with service(_commands):
            _list_drop_and_quiet(command)
    else:
        _list_drop_and_quiet(command)

    async def preferences() -> Preferences:
        async with Storage.open(SCHEMA, DATA) as storage:
            return await NotificationStore(storage).preferences(JULIET)

    stored = anyio.run(preferences)
    assert (stored.quiet, stored.zone) == ("21:00-06:30", "Europe/Paris")


def _list_drop_and_quiet(command: RunCommand) -> None:
    def run(*words: str) -> Result:
        return command("notifications", *words)

    def listed(*words: str) -> list[Any]:
        done = run("list", "--json", *words)
        assert done.exit_code == ExitCode.OK, done.output
        found: list[Any] = json.loads(done.stdout)
        return found

    # Those of different people are in the order of the machine's clock, which may step back.
    assert sorted(one["id"] for one in listed()) == ["n0", "n1", "n2"]
    assert [one["id"] for one in listed("--person", str(JULIET))] == ["n0", "n1"]
    (one,) = listed("--person", str(ROMEO))
    assert (one["title"], one["text"], one["person"]) == (
        "Build",
        "Build 2 has failed.",
        str(ROMEO),
    )
    assert "Build 2 has failed." in run("list").stdout

    assert run("drop", "n0").exit_code == ExitCode.OK
    assert sorted(one["id"] for one in listed()) == ["n1", "n2"]
    gone = run("drop", "n0")
    assert gone.exit_code != ExitCode.OK
    assert "This notification does not exist" in gone.stderr
    everybody = run("drop", "all")
    assert "Say whose notifications" in everybody.stderr
    assert run("drop", "all", "--person", str(JULIET)).exit_code == ExitCode.OK
    assert [one["id"] for one in listed()] == ["n2"]

    words = ("quiet", "--person", str(JULIET), "--hours", "21:00-06:30", "--zone", "Europe/Paris")
    assert run(*words).exit_code == ExitCode.OK
    told = json.loads(run("quiet", "--person", str(JULIET), "--json").stdout)
    assert told == {"hours": "21:00-06:30", "zone": "Europe/Paris", "urgent": False}
    wrong = run("quiet", "--person", str(JULIET), "--hours", "late")
    assert wrong.exit_code != ExitCode.OK
