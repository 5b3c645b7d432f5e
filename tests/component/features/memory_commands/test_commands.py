"""People list, write, delete, export and import their memories."""

import json
from pathlib import Path

import pytest

from component.commands import OPERATOR, Asking, CommandError, CommandResult, Commands, read_words
from component.features.memory_commands.commands import MemoryCommands
from component.memory_directory.layout import SessionKey
from tests.component.features.memory_nodes.world import world
from tests.component.memory.remembering import AGENT, ANN, BOB, Room, remembering

pytestmark = pytest.mark.anyio


async def says(room: Room, line: str, asking: Asking | None = None) -> CommandResult:
    commands = Commands(MemoryCommands(room.knowledge, [AGENT, "helper"]).commands(), [BOB])
    name, _, words = line.partition(" ")
    asking = asking or commands.asking(ANN)
    command = commands.get(name, asking)
    assert command is not None
    return await command.run(asking, read_words(command, words))


async def test_a_person_writes_a_memory(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "green", title="Drinks", tags=("food",), taint="web")
        answer = await says(room, 'memory set tea I don\'t like "tea"\nany more')
        assert answer.text == "Remembered tea (version 2)."
        found = (await room.knowledge.get(SessionKey(AGENT, ANN), "tea"))[0]
        assert (found.item.body, found.item.title) == ('I don\'t like "tea"\nany more', "Drinks")
        assert found.taint is None, "the text is the person's own now"
        with pytest.raises(CommandError, match="What should I remember as hat"):
            await says(room, "memory set hat")


async def test_an_export_can_be_imported(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "green", title="Drinks", tags=("food",), taint="web")
        await room.store("hat", "blue", topic="clothes")
        await room.store("other", "of Bob", BOB)
        text = (await says(room, "memory export")).text
        told = json.loads(text)
        assert (told["format"], told["agent"], told["person"]) == (1, AGENT, str(ANN))
        assert [one["key"] for one in told["memories"]] == ["tea", "hat"]
        await room.knowledge.erase(SessionKey(AGENT, ANN))
        assert (await says(room, f"memory import {text}")).text == "Imported 2 of 2 memories."
        again = json.loads((await says(room, "memory export")).text)
        for one in (*told["memories"], *again["memories"]):
            one.pop("created"), one.pop("updated")
        assert again == told


async def test_an_import_reports_refused_memories(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory", item_bytes=10) as room:
        export = {
            "format": 1,
            "agent": AGENT,
            "person": str(ANN),
            "memories": [{"key": "a", "body": "x" * 11}, {"key": "b", "body": "y"}],
        }
        answer = await says(room, f"memory import {json.dumps(export)}")
        assert answer.text.startswith("Imported 1 of 2 memories.\na: This memory has 11 bytes")
        for wrong in ("no json", "{}", json.dumps({**export, "format": 2})):
            with pytest.raises(CommandError, match="export"):
                await says(room, f"memory import {wrong}")


async def test_operators_export_and_import_for_a_person(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "green")
        text = (await says(room, f"export-memory {ANN}", OPERATOR)).text
        quoted = text.replace("\n", " ").replace('"', '\\"')
        told = await says(room, f'import-memory {BOB} memories="{quoted}"', OPERATOR)
        assert told.text == "Imported 1 of 1 memories."
        assert await room.get("tea", BOB) == "green"
        with pytest.raises(CommandError, match="no agent called"):
            await says(room, f"export-memory {ANN} agent=nobody", OPERATOR)
        commands = Commands(MemoryCommands(room.knowledge, [AGENT]).commands(), [BOB])
        assert commands.get("export-memory", commands.asking(ANN)) is None


async def test_an_admin_decides_about_memories_that_an_account_lacks(tmp_path: Path) -> None:
    async with world(tmp_path / "memory") as here:
        here.nodes.tells = False
        await here.remember("tea", "green")
        here.nodes.nodes.clear()
        await here.reconcile()
        commands = Commands(MemoryCommands(here.knowledge, [AGENT]).commands(), [BOB])
        assert commands.get("missing-memories", commands.asking(ANN)) is None
        command = commands.get("missing-memories", OPERATOR)
        assert command is not None
        words = read_words(command, f"{ANN} decision=restore")
        assert (await command.run(OPERATOR, words)).text == "1 memory is restored there."
        assert here.nodes.texts() == {"tea": "green"}
        told = await command.run(OPERATOR, words)
        assert told.text == f"No memories are missing in the account of {ANN}."
