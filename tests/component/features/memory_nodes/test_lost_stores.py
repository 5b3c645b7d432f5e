"""A store that was lost, replaced or restored deletes nothing; only the person does."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.component.features.memory_nodes.world import ANNS, World, world

pytestmark = pytest.mark.anyio

TEXTS = {f"k{number}": f"text {number}" for number in range(5)}


async def remembering(here: World) -> None:
    for key, text in TEXTS.items():
        await here.remember(key, text)
    assert here.nodes.texts() == TEXTS == await here.texts()


def saved(here: World) -> dict[str, Any]:
    nodes = here.nodes
    return copy.deepcopy(
        {
            "nodes": nodes.nodes,
            "identity": nodes.identity,
            "changes": nodes.changes,
            "retractions": nodes.retractions,
        }
    )


def put_back(here: World, backup: dict[str, Any]) -> None:
    """Start with a database that is a copy of an earlier one."""
    for name, value in copy.deepcopy(backup).items():
        setattr(here.nodes, name, value)
    here.restart()


NEW = {"nodes": {}, "identity": "2", "changes": 0, "retractions": {}}


@pytest.mark.parametrize("edits_of_files", [True, False], ids=["both", "pep"])
async def test_a_new_database_is_filled_from_the_files(
    tmp_path: Path, edits_of_files: bool
) -> None:
    async with world(tmp_path, edits_of_files=edits_of_files) as here:
        await remembering(here)
        put_back(here, NEW)
        await here.reconcile()
        assert here.nodes.texts() == TEXTS == await here.texts()


async def test_an_empty_database_is_filled_from_the_files(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await remembering(here)
        put_back(here, {**NEW, "identity": ""})
        await here.reconcile()
        assert here.nodes.texts() == TEXTS == await here.texts()


async def test_the_files_take_precedence_over_an_older_database(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        await remembering(here)
        backup = saved(here)
        await here.remember("k0", "a newer text")
        await here.remember("new", "remembered since")
        await here.forget("k1")
        here.nodes.delete("k2")
        await here.reconcile()
        expected = {**TEXTS, "k0": "a newer text", "new": "remembered since"}
        del expected["k1"], expected["k2"]
        assert await here.texts() == expected
        put_back(here, backup)
        await here.reconcile()
        assert here.nodes.texts() == expected == await here.texts()
        assert here.told == []


async def test_an_interrupted_filling_of_a_database_is_continued(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        await remembering(here)
        known = here.nodes.changes
        put_back(here, {**saved(here), "nodes": {}, "changes": 1})
        publish = here.nodes.publish

        async def fails_later(*args: Any) -> None:
            await publish(*args)
            here.nodes.down = True

        here.nodes.publish = fails_later  # type: ignore[method-assign]
        for _ in TEXTS:
            here.nodes.down = False
            here.nodes.changes += known  # others change their nodes as well
            await here.reconcile()
            here.restart()
        here.nodes.publish, here.nodes.down = publish, False  # type: ignore[method-assign]
        await here.reconcile()
        assert here.nodes.texts() == TEXTS == await here.texts()


async def test_an_older_database_does_not_delete_memories_that_were_stored_again(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        await remembering(here)
        here.nodes.now = 0.0  # long before anything in the files
        here.nodes.silent = True
        here.nodes.delete("k0")
        backup = saved(here)
        await here.reconcile()
        await here.remember("k0", "stored again")
        put_back(here, backup)
        await here.reconcile()
        assert here.nodes.texts()["k0"] == "stored again" == (await here.texts())["k0"]


async def test_deleting_all_items_of_the_node_deletes_all_memories(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await remembering(here)
        for key in TEXTS:
            here.nodes.delete(key)
        put_back(here, {**saved(here), "identity": ""})  # and the node as well
        await here.reconcile()
        assert here.nodes.texts() == {} == await here.texts()
        await here.remember("k0", "anew")
        await here.reconcile()
        assert here.nodes.texts() == {"k0": "anew"} == await here.texts()


async def test_a_deletion_during_a_comparison_is_applied(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await remembering(here)
        here.nodes.silent = True
        items = here.nodes.items

        async def deletes_then_lists(*args: Any) -> Any:
            here.nodes.delete("k0")
            return await items(*args)

        here.nodes.items = deletes_then_lists  # type: ignore[method-assign]
        await here.reconcile()
        assert "k0" not in await here.texts()
        assert "k0" not in here.nodes.texts()


async def test_a_lost_file_is_restored_from_the_node(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await remembering(here)
        here.file.unlink()
        here.restart()
        await here.reconcile()
        assert here.nodes.texts() == TEXTS == await here.texts()


async def test_lines_that_are_removed_by_hand_are_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await remembering(here)
        lines = here.file.read_bytes().splitlines(keepends=True)
        here.file.write_bytes(b"".join(lines[1:]))
        await here.reconcile()
        assert "k0" not in here.nodes.texts()
        assert len(here.nodes.texts()) == len(TEXTS) - 1


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"\0\0\n", b'{"key":"k1","content":5}\n'])
async def test_a_memory_whose_line_is_damaged_is_restored_from_the_node(
    tmp_path: Path, line: bytes
) -> None:
    async with world(tmp_path) as here:
        await remembering(here)
        lines = here.file.read_bytes().splitlines(keepends=True)
        here.file.write_bytes(b"".join([lines[0], line, *lines[2:]]))
        await here.reconcile()
        assert here.nodes.texts() == TEXTS == await here.texts()


async def test_an_older_line_does_not_replace_the_text_of_a_damaged_one(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await remembering(here)
        await here.remember("k0", "a newer text")
        here.file.write_bytes(here.file.read_bytes()[:-20])
        await here.reconcile()
        expected = {**TEXTS, "k0": "a newer text"}
        assert here.nodes.texts() == expected == await here.texts()


@pytest.mark.parametrize("decision", ["restore", "delete"])
async def test_an_admin_decides_about_memories_that_an_account_lost(
    tmp_path: Path, decision: Any
) -> None:
    async with world(tmp_path) as here:
        here.nodes.tells = False
        await remembering(here)
        put_back(here, {"nodes": {}})
        for _ in range(2):
            await here.reconcile()
            assert here.nodes.texts() == {}
            assert await here.texts() == TEXTS, "nothing is deleted"
        assert here.replica.held == {ANNS: 5}
        await here.remember("new", "goes on")
        assert here.nodes.texts() == {"new": "goes on"}
        assert await here.replica.decide(ANNS, decision) == 5
        expected = {"new": "goes on"} | (TEXTS if decision == "restore" else {})
        assert here.nodes.texts() == expected == await here.texts()
        assert here.replica.held == {}


async def test_memories_that_wait_for_an_admin_are_not_deleted_later(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        here.nodes.tells = False
        await here.remember("k0", "text 0")
        put_back(here, {"nodes": {}})
        await here.reconcile()
        await here.remember("new", "goes on")
        here.restart()
        await here.reconcile()
        assert await here.texts() == {"k0": "text 0", "new": "goes on"}
        assert here.replica.held == {ANNS: 1}


async def test_few_missing_memories_in_an_account_count_as_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.nodes.tells = False
        await remembering(here)
        here.nodes.silent = True
        here.nodes.delete("k0")
        await here.reconcile()
        assert "k0" not in await here.texts()
        assert here.replica.held == {}
