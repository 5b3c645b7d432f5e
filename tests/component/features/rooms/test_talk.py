"""An agent talks in a room: whom it answers, and what it knows."""

from pathlib import Path

import pytest

from tests.kit import Script, anyio_backend, service
from tests.kit.rooms import Rooms

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

SETTINGS = """
[[rooms]]
jid = "lobby@rooms.capulet.example"
nick = "FluuxBot"
"""


async def test_it_answers_who_mentions_it_and_nobody_else(tmp_path: Path) -> None:
    model = Script("Hello, Juliet.")
    async with service(tmp_path, SETTINGS, model=model) as kit:
        rooms = Rooms(kit.xmpp)
        room = rooms.create("lobby")
        juliet = kit.peer("juliet@capulet.example/balcony")
        await room.enter(juliet, "Juliet")
        await kit.advance(400)
        assert "FluuxBot" in room.occupants
        await room.say(juliet, "What a night.")
        await room.say(juliet, "FluuxBot: hello")
        assert await juliet.hear("Hello, Juliet") == "Hello, Juliet."
        assert len(model.requests) == 1
        assert "What a night." in model.asked
