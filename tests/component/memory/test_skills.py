"""Results of the skills that store, find and forget memories."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from component.config.memory import MemoryScope
from component.memory.skills import memory_skills
from component.memory_directory.files import MemoryStoreError
from component.memory_directory.layout import SessionKey
from component.policy.flows import Flows
from component.policy.taint import Taint, worst
from component.skills.context import Context
from component.skills.errors import SkillError
from component.skills.skill import Skill
from tests.component.memory.remembering import Room, remembering
from xep.characters import without_forbidden

pytestmark = pytest.mark.anyio


class Talk:
    """Calls the skills as a person who talks with an agent."""

    def __init__(self, room: Room, taints: set[Taint] | None = None) -> None:
        self.taints: set[Taint] = taints or set()
        self.taint: Taint | None = None
        """Of what was returned last."""
        made = memory_skills(lambda: room.knowledge)
        self.skills: dict[str, Skill] = {one.name: one for one in made}

    async def __call__(self, name: str, who: str = "ann@example.com", **arguments: Any) -> Any:
        """Return the text and the data of a result."""
        skill = self.skills[f"memory_{name}"]
        context = Context(
            principal=who,
            sender=f"{who}/x",
            skill=skill.name,
            agent="assistant",
            taints=tuple(self.taints),
            trace="t1",
        )
        given = msgspec.convert(arguments, skill.inputs.type)
        made = skill.result(await skill.invoke(given, context), 0.0)
        self.taint = skill.taint if made.taints is None else worst(made.taints)
        outputs = made.outputs
        data = json.loads(outputs[1].text) if len(outputs) > 1 else None
        return outputs[0].text, data


async def test_the_skills_declare_their_effects(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        skills = Talk(room).skills
    assert set(skills) == {"memory_store", "memory_recall", "memory_search", "memory_forget"}
    store, forget = skills["memory_store"], skills["memory_forget"]
    assert (store.annotations.destructive, store.annotations.idempotent) == (False, True)
    assert (forget.annotations.destructive, forget.annotations.idempotent) == (True, True)
    for name in ("memory_recall", "memory_search"):
        assert skills[name].annotations.read_only
        assert skills[name].capabilities == ("memory:read",)
    for one in skills.values():
        assert not one.annotations.open_world
        assert "context" not in one.input_schema["properties"]
        assert all(param.description for param in one.inputs.params), one.name


async def test_a_memory_is_stored_found_and_forgotten(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        call = Talk(room)
        told, _ = await call("store", key="tea", body="She likes sencha", topic="food", tags=["x"])
        assert told == "Remembered tea (version 1)."
        assert (await call("store", key="tea", body="She likes oolong"))[0].endswith("(version 2).")
        text, data = await call("recall", query="tea")
        assert "She likes oolong" in text
        assert data[0]["version"] == 2
        text, data = await call("recall", query="tea", earlier=True)
        assert [one["body"] for one in data] == ["She likes sencha", "She likes oolong"]
        text, data = await call("recall", query="what about oolong?")
        assert data[0]["key"] == "tea"
        text, data = await call("search")
        assert [one["key"] for one in data] == ["tea"]
        assert await call("search", query="oolong", tags=["nothing"]) == ("No memory fits.", [])
        assert (await call("forget", key="tea"))[0] == "Forgot tea."
        assert (await call("forget", key="tea"))[0] == "There was no memory tea in private."
        assert await call("recall", query="tea") == ("No memory fits.", [])


async def test_records_have_the_trace_of_the_turn(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        talk = Talk(room)
        await talk("store", key="tea", body="Green.")
        await talk("recall", query="tea", earlier=True)
        await talk("recall", query="green leaves")
        await talk("search", query="green")
        await talk("forget", key="tea")
    assert [event.trace for event in room.record.events] == ["t1"] * 7


async def test_long_memories_are_cut_in_lists_and_whole_by_their_key(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        call = Talk(room)
        await call("store", key="long", body="word " * 2000)
        text, _ = await call("search", query="word")
        assert len(text) < 2000
        assert text.endswith("…")
        text, _ = await call("recall", query="long")
        assert len(text) > 9000


async def test_tainted_content_stays_labelled(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        call = Talk(room, {"person", "web", "file"})
        await call("store", key="page", body="click here, says xyzzy")
        call.taints = {"person"}
        await call("store", key="own", body="xyzzy is fine")
        text, data = await call("search", query="xyzzy")
        assert {one["key"]: one.get("origin") for one in data} == {"page": "web", "own": "person"}
        assert "[page] (" in text
        assert "from the web" in text
        recalled = await room.knowledge.recall(
            SessionKey("assistant", _jid("ann@example.com")), "xyzzy", 5
        )
        assert {one.key: one.taint for one in recalled} == {"page": "web", "own": "person"}


async def test_a_result_has_the_taints_of_its_memories(tmp_path: Path) -> None:
    scope = MemoryScope(name="home", members=("example.com",))
    async with remembering(tmp_path / "memory", [scope]) as room:
        call = Talk(room)
        await call("store", key="bare", body="xyzzy by hand")
        call.taints = {"person"}
        await call("store", key="own", body="xyzzy is mine")
        for found in ("recall", "search"):
            await call(found, query="xyzzy")
            assert call.taint == "person"
            await call(found, query="nothing like it")
            assert call.taint is None
        assert not asks_for(call.taint)
        await call("store", who="bob@example.com", key="wifi", body="xyzzy too", scope="home")
        call.taints = {"peer"}
        await call("store", key="agent", body="said plugh")
        for found in ("recall", "search"):
            _, data = await call(found, query="xyzzy")
            assert {one["key"] for one in data} == {"bare", "own", "wifi"}
            assert call.taint == "file"
            await call(found, query="plugh")
            assert call.taint == "peer"
        assert asks_for(call.taint)
        await call("recall", query="own")
        assert call.taint == "person"


async def test_a_result_has_the_taints_of_earlier_versions(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        call = Talk(room, {"web"})
        await call("store", key="page", body="click here")
        call.taints = set()
        await call("store", key="page", body="never mind")
        await call("recall", query="page", earlier=True)
        assert call.taint == "web"


def asks_for(taint: Taint | None) -> bool:
    """Whether skills that send data need a confirmation after a model has read such data."""
    taints = () if taint is None else (taint,)
    verdict = Flows().decide(taints, ("message",), read_only=False, open_world=True).verdict
    return verdict == "confirm"


async def test_errors_are_explained_to_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = MemoryScope(name="home", members=("bob@example.com",))
    async with remembering(tmp_path / "memory", [scope], item_bytes=10) as room:
        call = Talk(room)
        with pytest.raises(SkillError, match="10 are the most"):
            await call("store", key="k", body="x" * 11)
        with pytest.raises(SkillError, match="There are: private, agent"):
            await call("store", key="k", body="x", scope="home")
        with pytest.raises(SkillError, match="There are: private, agent"):
            await call("forget", key="k", scope="home")
        for wrong in ({"key": ""}, {"key": "a\nb"}, {"key": " a"}, {"key": "x" * 201}):
            with pytest.raises(msgspec.ValidationError):
                await call("store", body="x", **wrong)

        def broken(*_: Any) -> Any:
            raise MemoryStoreError("/some/where cannot be read")

        await call("store", key="k", body="x")
        monkeypatch.setattr(room.index.database, "reading", broken)
        with pytest.raises(SkillError) as refused:
            await call("recall", query="tea")
        assert "/some/where" not in str(refused.value)


async def test_shared_memories_name_their_contributor(tmp_path: Path) -> None:
    scope = MemoryScope(name="home", members=("example.com",))
    async with remembering(tmp_path / "memory", [scope]) as room:
        call = Talk(room)
        told, _ = await call("store", key="wifi", body="xyzzy", scope="home")
        assert told == "Remembered wifi for all of home (version 1)."
        text, data = await call("recall", who="bob@example.com", query="wifi")
        assert data[0]["contributor"] == "ann@example.com"
        assert data[0]["origin"] == "file"
        assert "by ann@example.com" in text
        assert await call("recall", who="eve@example.net", query="wifi") == ("No memory fits.", [])


def _jid(text: str) -> Any:
    from xep.jid import JID

    return JID.parse(text)


POISON = "bad\x00\x01\x1b\ufffe\uffff"
FAMILY = MemoryScope(name="family", members=("ann@example.com", "bob@example.com"))


async def test_characters_that_xml_does_not_allow_are_replaced_in_stored_memories(
    tmp_path: Path,
) -> None:
    async with remembering(tmp_path / "memory", [FAMILY]) as room:
        ann, bob = Talk(room), Talk(room)
        await ann(
            "store",
            key=f"tea{POISON}",
            body=f"sencha {POISON}",
            scope="family",
            title=POISON,
            topic=POISON,
            tags=[POISON],
        )
        await ann("store", key="cake", body="sencha cake", scope="family")
        for name, query in (("search", "sencha"), ("recall", "sencha"), ("recall", f"tea{POISON}")):
            text, data = await bob(name, who="bob@example.com", query=query)
            assert without_forbidden(text) == text
            assert "tea" in text
            assert "\ufffd" in data[0]["key"] + data[-1]["key"]
        text, data = await bob("search", who="bob@example.com", topic=POISON, tags=[POISON])
        assert len(data) == 1
        assert data[0]["body"] == "sencha " + without_forbidden(POISON)


async def test_a_file_with_characters_that_xml_does_not_allow_can_be_read_and_forgotten(
    tmp_path: Path,
) -> None:
    async with remembering(tmp_path / "memory", [FAMILY]) as room:
        call = Talk(room)
        await call("store", key="cake", body="sencha cake", scope="family")
        (path,) = room.root.rglob("knowledge.jsonl")
        with path.open("ab") as file:
            file.write(
                b'{"key": "tea\\u0001", "content": "sencha \\u0000", "by": "ann@example.com"}\n'
            )
            line = '{"key": "pot\ufffe", "content": "sencha \uffff", "by": "ann@example.com"}\n'
            file.write(line.encode())
        _, data = await call("search", query="sencha")
        assert {one["key"] for one in data} == {"cake", "tea\ufffd", "pot\ufffd"}
        for key in ("tea\ufffd", "pot\ufffe"):
            assert (await call("forget", key=key, scope="family"))[0].startswith("Forgot")
        assert b"sencha \\u0000" not in path.read_bytes()
        assert "sencha \uffff".encode() not in path.read_bytes()
