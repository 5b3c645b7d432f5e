"""Conversations in files: they are appended, read from their end, archived and deleted."""

import os
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from component.config.memory import Session
from component.conversations import directories
from component.conversations.lines import (
    Called,
    Line,
    Note,
    Resulted,
    Said,
    Summary,
    encode_lines,
)
from component.conversations.sessions import History, Sessions
from component.memory.knowledge_lines import seconds_of
from component.memory_directory import files
from component.memory_directory.files import MemoryStoreError
from component.memory_directory.layout import Layout, SessionKey
from tests.component.conversations.lines import LINE, expected, letters
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE = SessionKey("assistant", JID.parse("alice@example.com"))
BOB = SessionKey("assistant", JID.parse("bob@example.com"))
HELPER = SessionKey("helper", JID.parse("alice@example.com"))
START = 1_750_000_000.0  # 2025-06-15 15:06:40 UTC


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


A = '{"key":"a","content":"x"}'
B = '{"key":"b","content":"x"}'


class World:
    """Sessions in a temporary directory, with a manual clock."""

    def __init__(self, path: Path, **limits: int) -> None:
        self.clock = Clock()
        self.root = files.open_root(path)
        self.forgotten: list[SessionKey] = []
        self.settings = Session(**limits)
        self.layout = Layout(self.root)
        self.sessions = self.fresh()

    def fresh(self) -> Sessions:
        """Return the sessions after a restart."""

        async def forgotten(key: SessionKey) -> None:
            self.forgotten.append(key)

        return Sessions(self.layout, self.settings, clock=self.clock, on_forget=forgotten)

    def file(self, key: SessionKey, name: str = "history.jsonl") -> Path:
        return self.layout.folder(key) / name


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "memory")


def note(text: str) -> Note:
    return Note(content=text)


def texts(history: History) -> list[str]:
    return [line.content for line in history.lines if not isinstance(line, Called)]


async def test_an_empty_conversation_has_no_directory(world: World) -> None:
    assert await world.sessions.read(ALICE, may_archive=True) == History()
    assert await world.sessions.turn(ALICE, "t") == ()
    assert await world.sessions.archive(ALICE) is None
    assert (await world.sessions.status(ALICE)).messages == 0
    assert list(world.root.iterdir()) == []


async def test_the_file_has_the_format_of_fluux_agent(world: World) -> None:
    said = Said(role="user", content="Hello", msg_id="1", sender="alice@example.com")
    await world.sessions.append(ALICE, [said], sync=True)
    assert world.file(ALICE).read_text() == (
        '{"type":"session","version":1,"created":"2025-06-15T15:06:40.000Z",'
        '"jid":"alice@example.com"}\n'
        '{"type":"message","role":"user","content":"Hello","msg_id":"1",'
        '"sender":"alice@example.com","ts":"2025-06-15T15:06:40.000Z"}\n'
    )


@pytest.mark.parametrize("sync", [True, False])
async def test_appended_lines_are_read_after_a_restart(world: World, sync: bool) -> None:
    for each in "abc":
        await world.sessions.append(ALICE, [note(each)], sync=sync)
        assert (await world.sessions.read(ALICE)).lines[-1:] != ()
    await world.sessions.append(ALICE, [], sync=sync)
    assert texts(await world.sessions.read(ALICE)) == ["a", "b", "c"]
    assert await world.fresh().read(ALICE) == await world.sessions.read(ALICE)


async def test_conversations_are_separate_for_people_and_agents(world: World) -> None:
    for key in (ALICE, BOB, HELPER):
        await world.sessions.append(key, [note(f"{key.agent} {key.who}")], sync=False)
    for key in (ALICE, BOB, HELPER):
        assert texts(await world.sessions.read(key)) == [f"{key.agent} {key.who}"]
    await world.sessions.forget(ALICE)
    assert texts(await world.sessions.read(BOB)) == ["assistant bob@example.com"]
    assert texts(await world.sessions.read(HELPER)) == ["helper alice@example.com"]


