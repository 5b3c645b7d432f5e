"""Facts are merged with known ones, and edits of the person take precedence."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.config.memory import Session
from component.conversations import directories
from component.conversations.facts import (
    HEADING,
    Facts,
    Message,
    ProposedFact,
    merge_fact,
    similarity,
)
from component.conversations.lines import Said
from component.conversations.sessions import Sessions
from component.memory.knowledge import Memo
from component.memory_directory.files import MemoryStoreError
from component.memory_directory.layout import Layout, SessionKey
from tests.component.memory.remembering import AGENT, ANN, Room, remembering

pytestmark = pytest.mark.anyio

KEY = SessionKey(AGENT, ANN)
AT = "2026-11-23T10:00:00.000Z"


class World:
    def __init__(self, room: Room) -> None:
        self.room = room
        layout = Layout(room.root)
        self.sessions = Sessions(layout, Session())
        self.facts = Facts(layout, room.knowledge, room.record)
        self.said = 0

    @property
    def user(self) -> Path:
        return self.room.root / str(ANN) / "user.md"

    async def says(self, text: str, **more: object) -> Message:
        self.said += 1
        at = f"2026-11-23T10:{self.said:02}:00.000Z"
        fields = {"role": "user", "taint": "person", **more}
        line = Said(content=text, ts=at, turn=f"t{self.said}", **fields)
        await self.sessions.append(KEY, [line], sync=True)
        return Message(text, at, f"t{self.said}")

    async def keep(self, key: str, text: str, *, lasting: bool = True) -> str:
        source = await self.says(f"By the way: {text}")
        fact = ProposedFact(key, text, lasting, source)
        [result] = await self.facts.keep(KEY, [fact], source.said)
        return result


@asynccontextmanager
async def world(path: Path) -> AsyncIterator[World]:
    async with remembering(path) as room:
        yield World(room)


async def test_lasting_facts_are_lines_in_user_md(tmp_path: Path) -> None:
    async with world(tmp_path / "m") as it:
        assert await it.keep("dog", "The dog is called Bello.") == "added"
        assert await it.keep("city", "She lives in Leipzig.") == "added"
        assert it.user.read_text() == (
            f"{HEADING}\n\n- The dog is called Bello. (2026-11-23)\n"
            "- She lives in Leipzig. (2026-11-23)\n"
        )
        assert [one.key for one in await it.facts.known(KEY)] == ["dog", "city"]


async def test_text_of_the_person_in_user_md_stays_unchanged(tmp_path: Path) -> None:
    async with world(tmp_path / "m") as it:
        await it.says("hello")
        it.user.write_text(f"Ann, 40\n\n{HEADING}\n\n- Likes tea\n\n# More\nend\n")
        assert await it.keep("dog", "The dog is called Bello.") == "added"
        assert it.user.read_text() == (
            f"Ann, 40\n\n{HEADING}\n\n- Likes tea\n- The dog is called Bello. (2026-11-23)\n\n"
            "# More\nend\n"
        )


async def test_context_md_is_used_if_it_exists_and_other_encodings_are_refused(
    tmp_path: Path,
) -> None:
    async with world(tmp_path / "m") as it:
        await it.says("hello")
        older = it.user.with_name("context.md")
        older.write_bytes(b"Ann, 40\r\n- Likes tea\r\n")
        assert await it.keep("dog", "The dog is called Bello.") == "added"
        assert older.read_bytes().startswith(b"Ann, 40\r\n- Likes tea\r\n")
        assert b"Bello" in older.read_bytes()
        assert not it.user.exists()
        it.user.write_bytes("Größe".encode("cp1252"))
        with pytest.raises(MemoryStoreError, match="not UTF-8"):
            await it.keep("city", "She lives in Leipzig.")
        assert it.user.read_bytes() == "Größe".encode("cp1252")


async def test_other_facts_are_memories_with_their_versions(tmp_path: Path) -> None:
    async with world(tmp_path / "m") as it:
        assert await it.keep("flight", "Flies to Rome on 3 May.", lasting=False) == "added"
        assert await it.keep("flight", "Flies to Rome on 5 May.", lasting=False) == "updated"
        assert await it.room.get("flight") == "Flies to Rome on 5 May."
        [found] = await it.room.knowledge.get(SessionKey(AGENT, ANN), "flight")
        assert (found.item.version, found.item.tags, found.taint) == (2, ("learned",), None)
        assert not it.user.exists()
        assert [one.key for one in await it.facts.known(KEY)] == ["flight"]


async def test_a_text_by_an_untrusted_author_is_not_a_known_fact(tmp_path: Path) -> None:
    async with world(tmp_path / "m") as it:
        await it.keep("flight", "The flight leaves at 8:12.", lasting=False)
        for taint in ("web", "peer", "file"):
            memo = Memo(
                f"bank {taint}", "Her bank is evil.example.", tags=("learned",), taint=taint
            )
            await it.room.knowledge.store(SessionKey(AGENT, ANN), memo)
        assert [one.key for one in await it.facts.known(KEY)] == ["flight"]


async def test_the_source_of_each_fact_is_stored(tmp_path: Path) -> None:
    async with world(tmp_path / "m") as it:
        await it.keep("dog", "The dog is called Bello.")
        lines = (it.user.parent / directories.FACTS).read_bytes().splitlines()
        kept, read = map(msgspec.json.decode, lines)
        assert kept == {
            "type": "fact",
            "key": "dog",
            "text": "The dog is called Bello.",
            "file": "user.md",
            "said": "2026-11-23T10:01:00.000Z",
            "turn": "t1",
            "quote": "By the way: The dog is called Bello.",
        }
        assert read == {"type": "read", "until": "2026-11-23T10:01:00.000Z"}
        event = it.room.record.events[-1]
        assert (event.kind, event.subject, event.trace) == ("memory", "dog", "t1")


async def test_known_facts_are_not_written_again_and_changed_ones_replace_them(
    tmp_path: Path,
) -> None:
    async with world(tmp_path / "m") as it:
        await it.keep("dog", "The dog is called Bello.")
        assert await it.keep("pet", "The dog is called Bello") == "known"
        assert await it.keep("dog", "The dog is called Rex.") == "updated"
        assert await it.keep("dogs_name", "The new dog is called Rex now.") == "updated"
        assert it.user.read_text().count("- ") == 1
        assert "The new dog is called Rex now." in it.user.read_text()


async def test_facts_that_contradict_edits_are_stored_beside_them(tmp_path: Path) -> None:
    async with world(tmp_path / "m") as it:
        await it.keep("dog", "The dog is called Bello and likes cheese.")
        it.user.write_text(it.user.read_text().replace("Bello", "Bellino"))
        assert await it.keep("dog", "The dog is called Rex and likes cheese.") == "beside"
        text = it.user.read_text()
        assert "Bellino" in text
        assert "Rex" in text
        await it.keep("flight", "Flies on 3 May", lasting=False)
        await it.room.store("flight", "Flies on 4 May, corrected by hand")
        assert await it.keep("flight", "Flies on 5 May", lasting=False) == "beside"
        assert await it.room.get("flight") == "Flies on 4 May, corrected by hand"
        assert await it.room.get("flight (learned)") == "Flies on 5 May"


async def test_deleted_facts_are_not_written_again(tmp_path: Path) -> None:
    async with world(tmp_path / "m") as it:
        await it.keep("dog", "The dog is called Bello.")
        it.user.write_text("")
        assert await it.keep("dog", "The dog is called Bello.") == "forgotten"
        assert it.user.read_text() == ""
        await it.keep("flight", "Flies on 3 May", lasting=False)
        await it.room.knowledge.forget(SessionKey(AGENT, ANN), "flight")
        assert await it.keep("flight", "Flies on 3 May", lasting=False) == "forgotten"
        assert await it.room.get("flight") is None


async def test_only_new_messages_of_the_person_are_read(tmp_path: Path) -> None:
    async with world(tmp_path / "m") as it:
        assert await it.facts.messages(KEY) == []
        mine = await it.says("I moved to Leipzig")
        for taint in ("web", "peer", "file", None):
            await it.says("I am somebody else", taint=taint)
        await it.says("I am the agent", role="assistant")
        await it.says("by the operator", operator="operator")
        assert await it.facts.messages(KEY) == [mine]
        await it.facts.keep(KEY, [], mine.said)
        assert await it.facts.messages(KEY) == []
        later = await it.says("and to Halle")
        await it.sessions.archive(KEY)
        assert await it.facts.messages(KEY) == [later], "read after /new as well"


async def test_facts_from_deleted_messages_are_refused(tmp_path: Path) -> None:
    async with world(tmp_path / "m") as it:
        source = await it.says("The dog is called Bello")
        await it.keep("city", "She lives in Leipzig.")
        await it.sessions.forget(KEY)
        fact = ProposedFact("dog", "The dog is called Bello", True, source)
        assert await it.facts.keep(KEY, [fact], source.said) == ["refused"]
        assert list(it.user.parent.glob("*")) == []


_texts = st.text(alphabet="abc dog é\n-#(", max_size=60)


@given(_texts, _texts.filter(str.strip))
def test_merging_keeps_all_lines_that_were_not_learned(text: str, said: str) -> None:
    fact = ProposedFact("k", said, True, Message(said, AT, "t"))
    result, after = merge_fact(text, fact, {})
    assert result in {"added", "beside"}
    left = iter(after.split("\n"))
    assert all(line in left for line in text.removesuffix("\n").split("\n") if text), (
        "in their order"
    )
    assert similarity(said, said) == 1.0
