"""Private messages of occupants: a conversation of that occupant, and of nobody else."""

from pathlib import Path

import anyio
import pytest

from component.models.protocol import ModelRequest
from tests.component.features.rooms.lobby import NICK, ROOM, Lobby, from_room, lobby
from tests.kit import NoAnswer, Script, anyio_backend
from xep.muc import USER

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


def bodies(it: Lobby, who: str) -> list[str]:
    peer = {"juliet": it.juliet, "romeo": it.romeo}[who]
    return [each.text_of("body") or "" for each in from_room(peer) if each.text_of("body")]


async def test_an_occupant_has_a_conversation_that_no_other_one_sees(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("I keep it.", "I know of none.", "None.")) as it:
        await it.room.whisper(it.juliet, NICK, "My secret is a bottle.")
        answer = await it.juliet.receive(lambda each: "I keep it" in (each.text_of("body") or ""))
        assert answer.sender == f"{ROOM}/{NICK}"
        assert answer.type == "chat"
        assert f"{{{USER}}}x" in answer.child_names
        await it.room.whisper(it.romeo, NICK, "What is her secret?")
        await it.romeo.hear("I know of none.")
        assert "bottle" not in it.model.asked
        await it.room.say(it.romeo, f"{NICK}: what is her secret?")
        await it.romeo.hear("None.")
        assert "bottle" not in it.model.asked
        assert it.said() == ["None."]


async def test_the_next_one_with_the_nickname_gets_nothing_of_it(tmp_path: Path) -> None:
    reached, go_on = anyio.Event(), anyio.Event()

    async def slow(_request: ModelRequest) -> str:
        reached.set()
        await go_on.wait()
        return "It is a bottle."

    async with lobby(tmp_path, Script(slow, "I know nothing.")) as it:
        await it.room.whisper(it.juliet, NICK, "What was my secret?")
        await reached.wait()
        await it.room.leave(it.juliet)
        await it.room.leave(it.romeo)
        await it.room.enter(it.romeo, "Juliet")
        go_on.set()
        await it.kit.advance(10)
        assert bodies(it, "romeo") == []
        await it.room.whisper(it.romeo, NICK, "And what was my question?")
        await it.romeo.hear("I know nothing.")
        assert "secret" not in it.model.asked


@pytest.mark.parametrize("stays", [True, False])
async def test_after_a_restart_an_answer_reaches_only_the_one_who_asked(
    tmp_path: Path, stays: bool
) -> None:
    asked = NoAnswer()
    async with lobby(tmp_path, Script(asked, otherwise="It is a bottle.")) as it:
        await it.room.whisper(it.juliet, NICK, "What was my secret?")
        await asked.reached.wait()
        await it.kit.kill()
        if not stays:
            await it.room.leave(it.juliet)
            await it.room.leave(it.romeo)
            await it.room.enter(it.romeo, "Juliet")
        if NICK in it.room.occupants:
            it.room.remove(NICK, 333)
        await it.kit.start()
        await it.again()
        assert len(it.model.requests) == 2
        assert bodies(it, "romeo") == []
        assert bodies(it, "juliet") == (["It is a bottle."] if stays else [])


async def test_questions_are_not_answered_in_private_messages(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script()) as it:
        reaction = (
            "<reactions xmlns='urn:xmpp:reactions:0' id='q'><reaction>👍</reaction></reactions>"
        )
        mark = f"<x xmlns='{USER}'/>"
        await it.juliet.send(
            f"<message type='chat' to='{ROOM}/{NICK}' id='r1'>{reaction}{mark}</message>"
        )
        await it.juliet.hear("Write to me directly: assistant@agent.capulet.example")
        await it.room.whisper(it.juliet, NICK, "/tasks")
        await it.juliet.hear("Write to me directly")
        assert it.model.requests == []


async def test_stop_new_and_help_work_in_private(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("Hello.", "Who are you?")) as it:
        await it.room.whisper(it.juliet, NICK, "My name is Juliet.")
        await it.juliet.hear("Hello.")
        await it.room.whisper(it.juliet, NICK, "/new")
        await it.juliet.hear("Started a new conversation.")
        await it.room.whisper(it.juliet, NICK, "Who am I?")
        await it.juliet.hear("Who are you?")
        assert "My name is" not in it.model.asked
        await it.room.whisper(it.juliet, NICK, "/help")
        await it.juliet.hear("private conversation")
        await it.room.whisper(it.juliet, NICK, "stop")
        await it.juliet.hear("nothing to stop")


async def test_where_it_only_is_it_answers_one_sentence_an_hour(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script(), room='answer = "never"') as it:
        for _ in range(3):
            await it.room.whisper(it.juliet, NICK, "Hello")
            await it.kit.advance(5)
        (said,) = bodies(it, "juliet")
        assert "Please write to me directly: assistant@agent.capulet.example" in said
        await it.room.whisper(it.romeo, NICK, "Hello")
        await it.romeo.hear("Please write to me directly")


async def test_one_who_is_not_in_the_room_gets_no_answer(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script()) as it:
        it.rooms.say(
            f"<message type='chat' from='{ROOM}/Nobody' to='assistant@agent.capulet.example/rooms'"
            f" id='x'><body>Hello</body><x xmlns='{USER}'/></message>"
        )
        await it.kit.advance(5)
        assert it.model.requests == []


async def test_without_a_model_one_sentence_an_hour_says_where_to_write(tmp_path: Path) -> None:
    async with lobby(tmp_path, None) as it:
        for _ in range(2):
            await it.room.whisper(it.juliet, NICK, "Hello")
            await it.kit.advance(5)
        assert len(bodies(it, "juliet")) == 1