async def test_a_summary_replaces_earlier_lines_except_those_that_it_keeps(world: World) -> None:
    await world.sessions.append(ALICE, [note(each) for each in "abcd"], sync=True)
    before = world.file(ALICE).read_bytes()
    await world.sessions.append(ALICE, [Summary(content="a to c", kept=1)], sync=True)
    for sessions in (world.sessions, world.fresh()):
        history = await sessions.read(ALICE)
        assert history.summary is not None
        assert history.summary.content == "a to c"
        assert texts(history) == ["d"]
    assert world.file(ALICE).read_bytes().startswith(before)


async def test_changes_by_other_programs_are_read_immediately(world: World) -> None:
    await world.sessions.append(ALICE, [note("a")], sync=True)
    await world.sessions.read(ALICE)
    with world.file(ALICE).open("ab") as file:
        file.write(encode_lines([note("by hand")], 0.0)[1])
    assert texts(await world.sessions.read(ALICE)) == ["a", "by hand"]
    await world.sessions.append(ALICE, [note("b")], sync=False)
    assert texts(await world.sessions.read(ALICE)) == ["a", "by hand", "b"]
    with world.file(ALICE).open("ab") as file:
        file.write(encode_lines([note("by hand")], 0.0)[1])
    await world.sessions.append(ALICE, [note("c")], sync=False)
    assert texts(await world.sessions.read(ALICE)) == ["a", "by hand", "b", "by hand", "c"]
    shutil.rmtree(world.file(ALICE).parent)
    assert await world.sessions.read(ALICE) == History()
    await world.sessions.append(ALICE, [note("c")], sync=False)
    assert texts(await world.sessions.read(ALICE)) == ["c"]


async def test_a_conversation_that_was_silent_too_long_is_archived_at_the_next_message(
    world: World,
) -> None:
    await world.sessions.append(ALICE, [note("old")], sync=True)
    world.clock.now += 240 * 60
    assert texts(await world.sessions.read(ALICE, may_archive=True)) == ["old"]
    world.clock.now += 1
    assert texts(await world.sessions.read(ALICE)) == ["old"]
    history = await world.fresh().read(ALICE, may_archive=True)
    assert history == History(archived=world.file(ALICE, "sessions/20250615-190641.jsonl"))
    assert history.archived is not None
    assert b'"old"' in history.archived.read_bytes()
    assert await world.sessions.read(ALICE, may_archive=True) == History()


async def test_lines_without_times_are_as_old_as_the_file(world: World) -> None:
    world.file(ALICE).parent.mkdir()
    world.file(ALICE).write_text('{"type":"note","content":"old"}\n')
    os.utime(world.file(ALICE), (START - 241 * 60, START - 241 * 60))
    assert (await world.sessions.read(ALICE, may_archive=True)).archived is not None


async def test_a_timeout_of_zero_never_archives(tmp_path: Path) -> None:
    world = World(tmp_path / "memory", idle_timeout_mins=0)
    await world.sessions.append(ALICE, [note("old")], sync=True)
    world.clock.now += 1e9
    assert texts(await world.sessions.read(ALICE, may_archive=True)) == ["old"]


async def test_a_conversation_that_is_too_large_is_archived_at_the_next_message(
    tmp_path: Path,
) -> None:
    world = World(tmp_path / "memory", max_bytes=1_000)
    await world.sessions.append(ALICE, [note("x" * 400)], sync=True)
    assert (await world.sessions.read(ALICE, may_archive=True)).archived is None
    await world.sessions.append(ALICE, [note("x" * 700)], sync=True)
    assert (await world.sessions.read(ALICE, may_archive=True)).archived is not None
    assert await world.sessions.read(ALICE, may_archive=True) == History()


