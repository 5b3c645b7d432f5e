"""The documents of an agent are found with their source, in their current state."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from benchmarks import pdfs
from component.memory.documents import Documents
from component.memory_directory.layout import SessionKey
from tests.component.memory.remembering import AGENT, ANN, Room, remembering
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def documents(path: Path) -> AsyncIterator[tuple[Room, Path]]:
    async with remembering(path) as room:
        folder = room.root / "knowledge"
        folder.mkdir()
        yield room, folder


async def titles(room: Room, words: str, agent: str = AGENT) -> list[str]:
    return [one.item.title for one in await room.knowledge.recall(SessionKey(agent, ANN), words, 5)]


async def test_a_document_is_recalled_with_its_source(tmp_path: Path) -> None:
    async with documents(tmp_path / "m") as (room, folder):
        (folder / "handbook.pdf").write_bytes(
            pdfs.with_pages(["Welcome to the company.", "Holidays: everybody has thirty days."])
        )
        (folder / "rules").mkdir()
        (folder / "rules" / "travel.md").write_text("# Trains\nFirst class above four hours.\n")
        await room.store("dog", "Her dog is called Bello")
        await room.knowledge.documents.refresh()
        assert (await titles(room, "how many holidays do I have?"))[0] == "handbook.pdf, page 2"
        assert (await titles(room, "first class on trains?"))[0] == "rules/travel.md, Trains"
        assert await room.recall("what is the dog called?") == ["dog"]
        assert await room.get("handbook.pdf#2") == "Holidays: everybody has thirty days."
        assert await titles(room, "holidays", "researcher") == []
        assert await titles(room, "holidays", "assistant/1") == []


async def test_documents_of_each_agent_are_its_own(tmp_path: Path) -> None:
    async with remembering(tmp_path / "m") as room:
        folder = room.root / "_agents" / "researcher" / "knowledge"
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("The vault is blue")
        await room.knowledge.documents.refresh()
        assert await titles(room, "vault", "researcher") == ["a.txt"]
        assert await titles(room, "vault") == []


async def test_documents_are_untrusted_unless_they_are_in_the_trusted_folder(
    tmp_path: Path,
) -> None:
    async with documents(tmp_path / "m") as (room, folder):
        (folder / "trusted").mkdir()
        (folder / "trusted" / "own.txt").write_text("The vault is green")
        (folder / "found.txt").write_text("The vault is blue")
        await room.knowledge.documents.refresh()
        found = await room.knowledge.recall(SessionKey(AGENT, ANN), "vault", 5)
        assert {one.item.title: one.taint for one in found} == {
            "trusted/own.txt": None,
            "found.txt": "file",
        }


async def test_changed_added_and_deleted_documents_update_the_index(tmp_path: Path) -> None:
    async with documents(tmp_path / "m") as (room, folder):
        (folder / "a.txt").write_text("The vault is blue")
        (folder / "a.txt#1.txt").write_text("The attic is red")
        know = room.knowledge.documents
        await know.refresh()
        assert await titles(room, "vault") == ["a.txt"]
        (folder / "a.txt").write_text("The garden is in bloom")
        assert await titles(room, "vault") == [], "what it was counts no more at once"
        await know.refresh()
        assert await titles(room, "garden") == ["a.txt"]
        assert await titles(room, "attic") == ["a.txt#1.txt"]
        (folder / "a.txt").unlink()
        assert await titles(room, "garden") == []
        (folder / "b.txt").write_text("The garden has a pond")
        await know.refresh()
        assert await titles(room, "garden") == ["b.txt"]
        (folder / "b.txt").unlink()
        (folder / "a.txt#1.txt").unlink()
        folder.rmdir()
        await know.refresh()
        with room.index.database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM items").fetchone() == (0,)
            assert connection.execute("SELECT count(*) FROM vocabulary").fetchone() == (0,)


async def test_an_unreadable_document_is_warned_about_once(tmp_path: Path) -> None:
    async with documents(tmp_path / "m") as (room, folder):
        (folder / "bad.pdf").write_bytes(b"nonsense")
        (folder / "good.txt").write_text("The vault is blue")
        (folder / "image.png").write_bytes(b"not looked at")
        (folder / "link.txt").symlink_to(tmp_path / "elsewhere.txt")
        with capture_logs() as logs:
            await room.knowledge.documents.refresh()
            await room.knowledge.documents.refresh()
        assert [(log["log_level"], Path(log["file"]).name) for log in logs] == [
            ("warning", "bad.pdf")
        ]
        assert await titles(room, "vault") == ["good.txt"]


async def test_a_linked_folder_is_warned_about_once_and_others_are_read(tmp_path: Path) -> None:
    async with documents(tmp_path / "m") as (room, folder):
        (folder / "good.txt").write_text("The vault is blue")
        agent = room.root / "_agents" / "researcher"
        agent.mkdir(parents=True)
        (tmp_path / "elsewhere").mkdir()
        (agent / "knowledge").symlink_to(tmp_path / "elsewhere")
        with capture_logs() as logs:
            await room.knowledge.documents.refresh()
            await room.knowledge.documents.refresh()
        assert [log["event"] for log in logs] == ["documents cannot be read"]
        assert await titles(room, "vault") == ["good.txt"]


async def test_documents_are_found_after_a_restart_and_without_an_index(tmp_path: Path) -> None:
    async with documents(tmp_path / "m") as (room, folder):
        (folder / "a.txt").write_text("The vault is blue")
        await room.knowledge.documents.refresh()
    async with remembering(tmp_path / "m") as room:
        await room.knowledge.tidy()
        with capture_logs():
            await room.knowledge.documents.refresh()
        assert await titles(room, "vault") == ["a.txt"]
        room.index.database.opened.damaged = True
        room.index.database.renew()
        await room.knowledge.documents.refresh()
        assert await titles(room, "vault") == ["a.txt"]


async def test_the_service_notices_changes_by_itself(tmp_path: Path) -> None:
    async with documents(tmp_path / "m") as (room, folder):
        know: Documents = room.knowledge.documents
        (folder / "a.txt").write_text("The vault is blue")
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(know.run)
                await eventually(partial(titles, room, "vault"))
                (folder / "a.txt").write_text("The vault is green now")
                while await titles(room, "green") != ["a.txt"]:
                    await titles(room, "vault")  # looks, which wakes it
                tasks.cancel_scope.cancel()
