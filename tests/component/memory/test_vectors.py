"""Memories found by what they mean, with the real model of the `vectors` extra."""

import sys
from pathlib import Path

import pytest

from component.memory.index_search import Search
from component.memory.vectors import LocalEmbedder
from component.storage.errors import StorageError
from tests.component.memory.remembering import AGENT, ANN, BOB, Room, remembering

pytestmark = pytest.mark.anyio

MEMORIES = {
    "dentist": "Her dentist appointment is on Tuesday at nine",
    "deploy": "The deploy key for production lives in the vault",
    "food": "Prefers vegetarian meals, no mushrooms",
    "tyres": "The car needs new tyres before winter",
}
QUESTIONS = {
    "when do I see the doctor for my teeth?": "dentist",
    "vehicle maintenance": "tyres",
    "ideas for dinner, something to eat and cook": "food",
}


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder()


async def fill(room: Room) -> None:
    for key, body in MEMORIES.items():
        await room.store(key, body)


async def test_meaning_finds_what_words_do_not(tmp_path: Path, embedder: LocalEmbedder) -> None:
    async with remembering(tmp_path / "words") as room:
        await fill(room)
        assert [await room.recall(question) for question in QUESTIONS] == [[], [], []]
    async with remembering(tmp_path / "both", embedder=embedder) as room:
        await fill(room)
        for question, key in QUESTIONS.items():
            assert (await room.recall(question))[:1] == [key], question
        assert (await room.recall("mushrooms"))[:1] == ["food"]


async def test_meaning_finds_nothing_of_anybody_else(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    async with remembering(tmp_path / "memory", embedder=embedder) as room:
        await fill(room)
        await room.store("own", "My bicycle is red", who=BOB)
        for question in (*QUESTIONS, *MEMORIES.values()):
            assert set(await room.recall(question, who=BOB, most=50)) <= {"own"}


async def test_what_changes_or_goes_is_not_found_as_it_was(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    async with remembering(tmp_path / "memory", embedder=embedder) as room:
        await fill(room)
        question = "when do I see the doctor for my teeth?"
        assert await room.recall(question) == ["dentist"]
        await room.store("dentist", "Cancelled: the garden party is in June")
        assert await room.recall(question) == []
        await room.store("again", "The dental checkup is on Friday, says the dentist", tags=("x",))
        assert await room.recall(question) == ["again"]
        narrowed = Search(question, tags=("y",), most=5)
        assert await room.knowledge.search(AGENT, ANN, narrowed) == []
        await room.knowledge.forget(AGENT, ANN, "again")
        assert await room.recall(question) == []
        with room.index.database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (4,)


async def test_an_index_without_vectors_is_made_anew_with_them(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    async with remembering(tmp_path / "memory") as room:
        await fill(room)
    async with remembering(tmp_path / "memory", embedder=embedder) as room:
        assert await room.recall("vehicle maintenance") == ["tyres"]


def test_without_the_extra_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(StorageError, match=r"xmpp-agent-component\[vectors\]"):
        LocalEmbedder()