async def test_the_oldest_archives_are_removed_and_the_latest_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path / "memory", archived_bytes=1_500)
    kept = []
    for text in ("a" * 400, "b" * 400, "c" * 400, "d" * 4_000):
        await world.sessions.append(ALICE, [note(text)], sync=True)
        await world.sessions.archive(ALICE)
        world.clock.now += 60
        folder = world.layout.folder(ALICE) / "sessions"
        kept.append(
            sorted(
                next(one for one in "abcd" if one * 400 in path.read_text())
                for path in folder.iterdir()
            )
        )
    assert kept == [["a"], ["a", "b"], ["b", "c"], ["d"]]


async def test_archives_of_the_same_second_do_not_overwrite_each_other(world: World) -> None:
    paths = []
    for each in "abc":
        await world.sessions.append(ALICE, [note(each)], sync=True)
        paths.append(await world.sessions.archive(ALICE))
        assert await world.sessions.archive(ALICE) is None
    assert [path.name for path in paths if path is not None] == [
        "20250615-150640.jsonl",
        "20250615-150640-2.jsonl",
        "20250615-150640-3.jsonl",
    ]
    assert (await world.sessions.status(ALICE)).archived == 3
    folder = world.layout.folder(ALICE)
    assert [each.name for each in directories.archives(world.root, folder)] == [
        path.name for path in reversed(paths) if path is not None
    ]


async def test_a_session_with_only_a_header_is_not_archived(world: World) -> None:
    await world.sessions.append(ALICE, [note("a")], sync=True)
    header = world.file(ALICE).read_text().splitlines()[0]
    world.file(ALICE).write_text(header + "\n")
    assert await world.sessions.archive(ALICE) is None
    world.clock.now += 1e9
    assert await world.sessions.read(ALICE, may_archive=True) == History()


