"""The skills for files use the files of their person, with limits and taints."""

from pathlib import Path
from typing import Any

import pytest

from component.config.memory import MemoryScope
from component.conversations.stored_files import FileLimits, StoredFile, StoredFiles
from component.features.files.places import PersonFiles
from component.features.files.skills import file_skills
from component.memory.sharing import Sharing
from component.memory_directory.layout import Layout, SessionKey
from component.skills import Skill
from component.skills.errors import InvalidParam
from component.skills.outputs import File
from tests.component.memory import office
from tests.component.skill_calls import called, data_of, text_of
from xep.jid import JID

pytestmark = pytest.mark.anyio

JULIET = SessionKey("assistant", JID.parse("juliet@example.com"))
LIMITS = FileLimits(200_000, 5, 100_000)
TEAM = MemoryScope(name="team", members=("juliet@example.com", "nurse@example.com"))


class World:
    """The files of Juliet and others with two agents."""

    def __init__(self, root: Path, **settings: Any) -> None:
        layout = Layout(root)
        self.stored = StoredFiles(layout)
        self.folder = layout.folder(JULIET)
        self.files = PersonFiles(self.stored, Sharing(layout, (TEAM,)), LIMITS, **settings)
        self.use = {one.name: one for one in file_skills(lambda: self.files, write=True)}

    async def send(self, name: str, data: bytes) -> None:
        draft = StoredFile(name=name, by="juliet@example.com", url="https://u/x", taint="file")
        await self.stored.add(self.folder, draft, data, LIMITS)


def test_only_reading_is_offered_unless_writing_is_turned_on() -> None:
    def unused() -> PersonFiles:
        raise AssertionError

    reading = file_skills(unused, write=False)
    assert [one.name for one in reading] == ["file_list", "file_read", "file_send"]
    both: dict[str, Skill] = {one.name: one for one in file_skills(unused, write=True)}
    marks = {name: each.annotations for name, each in both.items()}
    assert not any(each.open_world for each in marks.values())
    reads = [name for name, each in marks.items() if each.read_only]
    assert reads == ["file_list", "file_read", "file_send"]
    assert [name for name, each in marks.items() if each.destructive] == ["file_delete"]
    assert both["file_read"].taint == "web"


async def test_a_file_is_written_listed_read_and_deleted(tmp_path: Path) -> None:
    use = World(tmp_path).use
    assert text_of(await called(use["file_list"])) == "There are no files."
    written = await called(use["file_write"], {"path": "travel/paris.md", "text": "Café"})
    assert text_of(written) == "travel/paris.md has 5 bytes."
    more = {"path": "travel/paris.md", "text": "!", "append": True}
    assert text_of(await called(use["file_write"], more)) == "travel/paris.md has 6 bytes."
    assert text_of(await called(use["file_read"], {"path": "travel/paris.md"})) == "Café!"
    again = await called(use["file_write"], {"path": "travel/paris.md", "text": "second"})
    assert again.is_error
    listed = data_of(await called(use["file_list"]))
    assert [(each["path"], each["size"]) for each in listed] == [("travel/paris.md", 6)]
    await called(use["file_delete"], {"path": "travel/paris.md"})
    assert data_of(await called(use["file_list"])) == []
    assert (await called(use["file_read"], {"path": "travel/paris.md"})).is_error


async def test_each_person_and_each_agent_has_their_own(tmp_path: Path) -> None:
    use = World(tmp_path).use
    await called(use["file_write"], {"path": "a", "text": "mine"})
    for others in ({"principal": "romeo@example.com"}, {"agent": "helper"}):
        assert data_of(await called(use["file_list"], **others)) == []  # type: ignore[arg-type]
    assert len(data_of(await called(use["file_list"], agent="assistant/sub-1"))) == 1
    shared = World(tmp_path, shared=True).use
    await called(shared["file_write"], {"path": "b", "text": "ours"})
    assert len(data_of(await called(shared["file_list"], principal="romeo@example.com"))) == 1
    await called(shared["file_delete"], {"path": "b"})
    assert data_of(await called(shared["file_list"], principal="romeo@example.com")) == []


async def test_what_a_person_has_sent_is_read_from_any_character(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.send("letter.docx", office.docx("x" * 25_000 + "end"))
    first = await called(world.use["file_read"], {"path": "letter.docx"})
    assert text_of(first).endswith("[Characters 0 to 20000 of 25003. Go on with start=20000.]")
    rest = await called(world.use["file_read"], {"path": "letter.docx", "start": 20_000})
    assert text_of(rest) == "x" * 5_000 + "end"
    assert rest.taints == ("file",)
    with pytest.raises(InvalidParam, match="has only 25003 characters"):
        await called(world.use["file_read"], {"path": "letter.docx", "start": 30_000})
    await world.send("cat.png", b"\x89PNG\r\n\x1a\n")
    (image,) = (await called(world.use["file_read"], {"path": "cat.png"})).outputs
    assert image == File(b"\x89PNG\r\n\x1a\n", "image/png", "cat.png", "model")


async def test_a_file_has_the_taints_of_what_it_was_written_from(tmp_path: Path) -> None:
    use = World(tmp_path).use
    await called(use["file_write"], {"path": "own.txt", "text": "mine"})
    await called(use["file_write"], {"path": "web.txt", "text": "page"}, taints=("file", "web"))
    assert (await called(use["file_read"], {"path": "own.txt"})).taints == ()
    assert (await called(use["file_read"], {"path": "web.txt"})).taints == ("web",)
    assert (await called(use["file_list"])).taints == ("web",)
    more = {"path": "own.txt", "text": "page", "append": True}
    await called(use["file_write"], more, taints=("web",))
    assert (await called(use["file_read"], {"path": "own.txt"})).taints == ("web",)


async def test_a_shared_file_is_data_of_somebody_else_for_the_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    await called(world.use["file_write"], {"path": "plan.txt", "text": "at nine"})
    await world.files.share(JULIET, "plan.txt", "team")
    read = await called(world.use["file_read"], {"path": "plan.txt"}, principal="nurse@example.com")
    assert (text_of(read), read.taints) == ("at nine", ("file",))
    other = await called(
        world.use["file_read"], {"path": "plan.txt"}, principal="paris@example.com"
    )
    assert text_of(other) == "There is no file plan.txt."


async def test_a_file_or_a_text_is_sent_to_the_person(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.send("cat.png", b"\x89PNG\r\n\x1a\n")
    made = await called(world.use["file_send"], {"path": "cat.png"})
    assert made.outputs == (File(b"\x89PNG\r\n\x1a\n", "image/png", "cat.png", "person"),)
    made = await called(world.use["file_send"], {"path": "lists/a.csv", "text": "a,b"})
    assert made.outputs == (File(b"a,b", "text/csv", "a.csv", "person"),)
    assert (await called(world.use["file_send"], {"path": "none.txt"})).is_error
