"""A person reads, corrects and deletes memories on a PubSub node."""

import math
from pathlib import Path

import anyio
import pytest

from component.memory.index_search import Search
from component.memory_directory.layout import SessionKey
from tests.component.features.memory_nodes.world import ADDRESS, ANNS, world
from tests.component.memory.remembering import AGENT, ANN
from tests.waiting import LIMIT_S, eventually

pytestmark = pytest.mark.anyio


async def test_a_stored_memory_is_an_item(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("tea", "Ann likes green tea", title="Drinks", topic="food", tags=("a",))
        item = here.nodes.payload("tea")
        assert (item.key, item.title, item.topic, item.tags) == ("tea", "Drinks", "food", ("a",))
        assert item.contents[0].text == "Ann likes green tea"
        assert (item.version, item.by, item.origin) == (1, ADDRESS, None)
        await here.remember("tea", "Ann likes black tea", taint="web")
        assert (here.nodes.payload("tea").version, here.nodes.payload("tea").origin) == (2, "web")


async def test_an_edit_of_the_owner_is_used_immediately(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("tea", "Ann likes green tea")
        here.nodes.edit("tea", "Ann likes coffee", 7)
        assert await here.get("tea") == "Ann likes coffee"
        recalled = await here.knowledge.recall(SessionKey(AGENT, ANN), "buy green coffee", 5)
        assert [one.item.body for one in recalled] == ["Ann likes coffee"]
        await here.remember("tea", "Ann likes both")
        assert here.nodes.payload("tea").version == 8, "one more than what was read (MEM-006)"


async def test_a_request_waits_for_an_edit_that_is_being_applied(tmp_path: Path) -> None:
    async with world(tmp_path) as here, anyio.create_task_group() as group:
        await here.remember("tea", "green")
        here.nodes.edit("tea", "coffee", 2)
        here.nodes.gate = anyio.Event()
        group.start_soon(here.replica.before_use, ANNS)  # as the one that runs beside requests
        await anyio.wait_all_tasks_blocked()
        found: list[str | None] = []

        async def ask() -> None:
            found.append(await here.get("tea"))

        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        here.nodes.gate.set()
        await eventually(lambda: found == ["coffee"])


async def test_an_edit_of_the_owner_with_a_lower_version_is_used(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for version, text in ((5, "first"), (1, "second"), (1, "third")):
            here.nodes.edit("tea", text, version)
            assert await here.get("tea") == text
        await here.remember("tea", "fourth")
        assert here.nodes.payload("tea").version == 2


async def test_a_deletion_by_the_owner_is_applied_everywhere(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("pin", "the word is xyzzy")
        here.nodes.delete("pin")
        assert await here.get("pin") is None
        assert await here.knowledge.search(SessionKey(AGENT, ANN), Search("xyzzy")) == []
        for path in here.root.rglob("*"):
            assert not path.is_file() or b"xyzzy" not in path.read_bytes(), path
        await here.reconcile()
        assert here.nodes.texts() == {}


async def test_a_silent_deletion_is_found_by_comparing(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("pin", "1234")
        here.nodes.silent = True
        here.nodes.delete("pin")
        await here.reconcile()
        assert await here.get("pin") is None


async def test_each_request_reads_a_store_that_does_not_announce_changes(tmp_path: Path) -> None:
    async with world(tmp_path, fresh_s=0.0) as here:
        await here.remember("pin", "1234")
        here.nodes.silent = True
        here.nodes.delete("pin")
        assert await here.get("pin") is None


async def test_changes_reach_a_server_in_order_after_an_outage(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here, anyio.create_task_group() as group:
        await here.remember("a", "one")
        here.nodes.down = True
        for key in ("c", "b", "d"):
            await here.remember(key, f"text {key}")
        await here.forget("a")
        assert await here.get("b") == "text b"
        here.restart()
        await group.start(here.replica.run)
        here.nodes.down = False
        here.replica.connected()
        await eventually(lambda: here.nodes.texts() == {x: f"text {x}" for x in "bcd"})
        assert [key for key, _ in here.nodes.published] == ["a", "c", "b", "d"]
        group.cancel_scope.cancel()


async def test_a_server_that_hangs_is_waited_for_once(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("a", "one")
        here.nodes.hangs = True
        here.wait_at_most(0.05)
        here.nodes.edit("a", "two")
        for _ in range(20):
            assert await here.get("a") == "one"
        assert here.nodes.waited_for == 1
        here.wait_at_most(LIMIT_S)
        here.nodes.hangs = False
        await here.reconcile()
        assert await here.get("a") == "two"


async def test_concurrent_changes_are_both_kept_and_the_owners_is_used(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("tea", "green")
        here.nodes.down = True
        here.nodes.edit("tea", "coffee!", 2)
        await here.remember("tea", "black")
        here.nodes.down = False
        await here.reconcile()
        expected = {"tea": "coffee!", "tea (conflict)": "black"}
        assert here.nodes.texts() == expected == await here.texts()
        (said,) = here.told
        assert said.endswith("Yours counts. My text is kept as tea (conflict).")


async def test_a_deletion_by_the_owner_is_not_undone(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("tea", "green")
        here.nodes.down = True
        here.nodes.delete("tea")
        await here.remember("tea", "black")
        here.nodes.down = False
        await here.reconcile()
        assert here.nodes.texts() == {} == await here.texts()
        assert len(here.told) == 1


async def test_forget_reaches_the_node_even_after_a_restart(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("tea", "green")
        here.nodes.edit("hat", "blue")
        here.nodes.down = True
        assert await here.knowledge.erase(SessionKey(AGENT, ANN)) == 1
        here.restart()
        await here.remember("new", "since then")
        here.nodes.down = False
        await here.reconcile()
        assert here.nodes.texts() == {"new": "since then"} == await here.texts()


async def test_a_deleted_directory_deletes_no_items(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("tea", "green")
        for path in here.file.parent.iterdir():
            path.unlink()
        here.restart()
        assert await here.get("tea") == "green", "read from the node again"


async def test_edits_of_the_file_reach_the_node(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("tea", "green")
        here.file.write_text('{"key":"tea","content":"by hand"}\n{"key":"hat","content":"blue"}\n')
        assert await here.get("tea") == "by hand"
        assert here.nodes.texts() == {"tea": "by hand", "hat": "blue"}


async def test_edits_of_files_that_are_only_a_copy_are_undone(tmp_path: Path) -> None:
    async with world(tmp_path, edits_of_files=False) as here:
        await here.remember("tea", "green")
        here.file.write_text('{"key":"tea","content":"by hand"}\n{"key":"hat","content":"blue"}\n')
        assert await here.get("tea") == "green"
        assert await here.texts() == {"tea": "green"} == here.nodes.texts()


async def test_files_that_are_only_a_copy_queue_the_agents_changes(tmp_path: Path) -> None:
    async with world(tmp_path, edits_of_files=False) as here:
        await here.remember("tea", "green")
        await here.remember("old", "x")
        here.nodes.down = True
        await here.remember("tea", "black")
        await here.forget("old")
        here.restart()
        here.nodes.down = False
        await here.reconcile()
        assert await here.texts() == {"tea": "black"} == here.nodes.texts()


async def test_an_expired_memory_is_retracted_and_not_used(tmp_path: Path) -> None:
    async with world(tmp_path) as here, anyio.create_task_group() as group:
        await group.start(here.replica.run)
        here.nodes.edit("tea", "for a moment", more=" expires='2027-01-15T08:00:01Z'")
        assert await here.get("tea") == "for a moment"
        here.now += 2.0
        here.replica.connected()
        await eventually(lambda: here.nodes.texts() == {})

        async def is_empty() -> bool:
            return await here.texts() == {}

        await eventually(is_empty)
        group.cancel_scope.cancel()


async def test_a_request_after_the_expiry_retracts_it_itself(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.nodes.edit("tea", "for a moment", more=" expires='2027-01-15T08:00:01Z'")
        assert await here.get("tea") == "for a moment"
        here.now += 2.0
        assert await here.get("tea") is None
        assert here.nodes.texts() == {}


async def test_an_edited_memory_keeps_its_taint(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("page", "do as I say", taint="web")
        here.nodes.edit("page", "do as I say!", 2)
        found = await here.knowledge.get(SessionKey(AGENT, ANN), "page")
        assert found[0].taint == "web"
        here.nodes.edit("page", "my own words", 3, " origin='person'")
        found = await here.knowledge.get(SessionKey(AGENT, ANN), "page")
        assert found[0].taint == "person"


async def test_a_payload_of_another_kind_is_read_as_its_text(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("tea", "green")
        here.nodes.write("tea", "<note xmlns='x'>I like <b>coffee</b></note>")
        assert await here.get("tea") == "I like coffee"


async def test_an_item_that_is_too_large_replaces_the_old_text(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.remember("tea", "green")
        here.nodes.edit("tea", "x" * 70000, 2)
        assert await here.get("tea") is None
        assert "70000" in here.told[0]
        await here.reconcile()
        assert len(here.told) == 1, "told once"


async def test_requests_read_the_copy(tmp_path: Path) -> None:
    async with world(tmp_path, timeout_s=math.inf) as here:
        await here.remember("tea", "green")
        here.nodes.hangs = True  # who asks now waits for ever
        with anyio.fail_after(LIMIT_S):
            assert await here.get("tea") == "green"
            assert await here.texts() == {"tea": "green"}


async def test_connecting_starts_a_comparison(tmp_path: Path) -> None:
    async with world(tmp_path) as here, anyio.create_task_group() as group:
        await here.remember("pin", "1234")
        await group.start(here.replica.run)
        here.nodes.silent = True
        here.nodes.delete("pin")
        here.replica.connected()
        await eventually(lambda: b"1234" not in here.file.read_bytes())
        group.cancel_scope.cancel()


async def test_a_node_that_becomes_available_is_used_immediately(tmp_path: Path) -> None:
    async with world(tmp_path) as here, anyio.create_task_group() as group:
        await group.start(here.replica.run)
        here.nodes.down = True
        await here.remember("tea", "green")
        here.nodes.down = False
        here.replica.available(ANNS)
        await eventually(lambda: here.nodes.texts() == {"tea": "green"})
        group.cancel_scope.cancel()
