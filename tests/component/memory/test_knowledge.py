"""Memories are stored in files that people can edit, and forgotten ones are deleted."""

import json
import random
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from component.memory import index_database
from component.memory.index_database import FILE_NAME
from component.memory.index_search import Search
from component.memory.knowledge import KnowledgeError, Memo
from component.memory_directory import files
from component.memory_directory.files import MemoryStoreError
from component.memory_directory.layout import SessionKey
from tests.component.memory.remembering import AGENT, ANN, BOB, remembering
from tests.profiles import SEED

pytestmark = pytest.mark.anyio


async def test_a_stored_memory_is_a_line_and_is_found(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        kept = await room.store("tea", "Ann likes green tea", title="Drinks", tags=("food",))
        assert (kept.item.version, kept.item.by) == (1, "ann@example.com")
        told = json.loads(room.file().read_bytes())
        assert told["key"] == "tea"
        assert told["content"] == "Ann likes green tea"
        assert await room.get("tea") == "Ann likes green tea"
        assert await room.recall("which tea shall I buy?") == ["tea"]
        assert await room.recall("which coffee shall I buy?") == []


async def test_versions_are_counted_and_stay_readable(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        for body in ("one", "two", "three", "three"):
            kept = await room.store("k", body)
        assert kept.item.version == 3, "what says nothing new is no version"
        found = await room.knowledge.versions(SessionKey(AGENT, ANN), "k")
        assert [(one.item.version, one.item.body) for one in found] == [
            (1, "one"),
            (2, "two"),
            (3, "three"),
        ]
        assert room.file().read_bytes().count(b"\n") == 3


async def test_changed_and_deleted_memories_are_not_among_the_unchanged_ones(
    tmp_path: Path,
) -> None:
    async with remembering(tmp_path) as room:
        for key, body in (("tea", "Ann likes green tea"), ("cat", "Ann's cat is Tom")):
            await room.store(key, body)
        found = await room.knowledge.recall(SessionKey(AGENT, ANN), "tea cat Tom green", 5)
        shown = {(one.key, one.digest) for one in found}
        assert {key for key, _ in shown} == {"tea", "cat"}
        unchanged = await room.knowledge.unchanged(SessionKey(AGENT, ANN), shown)
        assert {at: one.item.body for at, one in unchanged.items()} == {
            (one.key, one.digest): one.item.body for one in found
        }
        assert not await room.knowledge.unchanged(SessionKey(AGENT, BOB), shown)
        await room.store("tea", "Ann likes black tea")
        assert {
            key for key, _ in await room.knowledge.unchanged(SessionKey(AGENT, ANN), shown)
        } == {"cat"}
        await room.knowledge.forget(SessionKey(AGENT, ANN), "cat")
        assert not await room.knowledge.unchanged(SessionKey(AGENT, ANN), shown)


async def test_many_memories_are_read_in_one_thread_with_one_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remembering(tmp_path / "memory") as room:
        for number in range(8):
            await room.store(f"k{number}", f"text {number}")
        found = await room.knowledge.recall(SessionKey(AGENT, ANN), "text", 8)
        shown = {(one.key, one.digest) for one in found}
        run, hops, statements = anyio.to_thread.run_sync, list[object](), list[str]()

        async def counted(work: Any, *arguments: object, **more: Any) -> object:
            hops.append(work)
            return await run(work, *arguments, **more)

        with room.index.database.reading() as connection:
            connection.set_trace_callback(statements.append)
        monkeypatch.setattr(anyio.to_thread, "run_sync", counted)
        unchanged = await room.knowledge.unchanged(SessionKey(AGENT, ANN), shown)
        assert len(unchanged) == 8
        assert len(hops) == 1
        assert len([one for one in statements if "FROM items" in one]) == 1


async def test_the_number_of_old_versions_is_limited(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory", versions=4) as room:
        for number in range(1, 12):
            kept = await room.store("k", f"body {number}")
            assert kept.item.version == number
            assert kept.item.versions <= 4
        assert await room.get("k") == "body 11"
        assert room.file().read_bytes().count(b"\n") <= 4


async def test_a_forgotten_memory_is_deleted_from_file_and_index(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("pin", "the old word is xyzzyold")
        await room.store("pin", "the word is xyzzynew", title="plughtitle", tags=("frotztag",))
        await room.store("tea", "green")
        assert await room.knowledge.forget(SessionKey(AGENT, ANN), "pin")
        assert not await room.knowledge.forget(SessionKey(AGENT, ANN), "pin")
        assert await room.recall("xyzzynew xyzzyold") == []
        assert await room.get("pin") is None
        assert await room.get("tea") == "green"
        assert b'"forgotten":true' in room.file().read_bytes()
        for path in room.root.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                for word in (b"xyzzy", b"plugh", b"frotz"):
                    assert word not in data, path
        assert (await room.store("pin", "new")).item.version == 1


async def test_a_forgotten_memory_leaves_no_trace_in_a_large_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_database, "_STEP_PAGES", 1)  # so that it takes many steps
    async with remembering(tmp_path / "memory") as room:
        await room.store("pin", "the word is xyzzynew")
        room.index.database.expunge()
        for number in range(100):
            await room.store(f"k{number}", " ".join(f"w{number * n}" for n in range(40)))
        assert await room.knowledge.forget(SessionKey(AGENT, ANN), "pin")
        for path in room.root.glob(f"{FILE_NAME}*"):
            assert b"xyzzy" not in path.read_bytes()


async def test_edits_by_hand_are_used_immediately(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "green")
        await room.store("dog", "Bello is a dachshund")
        lines = room.file().read_text().splitlines()
        lines[0] = '{"key": "tea", "content": "oolong from Taiwan"}'
        room.file().write_text("\n".join([*lines, '{"key":"cat","content":"Minka"}']))
        assert await room.recall("oolong") == ["tea"]
        assert await room.recall("green") == []
        assert await room.get("cat") == "Minka"
        # The file has no end of its last line: what is stored next begins one.
        await room.store("bird", "Hansi")
        assert await room.get("cat") == "Minka"
        room.file().write_text(lines[1])
        assert await room.get("tea") is None
        assert await room.recall("oolong Hansi dachshund") == ["dog"]
        room.file().unlink()
        assert await room.recall("dachshund") == []


async def test_people_without_memories_do_not_wait_for_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "green")
        with monkeypatch.context() as patch:
            patch.setattr(room.index.database, "reading", lambda: pytest.fail("it was opened"))
            assert await room.recall("green", who=BOB) == []
        assert await room.recall("green") == ["tea"]


async def test_a_damaged_line_is_skipped_with_a_warning(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "green")
        with room.file().open("ab") as file:
            file.write(b'{"key":"x","conte')
        with capture_logs() as logs:
            assert await room.get("tea") == "green"
            await room.store("dog", "Bello")
        assert [(log["log_level"], log["lines"]) for log in logs] == [("warning", "2")]
        assert await room.get("dog") == "Bello"
        assert b'{"key":"x","conte\n' in room.file().read_bytes()


async def test_the_index_can_be_deleted_or_damaged_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    async with remembering(path) as room:
        await room.store("tea", "green")
    (path / FILE_NAME).unlink()
    async with remembering(path) as room:
        assert await room.recall("green") == ["tea"]
    (path / FILE_NAME).write_bytes(b"no database at all" * 1000)
    with capture_logs() as logs:
        async with remembering(path) as room:
            assert await room.recall("green") == ["tea"]
    assert [log["log_level"] for log in logs] == ["warning"]


async def test_only_its_owner_can_read_the_index_and_git_ignores_it(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    async with remembering(path) as room:
        await room.store("tea", "green")
        assert {one.stat().st_mode & 0o777 for one in path.glob(f"{FILE_NAME}*")} == {0o600}
        assert room.file().stat().st_mode & 0o777 == 0o600
    assert (path / ".gitignore").read_text().splitlines() == [".index.db*", ".*.new"]
    (path / ".gitignore").write_text("mine")
    (path / FILE_NAME).unlink()
    async with remembering(path):
        assert (path / ".gitignore").read_text() == "mine"


async def test_an_index_that_is_damaged_in_use_is_rebuilt(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        for number in range(50):
            await room.store(f"tea{number}", f"green {number} " + "leaf " * 200)
        database = room.root / FILE_NAME
        room.index.database.opened.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = database.stat().st_size
        while room.index.database.opened.idle:  # they have read it already
            room.index.database.opened.idle.pop().close()
        with database.open("r+b") as file:
            file.seek(4096)
            file.write(random.Random(SEED).randbytes(size - 4096))
        with capture_logs() as logs:
            assert await room.get("tea7") is not None
            assert await room.recall("tea7", most=1) == ["tea7"]
        assert {log["event"] for log in logs} == {"the index is damaged and is rebuilt"}


@pytest.mark.parametrize("endings", [("",), ("", "-wal", "-shm")])
async def test_an_index_that_is_deleted_in_use_is_rebuilt(
    tmp_path: Path, endings: tuple[str, ...]
) -> None:
    async with remembering(tmp_path / "memory") as room:
        database = room.root / FILE_NAME
        for number in range(3):
            await room.store(f"tea{number}", f"green {number}")
            await room.recall("green")
            for ending in endings:
                database.with_name(f"{database.name}{ending}").unlink()
            with capture_logs() as logs:
                async with anyio.create_task_group() as group:
                    for _ in range(8):
                        group.start_soon(room.get, "tea0")
                assert await room.get(f"tea{number}") == f"green {number}"
                kept = await room.store(f"tea{number}", f"green {number}, two leaves")
            assert kept.item.version == 2
            assert {log["why"] for log in logs} == {f"{database} was removed while it was in use."}
            assert database.exists()
    async with remembering(tmp_path / "memory") as room:
        assert await room.get("tea2") == "green 2, two leaves"


async def test_a_search_reads_only_files_that_others_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    whole = files.read

    def reading(path: Path, limit: int) -> Any:
        read.append(path)
        return whole(path, limit)

    monkeypatch.setattr(files, "read", reading)
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "green")
        await room.store("dog", "Bello", who=BOB)
        for _ in range(3):
            assert await room.recall("green") == ["tea"]
        assert read == []
        with room.file(BOB).open("ab") as file:
            file.write(b'{"key":"cat","content":"Minka"}\n')
        assert await room.recall("green") == ["tea"]
        assert read == []
        assert await room.recall("Minka", who=BOB) == ["cat"]
        assert read == [room.file(BOB)]


async def test_a_message_without_significant_words_needs_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "how are you")
        monkeypatch.setattr(room.index.database, "reading", None)
        assert await room.recall("How are you?") == []
        assert await room.recall("👍") == []
        assert await room.recall("tea", most=0) == []


async def test_exceeded_limits_are_explained(tmp_path: Path) -> None:
    async with remembering(
        tmp_path / "memory", item_bytes=20, items_per_principal=2, bytes_per_principal=420
    ) as room:
        with pytest.raises(KnowledgeError, match="has 21 bytes, and 20 are the most"):
            await room.store("k", "ä" * 10, title="t")
        with pytest.raises(KnowledgeError, match="needs a key"):
            await room.store(" ", "x")
        await room.store("a", "1")
        await room.store("b", "2")
        with pytest.raises(KnowledgeError, match="There are 2 memories in private"):
            await room.store("c", "3")
        await room.store("b", "3")
        await room.store("a", "4")
        with pytest.raises(KnowledgeError, match="more is not kept"):
            await room.store("a", "5")
        assert await room.get("b") == "3"
        assert await room.knowledge.forget(SessionKey(AGENT, ANN), "b")
        await room.store("c", "3")


async def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room, anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(room.store, f"k{number % 5}", f"body {number}")
            group.start_soon(room.store, f"k{number % 5}", f"body {number}", BOB)
            group.start_soon(room.recall, "body")
    async with remembering(tmp_path / "memory") as room:
        for who in (ANN, BOB):
            lines = room.file(who).read_text().splitlines()
            assert len(lines) == 20
            for number in range(5):
                own = [json.loads(line) for line in lines if f'"k{number}"' in line]
                assert [line["version"] for line in own] == [1, 2, 3, 4]


async def test_an_error_of_the_disk_fails_the_store_but_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "green")

        def full(*_: Any, **__: Any) -> Any:
            raise MemoryStoreError("the disk or the quota is full. Free some space")

        with monkeypatch.context() as patch:
            patch.setattr(files, "append", full)
            with pytest.raises(MemoryStoreError, match="Free some space"):
                await room.store("dog", "Bello")
        assert await room.get("dog") is None
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(files, "state_of", full)
            assert await room.recall("green") == []
        assert [log["event"] for log in logs] == ["memories could not be recalled"]
        assert await room.recall("green") == ["tea"]


async def test_a_link_in_place_of_a_file_or_directory_is_not_followed(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("secret", "xyzzy", who=BOB)
        (room.root / str(ANN)).symlink_to(room.root / str(BOB), target_is_directory=True)
        with capture_logs() as logs:
            assert await room.recall("xyzzy") == []
        assert "symbolic link" in logs[0]["why"]
        with pytest.raises(MemoryStoreError, match="symbolic link"):
            await room.store("k", "v")


async def test_all_memories_of_a_person_can_be_erased(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "xyzzy")
        await room.store("dog", "xyzzy")
        await room.store("tea", "green", who=BOB)
        assert await room.knowledge.erase(SessionKey(AGENT, ANN)) == 2
        assert await room.knowledge.erase(SessionKey(AGENT, ANN)) == 0
        assert not room.file().exists()
        assert await room.recall("xyzzy") == []
        assert await room.recall("green", who=BOB) == ["tea"]
        for path in room.root.glob(f"{FILE_NAME}*"):
            assert b"xyzzy" not in path.read_bytes()


async def test_directories_that_were_removed_are_deleted_from_the_index(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "xyzzy")
        await room.store("tea", "green", who=BOB)
        room.file().unlink()
        await room.knowledge.tidy()
        assert room.index.names() == ["bob@example.com"]
        for path in room.root.glob(f"{FILE_NAME}*"):
            assert b"xyzzy" not in path.read_bytes()


async def test_every_access_is_recorded_without_contents(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory", item_bytes=10) as room:
        know, who = room.knowledge, (AGENT, ANN)
        await know.store(SessionKey(*who), Memo("tea", "xyzzy"), trace="t1")
        await know.recall(SessionKey(*who), "xyzzy", 5, trace="t2")
        await know.search(SessionKey(*who), Search("xyzzy"), trace="t3")
        await know.get(SessionKey(*who), "tea", trace="t4")
        await know.versions(SessionKey(*who), "tea", trace="t5")
        await know.forget(SessionKey(*who), "tea", trace="t6")
        with pytest.raises(KnowledgeError):
            await know.store(SessionKey(*who), Memo("tea", "xyzzy is too long"), trace="t7")
        with pytest.raises(KnowledgeError):
            await know.forget(SessionKey(*who), "tea", "nowhere", trace="t8")
        # Who looks and finds nothing has looked, too.
        await know.recall(SessionKey(*who), "xyzzy", 5, trace="t9")
        await know.search(SessionKey(*who), Search("xyzzy"), trace="t10")
        await know.get(SessionKey(*who), "tea", trace="t11")
        await know.versions(SessionKey(*who), "tea", trace="t12")
        told = [(event.outcome, event.subject, event.detail) for event in room.record.events]
        assert [one[:2] for one in told] == [
            ("done", "tea"),
            ("done", ""),
            ("done", ""),
            ("done", "tea"),
            ("done", "tea"),
            ("done", "tea"),
            ("refused", "tea"),
            ("refused", "tea"),
            ("done", ""),
            ("done", ""),
            ("done", "tea"),
            ("done", "tea"),
        ]
        assert [event.trace for event in room.record.events] == [f"t{n}" for n in range(1, 13)]
        assert {event.principal for event in room.record.events} == {"ann@example.com"}
        assert {event.kind for event in room.record.events} == {"memory"}
        assert "xyzzy" not in repr(told)


async def test_the_directory_of_fluux_agent_is_used_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "memory" / "alice@example.com"
    folder.mkdir(parents=True)
    line = b'{"key":"favorite_language","content":"Rust","ts":"2025-06-01T14:30:22Z"}\n'
    (folder / "knowledge.jsonl").write_bytes(line)
    async with remembering(tmp_path / "memory") as room:
        alice = ANN.parse("alice@example.com")
        assert await room.recall("which language?", who=alice) == ["favorite_language"]
        assert (folder / "knowledge.jsonl").read_bytes() == line
