"""A busy room costs nothing but the time to read it: no model, no row, no thread, no task."""

from pathlib import Path
from typing import Any

import pytest
import trio

from component import system
from tests.component.features.rooms.lobby import NICK, ROOM, Lobby, lobby
from tests.kit import Script, anyio_backend
from tests.kit.system import SimulatedSystem

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

AGENT = "assistant@agent.capulet.example/rooms"
OCCUPANTS = 200
MESSAGES = 5
USER = "http://jabber.org/protocol/muc#user"


class Tasks(trio.abc.Instrument):
    """Counts the tasks that are started."""

    started = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.started += 1


class Counts:
    """Counts what the service does."""

    def __init__(self, it: Lobby, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operations: list[str] = []
        self.tasks = Tasks()
        storage, simulated = it.kit.kernel.storage, it.kit.system
        for owner, name in ((storage, "read"), (storage, "write"), (simulated, "in_thread")):
            monkeypatch.setattr(owner, name, self._counted(name, getattr(owner, name)))
        assert isinstance(system.current(), SimulatedSystem)

    def _counted(self, name: str, call: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.operations.append(name)
            return call(*arguments, **named)

        return counted


def speak(it: Lobby, occupant: int, number: int) -> None:
    it.rooms.say(
        f"<message from='{ROOM}/Occupant {occupant}' to='{AGENT}' type='groupchat'"
        f" id='m{occupant}-{number}'><body>What a night, Occupant {number}.</body>"
        "<active xmlns='http://jabber.org/protocol/chatstates'/>"
        f"<stanza-id xmlns='urn:xmpp:sid:0' id='s{occupant}-{number}' by='{ROOM}'/></message>"
    )


async def test_messages_for_others_cost_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lobby(tmp_path, Script("It is.")) as it:
        for number in range(OCCUPANTS):
            it.rooms.say(
                f"<presence from='{ROOM}/Occupant {number}' to='{AGENT}'><x xmlns='{USER}'>"
                "<item affiliation='none' role='participant'/></x></presence>"
            )
        await it.kit.settled()
        counts = Counts(it, monkeypatch)
        trio.lowlevel.add_instrument(counts.tasks)
        for number in range(MESSAGES):
            for occupant in range(OCCUPANTS):
                speak(it, occupant, number)
            await it.kit.settled()
        trio.lowlevel.remove_instrument(counts.tasks)
        assert counts.operations == []
        assert counts.tasks.started == 0
        assert it.model.requests == []
        assert it.said() == []
        await it.room.say(it.juliet, f"{NICK}: is it?")
        await it.juliet.hear("It is.")
        assert it.model.asked.count("What a night, Occupant") == 49
