"""The command about rooms in a direct chat and on the command line, and commands in rooms."""

from pathlib import Path

import pytest

from tests.component.features.rooms.lobby import NICK, ROOM, Lobby, lobby, spoken
from tests.kit import Script, anyio_backend, service

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

ADMINS = '[agent]\nadmins = ["juliet@capulet.example"]\n'
GARDEN = "garden@rooms.capulet.example"


async def test_an_admin_lists_joins_changes_and_leaves_rooms(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script(otherwise="Well."), ADMINS) as it:
        juliet, garden = it.juliet, it.rooms.create("garden")
        await garden.enter(juliet, "Juliet")
        said = await juliet.ask("/room", "lobby@")
        assert f"- {ROOM} as {NICK}, with 2 others." in said
        assert "messages that mention me" in said
        await juliet.ask(f"/room join {GARDEN} Bot", f"I enter {GARDEN}")
        await it.kit.advance(5)
        assert "Bot" in garden.occupants
        assert f"{GARDEN} as Bot" in await juliet.ask("/room list", "garden@")
        await juliet.ask(f"/room mode {GARDEN} always", "I answer all messages of people")
        await garden.say(juliet, "hello")
        await juliet.hear("Well.")
        await it.kit.restart()
        await it.again()
        assert "I answer all messages" in await juliet.ask("/room", "garden@")
        await juliet.ask(f"/room leave {GARDEN}", f"I have left {GARDEN}.")
        assert "Bot" not in garden.occupants
        await juliet.ask(f"/room leave {ROOM}", "I have left")
        assert NICK not in it.room.occupants
        await it.kit.restart()
        await it.kit.advance(400)
        assert "Bot" not in garden.occupants
        assert NICK not in it.room.occupants, "also one of the settings stays left"
        await juliet.ask(f"/room join {ROOM}", "I enter")
        await it.kit.advance(5)
        assert NICK in it.room.occupants


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("/room join", "Give the address of the room"),
        ("/room join rooms.capulet.example", "Give the address of the room"),
        ("/room join @@", "is not an address"),
        ("/room mode", "Give the address of the room"),
        (f"/room mode {ROOM} loud", "The mode is one of mention, reply, always, never."),
        (f"/room leave {GARDEN}", "is not in the room"),
        (f"/room persona {ROOM} nobody", "I can't be 'nobody'"),
        (f"/room persona {ROOM}", "is my own"),
        (f"/room persona {ROOM} reset", "I am myself"),
        ("/room join a@agent.capulet.example", "an address of this service"),
        ("/room dance", "action"),
    ],
)
async def test_a_mistake_gets_a_sentence(tmp_path: Path, said: str, answer: str) -> None:
    async with lobby(tmp_path, None, ADMINS) as it:
        await it.juliet.ask(said, answer)


async def test_who_may_not_changes_nothing_and_sees_nothing(tmp_path: Path) -> None:
    async with lobby(tmp_path, None, ADMINS) as it:
        nurse = it.kit.peer("nurse@capulet.example/x")
        await nurse.ask("/room", "in no room that you may see")
        await nurse.ask(f"/room mode {ROOM} never", "Only admins of this service")
        await nurse.ask(f"/room leave {ROOM}", "Only admins of this service")
        await nurse.ask(f"/room join {GARDEN}", "only if an admin of this service invites me")
        assert NICK in it.room.occupants


async def test_people_of_the_settings_and_owners_of_the_room_may(tmp_path: Path) -> None:
    async with lobby(tmp_path, None, room='people = ["nurse@*"]') as it:
        nurse = it.kit.peer("nurse@capulet.example/x")
        await nurse.ask(f"/room mode {ROOM} never", "I answer nothing")
        it.room.shows_accounts = True
        await it.room.enter(nurse, "Nurse")
        await it.room.say(nurse, f"{NICK} /room mode mention")
        await nurse.hear("I answer messages that mention me")
    async with lobby(tmp_path / "owner", None) as it:
        it.room.shows_accounts = True
        owner = it.kit.peer("nurse@capulet.example/x")
        await it.room.enter(owner, "Nurse", affiliation="owner")
        await it.kit.settled()
        await owner.ask(f"/room mode {ROOM} never", "I answer nothing")


async def in_room(it: Lobby, text: str) -> list[str]:
    before = len(it.said())
    await it.room.say(it.romeo, text)
    await it.kit.advance(2)
    return it.said()[before:]