async def test_a_conversation_stays_if_it_cannot_be_archived(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.sessions.append(ALICE, [note("a")], sync=True)

    def refuse(*_args: Any, **_more: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(MemoryStoreError, match="cannot be moved to its archive"):
            await world.sessions.archive(ALICE)
    assert texts(await world.sessions.read(ALICE)) == ["a"]
    assert list(world.file(ALICE, "sessions").iterdir()) == []


async def test_forget_deletes_everything_except_archives_and_the_chosen_persona(
    world: World,
) -> None:
    await world.sessions.append(ALICE, [note("archived")], sync=True)
    await world.sessions.archive(ALICE)
    said = [Said(role="user", content="a"), Said(role="assistant", content="b"), note("c")]
    await world.sessions.append(ALICE, said, sync=True)
    for name in ("user.md", "context.md", "memory.md", "history.md", "active_persona.txt"):
        world.file(ALICE, name).write_text("x")
    world.file(ALICE, "knowledge.jsonl").write_text(f"{A}\n{B}\n")
    world.file(ALICE, "files").mkdir()
    world.file(ALICE, "files/picture.png").touch()
    forgotten = await world.sessions.forget(ALICE)
    assert (forgotten.messages, forgotten.memories, forgotten.attachments) == (2, 2, 1)
    assert set(forgotten.names) == {
        "history.jsonl",
        "history.md",
        "user.md",
        "context.md",
        "memory.md",
        "knowledge.jsonl",
        "files",
    }
    left = {each.name for each in world.file(ALICE).parent.iterdir()}
    assert left == {"sessions", "active_persona.txt"}
    assert await world.sessions.read(ALICE) == History()
    assert world.forgotten == [ALICE]
    assert (await world.sessions.forget(ALICE)).names == ()


async def test_forget_includes_sub_agents(world: World, tmp_path: Path) -> None:
    def below(name: str, who: SessionKey = ALICE) -> SessionKey:
        return SessionKey(f"{who.agent}/{name}", who.who)

    mine = [below("a-1"), below("a-1/b-2"), below("c-3")]
    others = [below("c-3", BOB), SessionKey("other/a-1", ALICE.who)]
    for key in (ALICE, *mine, *others):
        await world.sessions.append(key, [note("x")], sync=True)
        world.file(key, "knowledge.jsonl").write_text(f"{A}\n")
    subs = world.layout.agent_directory(ALICE.agent) / "_sub"
    (subs / "a file").touch()
    (subs / "elsewhere").symlink_to(tmp_path)
    forgotten = await world.sessions.forget(ALICE)
    assert forgotten.memories == 1
    assert set(world.forgotten) == {ALICE, *mine}
    assert not any(world.file(key, "").exists() for key in mine)
    assert sorted(each.name for each in subs.iterdir()) == ["a file", "c-3", "elsewhere"]
    for key in others:
        assert texts(await world.sessions.read(key)) == ["x"]
        assert world.file(key, "knowledge.jsonl").exists()


async def test_forget_does_not_follow_a_link(world: World, tmp_path: Path) -> None:
    await world.sessions.append(ALICE, [note("a")], sync=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    world.file(ALICE, "files").symlink_to(tmp_path / "precious")
    with pytest.raises(MemoryStoreError, match="files is a symbolic link"):
        await world.sessions.forget(ALICE)
    assert (tmp_path / "precious" / "file").exists()


async def test_a_linked_directory_is_refused_by_every_operation(
    world: World, tmp_path: Path
) -> None:
    await world.sessions.append(BOB, [note("of Bob")], sync=True)
    world.layout.folder(ALICE).symlink_to(world.layout.folder(BOB))
    sessions = world.sessions
    operations: list[Callable[[], Awaitable[object]]] = [
        lambda: sessions.read(ALICE, may_archive=True),
        lambda: sessions.read(ALICE),
        lambda: sessions.append(ALICE, [note("x")], sync=False),
        lambda: sessions.turn(ALICE, "t"),
        lambda: sessions.archive(ALICE),
        lambda: sessions.forget(ALICE),
        lambda: sessions.status(ALICE),
    ]
    for operation in operations:
        with pytest.raises(MemoryStoreError, match="symbolic link"):
            await operation()
    assert texts(await sessions.read(BOB)) == ["of Bob"]


async def test_the_status_counts_messages_memories_and_attachments(world: World) -> None:
    said = [Said(role="user", content='{"type":"message"}'), note("x")]
    await world.sessions.append(ALICE, said, sync=True)
    world.file(ALICE, "knowledge.jsonl").write_text(f"{A}\n\n")
    status = await world.sessions.status(ALICE)
    assert (status.messages, status.memories, status.archived) == (1, 1, 0)
    assert status.since == "2025-06-15T15:06:40.000Z"
    assert status.size == world.file(ALICE).stat().st_size


async def test_forgotten_and_damaged_memories_are_not_counted(
    world: World,
) -> None:
    await world.sessions.append(ALICE, [note("x")], sync=True)
    newer, gone = A.replace("x", "y"), '{"key":"b","forgotten":true}'
    world.file(ALICE, "knowledge.jsonl").write_text("\n".join((A, newer, B, gone, '{"key"', "")))
    assert (await world.sessions.status(ALICE)).memories == 1
    assert (await world.sessions.forget(ALICE)).memories == 1


async def test_a_damaged_line_is_skipped_with_one_warning_that_has_its_number(world: World) -> None:
    await world.sessions.append(ALICE, [note("a")], sync=True)
    with world.file(ALICE).open("ab") as file:
        file.write(b'{"type":"message","role":"user"}\n{"torn":')
    await world.sessions.append(ALICE, [note("b")], sync=True)
    with capture_logs() as logs:
        assert texts(await world.sessions.read(ALICE)) == ["a", "b"]
        await world.sessions.append(ALICE, [note("c")], sync=False)
        assert texts(await world.sessions.read(ALICE)) == ["a", "b", "c"]
        assert texts(await world.sessions.read(ALICE, tokens=10)) == ["b", "c"]
    told = [(each["line"], each["file"]) for each in logs if each["log_level"] == "warning"]
    assert sorted(told) == [(3, str(world.file(ALICE))), (4, str(world.file(ALICE)))]


async def test_a_turn_is_read_from_an_archive_and_the_current_session(world: World) -> None:
    of_turn: list[Line] = [
        Said(role="user", content="do it", turn="t", ts="1"),
        Called(turn="t", round=0, id="1", name="f", arguments="{}", ts="1"),
        Resulted(turn="t", id="1", content="waits", task="x", ts="1"),
    ]
    late = Resulted(turn="t", id="1", content="done", ts="1")
    await world.sessions.append(ALICE, [note("before"), *of_turn], sync=True)
    assert await world.sessions.turn(ALICE, "t") == tuple(of_turn)
    await world.sessions.archive(ALICE)
    other = Said(role="user", content="else", turn="u", ts="1")
    await world.sessions.append(ALICE, [other, late], sync=True)
    await world.sessions.archive(ALICE)
    for sessions in (world.sessions, world.fresh()):
        assert await sessions.turn(ALICE, "t") == (*of_turn, late)
        assert await sessions.turn(ALICE, "u") == (other,)


async def test_a_full_disk_is_an_error_and_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.sessions.append(ALICE, [note("a")], sync=True)
    await world.sessions.read(ALICE)

    def full(_descriptor: int, _data: object) -> int:
        raise OSError(28, "No space left on device")

    for sync in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(MemoryStoreError, match="the disk or the quota is full"):
                await world.sessions.append(ALICE, [note("lost")], sync=sync)
        assert texts(await world.sessions.read(ALICE)) == ["a"]
    await world.sessions.append(ALICE, [note("b")], sync=True)
    assert texts(await world.fresh().read(ALICE)) == ["a", "b"]


async def test_operations_on_one_conversation_are_sequential_and_leave_no_lock(
    world: World,
) -> None:
    sessions = world.sessions

    async def add(number: int) -> None:
        await sessions.append(ALICE, [note(str(number))], sync=number % 2 == 0)

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(add, number)
            group.start_soon(sessions.archive, ALICE)
            group.start_soon(sessions.read, ALICE)
    await sessions.archive(ALICE)
    found = [
        line
        for path in world.file(ALICE, "sessions").iterdir()
        for line in path.read_text().splitlines()
        if '"note"' in line
    ]
    assert len(found) == 10
    assert len(sessions._locks) == 0


@pytest.mark.parametrize("sync", [True, False])
async def test_an_append_waits_for_the_lock_of_the_conversation(world: World, sync: bool) -> None:
    await world.sessions.append(ALICE, [note("a")], sync=True)
    await world.sessions.read(ALICE)
    before = world.file(ALICE).read_bytes()
    async with anyio.create_task_group() as group, world.sessions._locks.hold(ALICE):
        group.start_soon(partial(world.sessions.append, ALICE, [note("b")], sync=sync))
        await anyio.wait_all_tasks_blocked()
        assert world.file(ALICE).read_bytes() == before
    assert texts(await world.sessions.read(ALICE)) == ["a", "b"]


async def test_a_cancelled_waiter_leaves_no_lock(world: World) -> None:
    async with world.sessions._locks.hold(ALICE):
        async with anyio.create_task_group() as group:
            group.start_soon(world.sessions.read, ALICE)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        assert ALICE in world.sessions._locks
    assert len(world.sessions._locks) == 0
    assert await world.sessions.read(ALICE) == History()


async def test_only_the_latest_conversations_are_cached(world: World) -> None:
    for number in range(140):
        key = SessionKey("assistant", JID(f"user{number}", "example.com"))
        await world.sessions.append(key, [note("x")], sync=False)
        await world.sessions.read(key)
    assert len(world.sessions._tails) == 128
    assert len(world.sessions._locks) == 0


class Compared:
    """Sessions on disk, and lists of the lines that they should have."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines: dict[SessionKey, list[Line]] = {ALICE: [], BOB: [], HELPER: []}
        self.archived = dict.fromkeys(self.lines, 0)
        self.touched: set[SessionKey] = set()  # by somebody else

    async def append(
        self, key: SessionKey, lines: list[Line], sync: bool, budget: int | None
    ) -> None:
        if budget is not None:
            await self.read(key, budget)
        # A time of the lines' own would decide how long nothing was said.
        lines = [msgspec.structs.replace(each, ts=None) for each in lines]
        await self.world.sessions.append(key, lines, sync=sync)
        self.lines[key] += encode_lines(lines, self.world.clock.now)[0]
        if budget is not None:
            await self.read(key, budget)

    async def read(self, key: SessionKey, budget: int) -> None:
        history = await self.world.sessions.read(key, tokens=budget, count=letters)
        found = list(history.lines), history.summary, history.left_out
        assert found == expected(self.lines[key], budget)

    async def open(self, key: SessionKey, minutes: int) -> None:
        self.world.clock.now += minutes * 60
        last = seconds_of(self.lines[key][-1].ts) if self.lines[key] else None
        history = await self.world.sessions.read(key, count=letters, may_archive=True)
        if key not in self.touched:
            silent = last is not None and self.world.clock.now - last > 3600
            assert (history.archived is not None) is silent
        self._put_away(key, history.archived)

    async def archive(self, key: SessionKey) -> None:
        path = await self.world.sessions.archive(key)
        if key not in self.touched:
            assert (path is not None) is bool(self.lines[key])
        self._put_away(key, path)

    async def forget(self, key: SessionKey) -> None:
        await self.world.sessions.forget(key)
        self.lines[key] = []
        self.touched.discard(key)

    async def damage(self, key: SessionKey, raw: bytes) -> None:
        if self.world.file(key).exists():
            with self.world.file(key).open("ab") as file:
                file.write(raw)
            self.touched.add(key)

    async def edit(self, key: SessionKey, line: Line) -> None:
        if self.world.file(key).exists():
            (line,), raw = encode_lines([line], 0.0)
            await self.damage(key, b"\n" + raw)
            self.lines[key].append(line)

    async def restart(self, _key: SessionKey) -> None:
        self.world.sessions = self.world.fresh()

    async def compare(self) -> None:
        for key in self.lines:
            await self.read(key, 1 << 30)
            assert (await self.world.sessions.status(key)).archived == self.archived[key]

    def _put_away(self, key: SessionKey, path: Path | None) -> None:
        if path is not None:
            self.lines[key] = []
            self.archived[key] += 1
            self.touched.discard(key)


KEYS = st.sampled_from([ALICE, BOB, HELPER])
OPERATIONS = st.one_of(
    st.tuples(
        st.just(Compared.append),
        KEYS,
        st.lists(LINE, max_size=4),
        st.booleans(),
        st.sampled_from([None, 0, 30, 60]),
    ),
    st.tuples(st.just(Compared.read), KEYS, st.sampled_from([0, 30, 60])),
    st.tuples(st.just(Compared.open), KEYS, st.integers(0, 120)),
    st.tuples(st.sampled_from([Compared.archive, Compared.forget, Compared.restart]), KEYS),
    st.tuples(st.just(Compared.damage), KEYS, st.sampled_from([b"{\n", b'{"type"', b"\n"])),
    st.tuples(st.just(Compared.edit), KEYS, LINE),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(OPERATIONS, max_size=15))
async def test_sessions_behave_like_lists_of_lines(
    tmp_path: Path, operations: list[tuple[Any, ...]]
) -> None:
    shutil.rmtree(tmp_path / "memory", ignore_errors=True)
    compared = Compared(World(tmp_path / "memory", idle_timeout_mins=60))
    for operation, *arguments in operations:
        await operation(compared, *arguments)
    await compared.compare()
