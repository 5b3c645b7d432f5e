"""Files are stored whole, within their limits, and nothing of them stays when they are deleted."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.conversations import stored_files
from component.conversations.stored_files import (
    FileLimits,
    FileRefusedError,
    StoredFile,
    StoredFiles,
)
from component.memory.document_reader import DocumentError
from component.memory_directory.files import MemoryStoreError
from component.memory_directory.layout import Layout, SessionKey
from tests.component.memory import office
from xep.jid import JID

pytestmark = pytest.mark.anyio

LIMITS = FileLimits(1000, 4, 500)
ANN = SessionKey("assistant", JID.parse("ann@example.com"))
DAY_S = 86_400.0


class World:
    """Files of Ann, at a time that a test sets."""

    def __init__(self, root: Path) -> None:
        self.now = 1_800_000_000.0
        self.files = StoredFiles(Layout(root), clock=lambda: self.now)
        self.folder = Layout(root).folder(ANN)
        self.directory = self.folder / "files"

    async def send(self, name: str, data: bytes) -> StoredFile:
        self.now += 1
        draft = StoredFile(name=name, by="ann@example.com", url=f"https://u/{name}", taint="file")
        return await self.files.add(self.folder, draft, data, LIMITS)

    async def write(self, name: str, text: str, *, append: bool = False) -> StoredFile:
        self.now += 1
        file = StoredFile(name=name)
        return await self.files.write(self.folder, file, text, LIMITS, append=append)

    async def names(self) -> Sequence[str]:
        return [one.name for one in await self.files.list(self.folder)]

    def on_disk(self) -> set[str]:
        return {each.name for each in self.directory.iterdir()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_file_is_found_by_its_name_and_its_digest(world: World) -> None:
    stored = await world.send("Photo.png", b"\x89PNG\r\n\x1a\n")
    assert (stored.media_type, stored.size) == ("image/png", 8)
    assert await world.files.find(world.folder, "photo.PNG") == stored
    assert await world.files.read(world.folder, stored.sha256) == b"\x89PNG\r\n\x1a\n"
    assert await world.files.find(world.folder, "other.png") is None
    assert await world.files.read(world.folder, "0" * 64) is None
    assert await world.files.read(world.folder, "../../secret") is None


async def test_the_same_content_is_stored_once_and_another_gets_another_name(world: World) -> None:
    await world.send("a.txt", b"one")
    await world.send("a.txt", b"two")
    await world.send("again.txt", b"one")
    assert sorted(await world.names()) == ["a-2.txt", "a.txt"]
    assert len(world.on_disk()) == 3


async def test_the_oldest_that_were_sent_make_room_and_those_of_agents_stay(world: World) -> None:
    await world.write("notes.txt", "n" * 400)
    await world.send("first.txt", b"1" * 300)
    await world.send("second.txt", b"2" * 200)
    await world.send("third.txt", b"3" * 250)
    assert await world.names() == ["notes.txt", "second.txt", "third.txt"]
    await world.send("fourth.txt", b"4")
    await world.send("fifth.txt", b"5")
    assert await world.names() == ["notes.txt", "third.txt", "fourth.txt", "fifth.txt"]
    with pytest.raises(FileRefusedError, match="There is no room"):
        await world.write("more.txt", "m" * 400)
    with pytest.raises(FileRefusedError, match="501 bytes, and at most 500"):
        await world.send("large.txt", b"x" * 501)


async def test_a_file_of_an_agent_is_appended_to_and_not_replaced(world: World) -> None:
    await world.write("travel/paris.md", "Café")
    with pytest.raises(FileRefusedError, match=r"There is a file travel/paris.md already"):
        await world.write("travel/paris.md", "x")
    stored = await world.write("travel/paris.md", "!", append=True)
    assert await world.files.text(world.folder, stored) == "Café!"
    assert len(world.on_disk()) == 2
    empty = await world.write("empty", "")
    assert await world.files.text(world.folder, empty) == ""


WORDS = r"../x a/../../x /etc/passwd . .. a//b a/ .hidden a\b a/b/c/d/e/f/g C:x -/."


@pytest.mark.parametrize("name", [*WORDS.split(), "a\0b", "x" * 101, "a\nb", "a ", ""])
async def test_a_name_that_is_none_is_refused(world: World, name: str) -> None:
    with pytest.raises(FileRefusedError, match="Write the path like"):
        await world.write(name, "x")
    assert not world.directory.exists()


@given(st.lists(st.text(max_size=12) | st.sampled_from(["..", "a"]), max_size=4).map("/".join))
async def test_a_name_never_leads_out(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    world = World(tmp_path_factory.mktemp("root"))
    draft = StoredFile(name=name, url="https://u/x")
    await world.files.add(world.folder, draft, b"x", LIMITS)
    assert await world.names() == [name]
    assert {each.parent for each in world.files.layout.root.rglob("*") if each.is_file()} == {
        world.directory
    }


async def test_nothing_stays_of_a_deleted_file(world: World) -> None:
    stored = await world.send("a.docx", office.docx("Hello"))
    assert await world.files.text(world.folder, stored) == "Hello"
    assert f".{stored.sha256}.txt" in world.on_disk()
    assert await world.files.delete(world.folder, ("a.docx", "b")) == 1
    assert world.on_disk() == {".index.json"}
    assert await world.files.text(world.folder, stored) is None


async def test_what_a_crash_has_left_is_removed_by_the_next_change(world: World) -> None:
    await world.send("a.txt", b"one")
    (world.directory / ("0" * 64)).write_bytes(b"content without a name")
    (world.directory / f".{'1' * 64}.txt").write_text("text without a name")
    (world.directory / "of an admin").write_text("stays")
    await world.send("b.txt", b"two")
    assert len(world.on_disk()) == 4


async def test_the_content_is_on_the_disk_before_its_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    replaced: list[str] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    replace = Path.replace

    def record(path: Path, target: Path) -> Path:
        assert len(synced) > len(replaced)
        replaced.append(target.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", record)
    stored = await world.send("a.txt", b"one")
    assert replaced == [stored.sha256, ".index.json"]


async def test_old_files_that_were_sent_are_deleted(world: World) -> None:
    await world.write("notes.txt", "n")
    await world.send("old.txt", b"1")
    before = world.now + 0.5
    await world.send("new.txt", b"2")
    assert await world.files.expire(before) == 1
    assert await world.names() == ["notes.txt", "new.txt"]
    assert await world.files.expire(before) == 0


async def test_nobody_else_on_the_machine_reads_the_files(world: World) -> None:
    before = os.umask(0)
    try:
        await world.send("a.txt", b"one")
    finally:
        os.umask(before)
    assert stat.S_IMODE(world.directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in world.directory.iterdir()} == {0o600}


async def test_links_are_not_followed(world: World, tmp_path: Path) -> None:
    stored = await world.send("a.txt", b"one")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    content = world.directory / stored.sha256
    content.unlink()
    content.symlink_to(secret)
    with pytest.raises(MemoryStoreError, match="symbolic link"):
        await world.files.read(world.folder, stored.sha256)


async def test_a_damaged_index_is_an_error_and_deletes_nothing(world: World) -> None:
    await world.send("a.txt", b"one")
    (world.directory / stored_files._INDEX).write_text("[{")
    with pytest.raises(MemoryStoreError, match="is damaged"):
        await world.send("b.txt", b"two")
    assert len(world.on_disk()) == 2


async def test_a_file_that_is_no_document_has_no_text(world: World) -> None:
    stored = await world.send("a.zip", b"PK\x03\x04")
    with pytest.raises(DocumentError, match="application/zip"):
        await world.files.text(world.folder, stored)