async def test_an_occupant_without_rights_gets_help_and_no_more(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("Well."), ADMINS) as it:
        it.room.shows_accounts = True
        for said, answer in (
            ("/help", "I answer messages that mention me"),
            ("/room", f"{ROOM} as {NICK}"),
            ("/memory", "I remember nothing"),
            ("/memory set a b", "Only admins"),
            ("/files", "no files"),
            ("/files delete all", "Only admins"),
            ("/room mode always", "Only admins"),
            ("/room leave", "Only admins"),
            ("/room join garden@rooms.capulet.example", "Write to me directly"),
            ("/new", "Only admins"),
            ("/tasks", "I can't do that in a room. Write to me directly: assistant@"),
            ("/room dance", "action"),
        ):
            await it.kit.advance(61)
            (found,) = await in_room(it, f"{NICK} {said}")
            assert answer in found, said
        assert await in_room(it, "/help") == [], "it may be for another program"
        assert it.model.requests == []


async def test_an_owner_gives_commands_in_the_room(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("Hello.", "Hello again.")) as it:
        it.room.shows_accounts = True
        await it.room.leave(it.romeo)
        await it.room.enter(it.romeo, "Romeo", affiliation="owner")
        await in_room(it, f"{NICK}: my name is Romeo")
        assert await in_room(it, f"{NICK}: /new") == ["Started a new conversation."]
        await in_room(it, f"{NICK}: hello")
        assert "my name is" not in it.model.asked
        await in_room(it, f"@{NICK} /memory set wifi It is in the hall.")
        assert "It is in the hall" in (await in_room(it, f"@{NICK} /memory wifi"))[0]
        assert "remember nothing" in await it.juliet.ask("/memory", "remember")
        await it.kit.advance(61)
        assert "I answer nothing" in (await in_room(it, f"{NICK} /room mode never"))[0]
        assert await in_room(it, f"{NICK}: hello") == []
        await it.kit.restart()
        await it.again()
        assert await in_room(it, f"{NICK}: hello") == []
        assert "I have left" in (await in_room(it, f"{NICK} /room leave") or ["I have left"])[0]
        assert NICK not in it.room.occupants


async def test_commands_are_limited_like_answers(tmp_path: Path) -> None:
    async with lobby(tmp_path, None) as it:
        for _ in range(20):
            await it.room.say(it.romeo, f"{NICK} /help")
        await it.kit.advance(2)
        assert len(it.said()) == 10


async def test_settings_are_reloaded_and_what_was_heard_is_kept(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("Well.")) as it:
        await it.room.say(it.juliet, "What a night.")
        changed = f'[[rooms]]\njid = "{ROOM}"\nnick = "Fluux"\nanswer = "always"\n'
        garden = it.rooms.create("garden")
        done = await it.kit.reload(changed + f'[[rooms]]\njid = "{GARDEN}"\n')
        assert done.changed == ("[rooms]",)
        await it.kit.advance(5)
        assert "Fluux" in it.room.occupants
        assert NICK not in it.room.occupants
        assert garden.occupants
        await it.room.say(it.romeo, "hello")
        await it.juliet.hear("Well.")
        assert "What a night." in it.model.asked
        await it.kit.reload("")
        await it.kit.advance(5)
        assert "Fluux" not in it.room.occupants
        assert not garden.occupants


async def test_two_services_do_not_answer_each_other(tmp_path: Path) -> None:
    """The other one is another service: its presence says that it is a program."""
    script = Script(otherwise=f"{NICK} and Fluux, what do you think?")
    room = 'answer = "always"\nanswers_per_occupant = 100\nanswers_per_minute = 100'
    async with lobby(tmp_path / "one", script, room=room) as it:
        other = {
            "server": {"component_domain": "other.montague.example"},
            "rooms": [{"jid": ROOM, "nick": "Fluux", "answer": "always"}],
        }
        model = Script(otherwise=f"{NICK} and Fluux, what do you think?")
        async with service(tmp_path / "two", other, model=model, beside=it.kit) as second:
            await second.advance(20)
            assert {"Fluux", NICK} < it.room.occupants.keys()
            await it.room.say(it.juliet, "hello all")
            await it.kit.advance(300)
            said = [nick for nick, _ in spoken(it.juliet) if nick != "Juliet"]
            assert sorted(said) == ["Fluux", NICK]


async def test_rooms_are_listed_while_no_service_runs(tmp_path: Path) -> None:
    async with lobby(tmp_path, None, ADMINS) as it:
        await it.juliet.ask(f"/room join {GARDEN}", "I enter")
        feature = (
            it.kit.service._subsystems and it.kit.service._subsystems.features["rooms"].feature
        )
        assert feature is not None
        from component.commands import OPERATOR, read_words

        (command,) = feature.offline_commands(it.kit.kernel.storage)
        listed = await command.run(OPERATOR, read_words(command, ""))
        assert ROOM in listed.text
        assert "juliet@capulet.example has invited me" in listed.text
