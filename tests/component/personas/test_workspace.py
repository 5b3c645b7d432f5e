"""The texts about an agent and the person: their precedence, and when they are read."""

import os
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from component.config.agents import AgentEntry
from component.memory_directory import files, texts
from component.memory_directory.files import MemoryStoreError
from component.memory_directory.layout import Layout, SessionKey
from component.memory_directory.texts import Texts
from component.personas.workspace import Character, Workspace
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE = SessionKey("assistant", JID.parse("alice@example.com"))
OF_HELPER = SessionKey("helper/1", JID.parse("alice@example.com"))


class Desk:
    """A workspace in a temporary directory."""

    def __init__(self, path: Path) -> None:
        self.root = files.open_root(path)
        self.layout = Layout(self.root)
        self.texts = Texts(self.root)
        self.workspace = Workspace(self.layout, self.texts)

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "memory")


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The functions that ran in worker threads."""
    gone: list[object] = []
    run = to_thread.run_sync

    async def counted(work: object, *arguments: object, **more: object) -> object:
        gone.append(work)
        return await run(work, *arguments, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(to_thread, "run_sync", counted)
    return gone


async def test_without_files_the_character_is_empty(desk: Desk) -> None:
    assert await desk.workspace.read(ALICE) == Character()


async def test_the_precedence_of_files(desk: Desk) -> None:
    declared = AgentEntry(name="assistant", identity="declared")
    persona = desk.root / "personas" / "mentor"
    here = desk.write("alice@example.com/identity.md", "of Alice")
    of_persona = desk.write("personas/mentor/identity.md", "of the persona")
    desk.write("identity.md", "of all")

    async def identity(declared: AgentEntry | None) -> tuple[str, tuple[str, ...]]:
        found = await desk.workspace.read(ALICE, persona=persona, declared=declared)
        return found.identity, found.sources

    assert await identity(declared) == ("of Alice", ("alice@example.com/identity.md",))
    here.unlink()
    assert await identity(declared) == ("of the persona", ("personas/mentor/identity.md",))
    of_persona.unlink()
    assert await identity(declared) == ("declared", ("agent.toml",))
    assert await identity(None) == ("of all", ("identity.md",))
    assert await identity(AgentEntry(name="assistant")) == ("of all", ("identity.md",))


async def test_a_sub_agent_inherits_files_of_its_parents(desk: Desk) -> None:
    desk.write("instructions.md", "of all")
    desk.write("personality.md", "of all")
    desk.write("identity.md", "of all")
    desk.write("_agents/helper/personality.md", "of the helper")
    desk.write("_agents/helper/identity.md", "of the helper")
    desk.write("_agents/helper/_sub/1/identity.md", "of the sub-agent")
    desk.write("alice@example.com/identity.md", "of Alice with the assistant")
    found = await desk.workspace.read(OF_HELPER)
    assert found.identity == "of the sub-agent"
    assert found.personality == "of the helper"
    assert found.instructions == "of all"


async def test_blank_files_are_ignored(desk: Desk) -> None:
    desk.write("alice@example.com/identity.md", " \n\t")
    desk.write("personas/mentor/identity.md", "")
    desk.write("identity.md", "of all")
    desk.write("alice@example.com/memory.md", "\n")
    found = await desk.workspace.read(
        ALICE,
        persona=desk.root / "personas" / "mentor",
        declared=AgentEntry(name="assistant", identity="  "),
    )
    assert found == Character(identity="of all", sources=("identity.md",))


async def test_notes_on_the_person_are_read(desk: Desk) -> None:
    desk.write("bob@example.com/user.md", "of Bob")
    desk.write("memory.md", "in the root, where it is nobody's")
    old = desk.write("alice@example.com/context.md", "the old name")
    desk.write("alice@example.com/memory.md", "notes")
    desk.write("personas/mentor/context.md", "of its field")
    found = await desk.workspace.read(ALICE, persona=desk.root / "personas" / "mentor")
    assert (found.user, found.memory, found.context) == ("the old name", "notes", "of its field")
    desk.write("alice@example.com/user.md", "the new name")
    assert (await desk.workspace.read(ALICE)).user == "the new name"
    desk.write("alice@example.com/user.md", "")
    found = await desk.workspace.read(ALICE)
    assert (found.user, found.context) == ("", "")
    assert old.exists()


async def test_unchanged_files_need_no_thread(desk: Desk, hops: list[object]) -> None:
    desk.write("identity.md", "of all")
    desk.write("alice@example.com/user.md", "Alice")
    first = await desk.workspace.read(ALICE)
    assert len(hops) == 1
    assert await desk.workspace.read(ALICE) is first
    assert len(hops) == 1


@pytest.mark.parametrize("how", ["in place", "by rename", "same size", "same time", "new", "gone"])
async def test_an_edit_is_seen_at_the_next_turn(desk: Desk, how: str) -> None:
    path = desk.write("alice@example.com/identity.md", "before")
    desk.write("identity.md", "of all")
    new = "other." if how in {"same size", "same time"} else "and a different one"
    times = path.stat()
    assert (await desk.workspace.read(ALICE)).identity == "before"
    # A clock of the disk that has not moved on since would hide a change of the same length.
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns - 10**9))
    assert (await desk.workspace.read(ALICE)).identity == "before"
    if how == "by rename":
        files.replace(path, new.encode())
    elif how == "gone":
        path.unlink()
        new = "of all"
    elif how == "new":
        path.rename(path.with_name("personality.md"))
        assert (await desk.workspace.read(ALICE)).personality == "before"
        path.write_text(new)
    else:
        path.write_text(new)
        if how == "same time":
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns - 10**9 + 1))
    assert (await desk.workspace.read(ALICE)).identity == new


async def test_a_file_that_cannot_be_read_is_an_error(desk: Desk) -> None:
    desk.write("instructions.md", "keep to it")
    assert (await desk.workspace.read(ALICE)).instructions == "keep to it"
    desk.write("instructions.md", b"x" * (texts.MAX_TEXT + 1))
    for _ in range(2):
        with pytest.raises(MemoryStoreError, match=r"instructions\.md has 262145 bytes"):
            await desk.workspace.read(ALICE)
    (desk.root / "instructions.md").unlink()
    (desk.root / "instructions.md").mkdir()
    with pytest.raises(MemoryStoreError, match=r"instructions\.md is not a regular file"):
        await desk.workspace.read(ALICE)


async def test_only_links_of_the_operator_within_the_root_are_followed(
    desk: Desk, tmp_path: Path
) -> None:
    desk.write("..data/identity.md", "mounted")
    (desk.root / "identity.md").symlink_to("..data/identity.md")
    assert (await desk.workspace.read(ALICE)).identity == "mounted"
    desk.write("..data/identity.md", "mounted anew")
    assert (await desk.workspace.read(ALICE)).identity == "mounted anew"
    (tmp_path / "secret").write_text("secret")
    (desk.root / "identity.md").unlink()
    (desk.root / "identity.md").symlink_to(tmp_path / "secret")
    with pytest.raises(MemoryStoreError, match="outside of"):
        await desk.workspace.read(ALICE)


@pytest.mark.parametrize("how", ["relative", "linked"])
async def test_the_root_may_be_a_relative_path_or_a_link(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    desk.write("identity.md", "of all")
    desk.write("alice@example.com/user.md", "of Alice")
    monkeypatch.chdir(desk.root.parent)
    root = Path("memory")
    if how == "linked":
        root = desk.root.parent / "link"
        root.symlink_to(desk.root)
    found = await Workspace(Layout(root), Texts(root)).read(ALICE)
    assert (found.identity, found.user) == ("of all", "of Alice")
    assert found.sources == ("identity.md", "alice@example.com/user.md")


async def test_no_link_in_the_directory_of_a_person_is_followed(desk: Desk) -> None:
    desk.write("bob@example.com/user.md", "of Bob")
    path = desk.write("alice@example.com/user.md", "of Alice")
    assert (await desk.workspace.read(ALICE)).user == "of Alice"
    path.unlink()
    path.symlink_to(desk.root / "bob@example.com/user.md")
    with pytest.raises(MemoryStoreError, match=r"user\.md.*symbolic link"):
        await desk.workspace.read(ALICE)


async def test_a_directory_that_becomes_a_link_is_refused_although_it_was_read_before(
    desk: Desk,
) -> None:
    desk.write("bob@example.com/user.md", "of Bob")
    desk.write("alice@example.com/user.md", "of Alice")
    await desk.workspace.read(ALICE)
    (desk.root / "alice@example.com").rename(desk.root / "away")
    (desk.root / "alice@example.com").symlink_to("bob@example.com")
    with pytest.raises(MemoryStoreError, match=r"alice@example\.com is a symbolic link"):
        await desk.workspace.read(ALICE)


async def test_invalid_utf_8_is_replaced_with_one_warning(desk: Desk) -> None:
    desk.write("identity.md", b"\xef\xbb\xbfone\ntwo \xff\n")
    with capture_logs() as logs:
        for key in (ALICE, SessionKey("assistant", JID.parse("bob@example.com"))):
            assert (await desk.workspace.read(key)).identity == "one\ntwo \ufffd\n"
    assert [(each["line"], each["log_level"]) for each in logs] == [(2, "warning")]


async def test_the_size_of_cached_texts_is_limited(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "_KEPT", 100)
    monkeypatch.setattr(texts, "_RESULTS", 3)
    for number in range(20):
        key = SessionKey("assistant", JID(f"user{number}", "example.com"))
        desk.write(f"user{number}@example.com/user.md", "x" * 30)
        assert (await desk.workspace.read(key)).user == "x" * 30
    assert desk.texts._size == 90
    assert len(desk.texts._texts) == 3
    assert len(desk.texts._results) == 3


async def test_concurrent_readers_get_their_own_texts(desk: Desk) -> None:
    found: dict[int, str] = {}

    async def read(number: int) -> None:
        key = SessionKey("assistant", JID(f"user{number}", "example.com"))
        found[number] = (await desk.workspace.read(key)).user

    for number in range(20):
        desk.write(f"user{number}@example.com/user.md", str(number))
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(read, number)
    assert found == {number: str(number) for number in range(20)}


PLACES = ["alice@example.com", "personas/mentor", "", "_agents/helper", "bob@example.com"]
KEYS = [ALICE, SessionKey("helper", ALICE.who), SessionKey("assistant", JID("bob", "example.com"))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(PLACES),
            st.sampled_from(["identity", "personality", "instructions"]),
            st.sampled_from(["", "one", "two", "three", None]),
        ),
        max_size=8,
    )
)
async def test_cached_texts_equal_the_files(
    tmp_path: Path, edits: list[tuple[str, str, str | None]]
) -> None:
    old = Desk(tmp_path / "memory")
    for place, kind, text in edits:
        path = old.root / place / f"{kind}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink(missing_ok=True)
        else:
            files.replace(path, text.encode())
        for key in KEYS:
            for persona in (None, old.root / "personas" / "mentor"):
                new = Desk(tmp_path / "memory")
                assert await old.workspace.read(key, persona=persona) == await new.workspace.read(
                    key, persona=persona
                )
