"""Corrections and retractions in the chat with a whole service (XEP-0308, XEP-0424)."""

from pathlib import Path

import anyio
import pytest

from component.models.protocol import ModelRequest
from tests.kit import Kit, Peer, Script, anyio_backend, call, service

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"


class Slow:
    """A step of a script that waits until a test lets it go on."""

    def __init__(self, text: str) -> None:
        self.begun = anyio.Event()
        self.go_on = anyio.Event()
        self._text = text

    async def __call__(self, _request: ModelRequest) -> str:
        self.begun.set()
        await self.go_on.wait()
        return self._text


async def write(juliet: Peer, id_: str, inside: str) -> None:
    await juliet.send(f"<message to='{juliet._agent}' type='chat' id='{id_}'>{inside}</message>")


async def correct(juliet: Peer, text: str) -> None:
    replace = "<replace xmlns='urn:xmpp:message-correct:0' id='w1'/>"
    await write(juliet, "w2", f"<body>{text}</body>{replace}")


async def said(kit: Kit, juliet: Peer) -> list[str]:
    await kit.settled()
    return [one.text_of("body") or "" for one in juliet.take() if one.text_of("body")]


async def test_a_correction_during_the_first_call_is_answered_instead(tmp_path: Path) -> None:
    slow = Slow("It rains in Verona.")
    model = Script(slow, "It rains in Venice.")
    async with service(tmp_path, "[agent]\nnotice = ''", model=model) as kit:
        juliet = kit.peer(JULIET)
        await write(juliet, "w1", "<body>The weather in Verona?</body>")
        await slow.begun.wait()
        await correct(juliet, "The weather in Venice?")
        assert await juliet.hear() == "It rains in Venice."
        assert await said(kit, juliet) == []
    first, second = (str(one.messages[-1]) for one in model.requests)
    assert "Verona" in first
    assert "Venice" in second
    assert "Verona" not in second


async def test_a_correction_survives_a_kill(tmp_path: Path) -> None:
    slow = Slow("")
    model = Script(slow, slow)
    async with service(tmp_path, "[agent]\nnotice = ''", model=model) as kit:
        juliet = kit.peer(JULIET)
        await write(juliet, "w1", "<body>The weather in Verona?</body>")
        await slow.begun.wait()
        await correct(juliet, "The weather in Venice?")
        await kit.settled()
        model.add("It rains in Venice.")
        await kit.restart(kill=True)
        assert await juliet.hear() == "It rains in Venice."
    assert "Venice" in str(model.requests[-1].messages[-1])


async def test_a_retraction_during_the_first_call_stops_it_silently(tmp_path: Path) -> None:
    slow = Slow("")
    async with service(tmp_path, "[agent]\nnotice = ''", model=Script(slow, "Good day.")) as kit:
        juliet = kit.peer(JULIET)
        await write(juliet, "w1", "<body>Secret</body>")
        await slow.begun.wait()
        await write(juliet, "w2", "<retract xmlns='urn:xmpp:message-retract:1' id='w1'/>")
        assert await said(kit, juliet) == []
        assert await juliet.ask("Hello") == "Good day."
        assert await said(kit, juliet) == []
        assert "Secret" not in kit.model.asked  # type: ignore[union-attr]


async def test_a_correction_after_something_was_done_is_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    slow = Slow("Done.")
    model = Script(call("echo", text="Verona"), slow)
    async with service(tmp_path, "[agent]\nnotice = ''", model=model) as kit:
        juliet = kit.peer(JULIET)
        await write(juliet, "w1", "<body>Say Verona</body>")
        await slow.begun.wait()
        slow.go_on.set()
        assert await juliet.hear() == "Done."
        await correct(juliet, "Say Venice")
        assert "came too late" in await juliet.hear()
