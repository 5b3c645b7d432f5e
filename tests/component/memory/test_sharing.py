"""Rights to read, write and delete, and the labels of memories of other contributors."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from component.config.memory import Memory, MemoryScope
from component.memory.knowledge import KnowledgeError, Memo
from component.memory_directory.layout import SessionKey
from component.policy.entries import PolicyError
from tests.component.memory.remembering import AGENT, ANN, BOB, EVE, remembering

pytestmark = pytest.mark.anyio

KITCHEN = MemoryScope(name="kitchen", members=("example.com",), writers=("ann@example.com",))
TEAM = MemoryScope(name="team", members=("ann@example.com", "eve@example.net"))


async def test_members_read_writers_write_and_others_see_nothing(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory", [KITCHEN, TEAM]) as room:
        know = room.knowledge
        assert know.scopes(SessionKey(AGENT, ANN)) == ("private", "agent", "kitchen", "team")
        assert know.scopes(SessionKey(AGENT, BOB)) == ("private", "agent", "kitchen")
        assert know.scopes(SessionKey(AGENT, EVE)) == ("private", "agent", "team")
        await room.store("oven", "preheat xyzzy", scope="kitchen")
        assert await room.recall("xyzzy", who=BOB) == ["oven"]
        assert await room.recall("xyzzy", who=EVE) == []
        with pytest.raises(KnowledgeError, match="read only"):
            await room.store("oven", "mine", who=BOB, scope="kitchen")
        with pytest.raises(KnowledgeError, match="There are: private, agent, team") as refused:
            await room.store("oven", "mine", who=EVE, scope="kitchen")
        with pytest.raises(KnowledgeError) as unknown:
            await room.store("oven", "mine", who=EVE, scope="kitchem")
        assert str(refused.value).replace("kitchen", "") == str(unknown.value).replace(
            "kitchem", ""
        )
        assert (room.root / "_shared" / "kitchen" / "knowledge.jsonl").exists()


async def test_writers_may_delete_memories_of_other_contributors(
    tmp_path: Path,
) -> None:
    async with remembering(tmp_path / "memory", [KITCHEN]) as room:
        await room.store("wifi", "xyzzy", scope="agent")
        kept = await room.store("wifi", "plugh", who=BOB, scope="agent")
        assert (kept.item.version, kept.item.creator, kept.item.by) == (
            2,
            "ann@example.com",
            "bob@example.com",
        )
        told = await room.knowledge.versions(SessionKey(AGENT, BOB), "wifi", "agent")
        assert [one.item.by for one in told] == ["ann@example.com", "bob@example.com"]
        assert await room.knowledge.forget(SessionKey(AGENT, EVE), "wifi", "agent")
        await room.store("oven", "hot", scope="kitchen")
        with pytest.raises(KnowledgeError, match="read only"):
            await room.knowledge.forget(SessionKey(AGENT, BOB), "oven", "kitchen")


async def test_an_admin_may_delete_but_not_read_memories_of_shared_scopes(
    tmp_path: Path,
) -> None:
    async with remembering(tmp_path / "memory", [KITCHEN], admins=[EVE]) as room:
        await room.store("oven", "xyzzy", scope="kitchen")
        await room.store("mine", "xyzzy")
        assert await room.recall("xyzzy", who=EVE) == []
        with pytest.raises(KnowledgeError, match="no scope 'kitchen'"):
            await room.store("oven", "mine", who=EVE, scope="kitchen")
        assert await room.knowledge.forget(SessionKey(AGENT, EVE), "oven", "kitchen")
        assert not await room.knowledge.forget(SessionKey(AGENT, EVE), "mine")
        with pytest.raises(KnowledgeError, match="no scope 'kitchem'"):
            await room.knowledge.forget(SessionKey(AGENT, EVE), "oven", "kitchem")


@pytest.mark.parametrize(
    ("limits", "most"), [({"items_per_principal": 10}, 5), ({"bytes_per_principal": 10_000}, 5)]
)
async def test_one_person_cannot_fill_a_shared_scope(
    tmp_path: Path, limits: dict[str, int], most: int
) -> None:
    async with remembering(tmp_path / "memory", **limits) as room:
        stored = 0

        async def fill() -> None:
            nonlocal stored
            for number in range(10):
                await room.store(str(number), "x" * 800, scope="agent")
                stored += 1

        with pytest.raises(KnowledgeError, match="others need the room"):
            await fill()
        assert most - 1 <= stored <= most
        await room.store("of Bob", "x" * 800, who=BOB, scope="agent")
        for number in range(most + 1):
            await room.store(str(number), "x" * 800)  # private


async def test_memories_of_other_contributors_are_tainted(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("mine", "xyzzy")
        await room.store("shared", "xyzzy", scope="agent", taint="person")
        await room.store("page", "xyzzy", scope="agent", taint="web")
        mine = await room.knowledge.recall(SessionKey(AGENT, ANN), "xyzzy", 5)
        assert {one.key: one.taint for one in mine} == {
            "mine": None,
            "shared": "person",
            "page": "web",
        }
        others = await room.knowledge.recall(SessionKey(AGENT, BOB), "xyzzy", 5)
        assert {one.key: one.taint for one in others} == {"shared": "file", "page": "web"}


async def test_agents_and_sub_agents_have_separate_memories(
    tmp_path: Path,
) -> None:
    async with remembering(tmp_path / "memory", [TEAM]) as room:
        know = room.knowledge
        await know.store(SessionKey("researcher", ANN), Memo("a", "xyzzy of the researcher"))
        await know.store(
            SessionKey("researcher", ANN), Memo("b", "xyzzy of all its people"), "agent"
        )
        await know.store(SessionKey("researcher", ANN), Memo("c", "xyzzy of the team"), "team")
        for agent, keys in (
            ("researcher", {"a", "b", "c"}),
            ("assistant", {"c"}),
            ("researcher/1", set()),
        ):
            found = await know.recall(SessionKey(agent, ANN), "xyzzy", 9)
            assert {one.key for one in found} == keys, agent
        assert know.scopes(SessionKey("researcher/1", ANN)) == ("private",)
        with pytest.raises(KnowledgeError, match="There are: private"):
            await know.store(SessionKey("researcher/1", ANN), Memo("d", "x"), "agent")
        await know.store(SessionKey("researcher/1", ANN), Memo("d", "xyzzy of the child"))
        assert await know.get(SessionKey("researcher", ANN), "d") == []


def test_invalid_scope_names_and_members_are_explained() -> None:
    for name in ("private", "Küche", "a/b", "", "1st", ".."):
        with pytest.raises(ValidationError):
            MemoryScope(name=name, members=("*",))
    with pytest.raises(ValidationError, match="two scopes called 'team'"):
        Memory(scopes=(TEAM, TEAM))


async def test_members_that_are_not_addresses_prevent_the_start(tmp_path: Path) -> None:
    wrong = MemoryScope(name="x", members=("ann@example.com/phone",))
    with pytest.raises(PolicyError, match=r"memory\.scopes\.x\.members"):
        async with remembering(tmp_path / "memory", [wrong]):
            pass


async def test_a_domain_named_like_a_reserved_folder_has_its_own_memories(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory", [TEAM]) as room:
        await room.store("k", "xyzzy", scope="team")
        await room.store("k", "xyzzy", scope="agent")
        for name in ("shared", "all", "team"):
            assert (
                await room.knowledge.get(SessionKey("assistant", ANN.parse(name)), "k") != []
            )  # of the agent
            found = await room.knowledge.recall(
                SessionKey("assistant", ANN.parse(name)), "xyzzy", 5
            )
            assert len(found) == 1
