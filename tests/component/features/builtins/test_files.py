"""Files stay in the folder of their person, within its limits."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.builtins.files import file_skills
from component.features.builtins.folder import Folder, FolderError, FolderLimits
from component.features.builtins.settings import Files
from component.skills import File, Skill
from tests.component.skill_calls import called, data_of, text_of

pytestmark = pytest.mark.anyio


def folder(root: Path, size: int = 100, files: int = 3, file_size: int = 50) -> Folder:
    return Folder(root, FolderLimits(size, files, file_size), threading.Lock())


def skills(root: Path, **settings: object) -> dict[str, Skill]:
    return {each.name: each for each in file_skills(Files(**settings), root)}  # type: ignore[arg-type]


async def test_a_file_is_written_listed_read_and_deleted(tmp_path: Path) -> None:
    use = skills(tmp_path)
    assert text_of(await called(use["file_list"])) == "There are no files."
    written = await called(use["file_write"], {"path": "travel/paris.md", "text": "Café"})
    assert text_of(written) == "travel/paris.md has 5 bytes."
    more = {"path": "travel/paris.md", "text": "!", "append": True}
    assert text_of(await called(use["file_write"], more)) == "travel/paris.md has 6 bytes."
    assert text_of(await called(use["file_read"], {"path": "travel/paris.md"})) == "Café!"
    listed = data_of(await called(use["file_list"]))
    assert [(each["path"], each["size"]) for each in listed] == [("travel/paris.md", 6)]
    await called(use["file_delete"], {"path": "travel/paris.md"})
    assert data_of(await called(use["file_list"])) == []
    assert (await called(use["file_read"], {"path": "travel/paris.md"})).is_error


async def test_nothing_is_overwritten(tmp_path: Path) -> None:
    use = skills(tmp_path)
    await called(use["file_write"], {"path": "a.txt", "text": "first"})
    again = await called(use["file_write"], {"path": "a.txt", "text": "second"})
    assert again.is_error
    assert text_of(again) == "There is a file a.txt already."
    assert text_of(await called(use["file_read"], {"path": "a.txt"})) == "first"


async def test_each_person_and_each_agent_has_their_own(tmp_path: Path) -> None:
    use = skills(tmp_path)
    await called(use["file_write"], {"path": "a", "text": "mine"})
    for others in ({"principal": "romeo@example.com"}, {"agent": "helper"}):
        assert data_of(await called(use["file_list"], **others)) == []  # type: ignore[arg-type]
    assert len(data_of(await called(use["file_list"], agent="assistant/sub-1"))) == 1
    shared = skills(tmp_path, shared=True)
    await called(shared["file_write"], {"path": "b", "text": "ours"})
    assert len(data_of(await called(shared["file_list"], principal="romeo@example.com"))) == 1


WORDS = r"../x a/../../x /etc/passwd . .. a//b a/ .hidden a\b a/b/c/d/e/f/g C:x -/."
PATHS = WORDS.split()


@pytest.mark.parametrize("path", [*PATHS, "a\0b", "x" * 101, "\u20ac" * 100, "a\nb", "a ", ""])
def test_a_path_that_could_lead_out_is_refused(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    for act in (
        lambda: folder(root).read(path),
        lambda: folder(root).write(path, b"x", append=False),
        lambda: folder(root).delete(path),
    ):
        with pytest.raises(FolderError):
            act()
    assert not root.exists()


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "directory").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "new").symlink_to(outside / "new")
    os.mkfifo(root / "pipe")
    use = folder(root)
    assert use.entries() == []
    for path in ("directory/secret", "file", "pipe"):
        with pytest.raises(FolderError):
            use.read(path)
    for path in ("directory/x", "file", "new", "pipe"):
        for append in (False, True):
            with pytest.raises(FolderError):
                use.write(path, b"x", append=append)
    with pytest.raises(FolderError):
        use.delete("directory/secret")
    use.delete("file")
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_text() == "secret"


def test_a_folder_refuses_files_beyond_its_limits(tmp_path: Path) -> None:
    use = folder(tmp_path / "root")
    with pytest.raises(FolderError, match="would have 51 bytes"):
        use.write("a", b"x" * 51, append=False)
    use.write("a", b"x" * 50, append=False)
    with pytest.raises(FolderError, match="51 bytes"):
        use.write("a", b"x", append=True)
    use.write("b", b"x" * 50, append=False)
    with pytest.raises(FolderError, match="more than 100 bytes"):
        use.write("c", b"x", append=False)
    use.write("c", b"", append=False)
    with pytest.raises(FolderError, match="3 files"):
        use.write("d", b"", append=False)
    assert {entry.path: entry.size for entry in use.entries()} == {"a": 50, "b": 50, "c": 0}


def test_a_file_that_somebody_else_made_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 51)
    with pytest.raises(FolderError, match="more than 50"):
        folder(tmp_path).read("a")


names = st.text(max_size=12) | st.sampled_from(["..", ".", "", "a", "b", "link", "~", "a/b"])


@given(st.lists(names, min_size=1, max_size=4).map("/".join), st.booleans())
def test_no_path_leads_out(
    tmp_path_factory: pytest.TempPathFactory, path: str, append: bool
) -> None:
    top = tmp_path_factory.mktemp("top")
    root, outside = top / "in" / "root", top / "outside"
    outside.mkdir()
    root.mkdir(parents=True)
    (root / "link").symlink_to(outside)
    use = folder(root)
    try:
        use.write(path, b"x", append=append)
    except FolderError:
        assert use.entries() == []
    else:
        assert [entry.path for entry in use.entries()] == [path]
        assert use.read(path) == b"x"
        use.delete(path)
    assert list(outside.iterdir()) == []
    assert [each.name for each in root.iterdir() if each.name != "link"] == []
    assert sorted(each.name for each in top.iterdir()) == ["in", "outside"]


def test_the_file_skills_declare_their_effects() -> None:
    marks = {name: each.annotations for name, each in skills(Path("x")).items()}
    assert not any(each.open_world for each in marks.values())
    reads = [name for name, each in marks.items() if each.read_only]
    assert reads == ["file_list", "file_read", "file_send"]
    assert [name for name, each in marks.items() if each.destructive] == ["file_delete"]
    assert skills(Path("x"))["file_read"].taint == "web"


async def test_a_file_or_a_text_is_sent_to_the_person(tmp_path: Path) -> None:
    use = skills(tmp_path)
    await called(use["file_write"], {"path": "travel/paris.md", "text": "Café"})
    made = await called(use["file_send"], {"path": "travel/paris.md"})
    kept = File("Café".encode(), "text/markdown", "paris.md", "person")
    assert made.outputs == (kept,)
    made = await called(use["file_send"], {"path": "list.csv", "text": "a,b"})
    assert made.outputs == (File(b"a,b", "text/csv", "list.csv", "person"),)
    made = await called(use["file_send"], {"path": "list", "text": "a"})
    assert made.outputs == (File(b"a", "text/plain", "list", "person"),)
    assert (await called(use["file_send"], {"path": "none.txt"})).is_error
    small = skills(tmp_path, max_file_bytes=10)
    assert (await called(small["file_send"], {"path": "x", "text": "x" * 11})).is_error


async def test_a_file_that_is_read_is_for_the_model(tmp_path: Path) -> None:
    use = skills(tmp_path)
    await called(use["file_write"], {"path": "a.png", "text": "x"})
    (stored,) = tmp_path.rglob("a.png")  # noqa: ASYNC240 - nothing else runs
    stored.write_bytes(b"\x89PNG")
    made = await called(use["file_read"], {"path": "a.png"})
    assert made.outputs == (File(b"\x89PNG", "image/png", "a.png", "model"),)
