"""Commands about a conversation: each applies only to the requester."""

from pathlib import Path
from typing import Any

import pytest

from component.agent.conversations import Activity
from component.commands import OPERATOR, Asking, CommandError, CommandResult, Commands, read_words
from component.conversations.directories import ConversationCounts, Forgotten
from component.features.conversation_commands.commands import (
    ConversationCommands,
    ConversationStatus,
)
from component.features.memory_commands.commands import MemoryCommands
from component.memory.index_search import Search
from component.memory.knowledge import KnowledgeError
from component.memory_directory.layout import SessionKey
from component.personas.packages import Persona
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE = JID.parse("alice@a.example")
ADMIN = JID.parse("admin@a.example")
AT, DOMAIN = JID.parse("researcher@agent.example"), JID.parse("agent.example")


class Item:
    def __init__(self, key: str, body: str, title: str = "") -> None:
        self.key, self.body, self.title, self.version = key, body, title, 2


class Remembered:
    def __init__(self, item: Item, scope: str = "private") -> None:
        self.item, self.scope = item, scope


class Rooms:
    """The objects behind the commands, which record the requests."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.sessions = self.personas = self
        self.there = True
        self.gone = Forgotten(messages=1, memories=2, names=("history.jsonl",))
        self.activity_now = Activity(running=False, waiting=0, parked=0)
        self.persona: Persona | None = None
        self.found: list[Any] = [
            Remembered(Item("tea", "green\nalways", "Tea")),
            Remembered(Item("wifi", "x" * 400), "kitchen"),
        ]

    @property
    def knowledge(self) -> Any:
        return self

    async def new(self, whose: SessionKey) -> bool:
        self.asked.append(("new", whose.agent, whose.who))
        return self.there

    async def stop(self, whose: SessionKey) -> str:
        self.asked.append(("stop", whose.agent, whose.who))
        return "I have stopped."

    async def forget(self, whose: SessionKey, key: str | None = None, scope: str = "") -> Any:
        self.asked.append(("forget", whose.agent, whose.who, key, scope))
        if key == "refused" or scope == "nowhere":
            raise KnowledgeError("You may not.")
        there = {("tea", "private"), ("plan b", "private"), ("wifi", "kitchen")}
        return self.gone if key is None else (key, scope) in there

    async def get(self, whose: SessionKey, key: str) -> Any:
        return [one for one in self.found if one.item.key == key]

    def activity(self, whose: SessionKey) -> Activity:
        return self.activity_now

    async def status(self, key: SessionKey) -> ConversationCounts:
        self.asked.append(("status", key.agent, key.who))
        return ConversationCounts(messages=3, archived=1)

    async def active(self, whose: SessionKey) -> Persona | None:
        return self.persona

    async def search(self, whose: SessionKey, search: Search) -> Any:
        self.asked.append(("search", whose.agent, whose.who, search.text))
        return self.found

    async def describe(self, whose: SessionKey) -> ConversationStatus:
        return ConversationStatus(
            agent=whose.agent,
            title="Researcher",
            state="active",
            model="small",
            uptime_s=7300,
            connection="connected as agent.localhost",
            sources=("identity.md",),
            idle_timeout_mins=240,
        )


def table(rooms: Rooms) -> Commands:
    anything: Any = rooms

    async def forget_nothing_more(_agent: str, _who: JID) -> None:
        pass

    commands = ConversationCommands(
        anything, anything, rooms.describe, ["assistant", "researcher"], forget_nothing_more
    )
    memories = MemoryCommands(anything, ["assistant"])
    return Commands((*commands.commands(), *memories.commands()), admins=[ADMIN])


async def says(
    rooms: Rooms, line: str, at: JID = AT, asking: Asking | None = None
) -> CommandResult:
    commands = table(rooms)
    name, _, words = line.partition(" ")
    asking = asking or commands.asking(ALICE, at)
    command = commands.get(name, asking)
    assert command is not None
    return await command.run(asking, read_words(command, words))


@pytest.mark.parametrize("name", ["new", "reset"])
async def test_new_starts_a_conversation(name: str) -> None:
    rooms = Rooms()
    assert "old one is archived" in (await says(rooms, name)).text
    rooms.there = False
    assert "already" in (await says(rooms, name, DOMAIN)).text
    assert rooms.asked == [("new", "researcher", ALICE), ("new", "assistant", ALICE)]


async def test_stop_ends_the_work_of_the_agent_for_its_person() -> None:
    rooms = Rooms()
    assert (await says(rooms, "stop")).text == "I have stopped."
    assert rooms.asked == [("stop", "researcher", ALICE)]


async def test_forget_says_what_was_deleted() -> None:
    rooms = Rooms()
    answer = await says(rooms, "forget")
    assert answer.text == "Deleted what I knew about you: 1 message, 2 memories."
    rooms.gone = Forgotten(names=("user.md",))
    assert (await says(rooms, "forget")).text.endswith("some notes.")
    rooms.gone = Forgotten()
    assert (await says(rooms, "forget")).text == "There was nothing to delete."


async def test_one_memory_is_forgotten_by_its_key_and_can_be_written_again() -> None:
    rooms = Rooms()
    answer = await says(rooms, "forget tea")
    assert answer.text == "Forgot tea. To undo it, send /memory set tea green always"
    assert rooms.asked == [("forget", "researcher", ALICE, "tea", "private")]
    for key in ("coffee", "wifi"):  # there is none, or it is shared
        assert (await says(rooms, f"forget {key}")).text == (
            f"I remember nothing of yours called {key}."
        )
    assert len(rooms.asked) == 1


async def test_operators_forget_a_person() -> None:
    rooms = Rooms()
    answer = await says(rooms, f"forget-person {ALICE} agent=researcher", asking=OPERATOR)
    assert answer.text == f"Deleted what I knew about {ALICE}: 1 message, 2 memories."
    assert rooms.asked[0][:3] == ("forget", "researcher", ALICE)
    for wrong in (f"{ALICE} agent=nobody", "a@b@c"):
        with pytest.raises(CommandError, match=r"no agent called|not an address"):
            await says(rooms, f"forget-person {wrong}", asking=OPERATOR)


async def test_status_describes_the_agent_and_the_conversation() -> None:
    rooms = Rooms()
    answer = await says(rooms, "status")
    assert isinstance(answer.value, ConversationStatus)
    assert (answer.value.messages, answer.value.persona) == (3, None)
    assert answer.text.splitlines() == [
        "I am Researcher, and active.",
        "Up for 2 hours, connected as agent.localhost. Model: small.",
        "3 messages in this conversation, 1 earlier one, no memories.",
        "After 240 minutes without a message, a new conversation starts.",
        "My instructions come from: identity.md.",
    ]
    rooms.persona = Persona(id="mentor", name="Mentor", folder=Path())
    rooms.activity_now = Activity(running=True, waiting=2, parked=1)
    lines = (await says(rooms, "status")).text.splitlines()
    assert lines[0] == "I am Researcher, as Mentor, and active."
    assert lines[3] == (
        "Now: I am writing an answer, 2 messages waiting, 1 request waiting for an answer or a"
        " task."
    )


async def test_memories_are_listed() -> None:
    rooms = Rooms()
    lines = (await says(rooms, "memory green tea")).text.splitlines()
    assert lines[0] == "- tea: Tea: green always"
    assert lines[1].startswith("- wifi [kitchen]: xxx")
    assert lines[1].endswith("…")
    assert rooms.asked == [("search", "researcher", ALICE, "green tea")]
    rooms.found = []
    assert (await says(rooms, "memory")).text == "I remember nothing about you."
    assert (await says(rooms, "memory green")).text == "I remember nothing like that."


async def test_a_memory_is_forgotten() -> None:
    rooms = Rooms()
    assert (await says(rooms, "memory forget tea")).text == "Deleted tea."
    assert "nothing called coffee" in (await says(rooms, "memory forget coffee")).text
    assert (await says(rooms, "memory forget plan b")).text == "Deleted plan b."
    with pytest.raises(CommandError, match="You may not") as caught:
        await says(rooms, "memory forget refused")
    assert caught.value.param == "words"


async def test_a_shared_memory_is_forgotten() -> None:
    rooms = Rooms()
    text = (await says(rooms, "memory forget wifi")).text
    assert text == (
        "I remember nothing called wifi in private, but there is one in kitchen. To delete it,"
        " send /memory forget wifi scope=kitchen"
    )
    said = text.rpartition("/")[2]
    assert (await says(rooms, said)).text == "Deleted wifi in kitchen."
    assert rooms.asked[-1] == ("forget", "researcher", ALICE, "wifi", "kitchen")
    rooms.found = []
    text = (await says(rooms, "memory forget tea scope=kitchen")).text
    assert text == "I remember nothing called tea in kitchen."
    for wrong in ("memory forget tea scope=nowhere", "memory tea scope=kitchen"):
        with pytest.raises(CommandError) as caught:
            await says(rooms, wrong)
        assert caught.value.param == "scope"


@pytest.mark.parametrize("name", ["new", "stop", "status", "forget", "memory"])
async def test_the_operator_has_no_conversation(name: str) -> None:
    with pytest.raises(CommandError, match="over XMPP"):
        await says(Rooms(), name, asking=OPERATOR)
