"""Memories are found by meaning, with the real models of the `vectors` extra."""

import importlib.metadata
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import numpy as np
import pytest

from component.memory.embedding import MODELS, EmbeddingModel, LocalEmbedder
from component.memory.index import Index
from component.memory.index_database import FILE_NAME
from component.memory.index_search import Search
from component.memory.knowledge_lines import Item
from component.memory.vectors import Vectors
from component.memory_directory.files import FileState
from component.memory_directory.layout import SessionKey
from component.store.errors import StorageError
from tests.component.memory.remembering import AGENT, ANN, BOB, Room, remembering
from tests.profiles import THOROUGH

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


@pytest.fixture(
    scope="module",
    # The gate uses the model of this platform.
    params=[MODELS[0], *(pytest.param(model, marks=pytest.mark.thorough) for model in MODELS[1:])],
    ids=[model.package for model in MODELS],
)
def embedder(request: pytest.FixtureRequest) -> Iterator[LocalEmbedder]:
    model: EmbeddingModel = request.param
    if not installed(model):
        pytest.skip(f"{model.package} has no wheel for this platform")
    made = LocalEmbedder((model,))
    yield made
    made.close()


def installed(model: EmbeddingModel) -> bool:
    return any(one.name == model.package for one in importlib.metadata.distributions())


async def fill(room: Room) -> None:
    for key, body in MEMORIES.items():
        await room.store(key, body)


async def test_memories_are_found_by_meaning_without_common_words(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    async with remembering(tmp_path / "words") as room:
        await fill(room)
        for question, key in QUESTIONS.items():
            assert key not in await room.recall(question)
    async with remembering(tmp_path / "both", embedder=embedder) as room:
        await fill(room)
        for question, key in QUESTIONS.items():
            assert (await room.recall(question))[:1] == [key], question
        assert (await room.recall("mushrooms"))[:1] == ["food"]


async def test_meaning_finds_no_memories_of_other_people(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    async with remembering(tmp_path / "memory", embedder=embedder) as room:
        await fill(room)
        await room.store("own", "My bicycle is red", who=BOB)
        for question in (*QUESTIONS, *MEMORIES.values()):
            assert set(await room.recall(question, who=BOB, most=50)) <= {"own"}


async def test_changed_and_deleted_memories_are_not_found_by_their_old_vectors(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    async with remembering(tmp_path / "memory", embedder=embedder) as room:
        await fill(room)
        question = "when do I see the doctor for my teeth?"
        assert (await room.recall(question))[0] == "dentist"
        await room.store("dentist", "Cancelled: the garden party is in June", title="Party")
        assert "dentist" not in (await room.recall(question))[:1]
        await room.store("again", "The dental checkup is on Friday, says the dentist", tags=("x",))
        assert (await room.recall(question))[0] == "again"
        narrowed = Search(question, tags=("y",), most=5)
        assert await room.knowledge.search(SessionKey(AGENT, ANN), narrowed) == []
        await room.knowledge.forget(SessionKey(AGENT, ANN), "again")
        assert "again" not in await room.recall(question)
        with room.index.database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (4,)


async def test_an_index_without_vectors_is_rebuilt_with_them(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    async with remembering(tmp_path / "memory") as room:
        await fill(room)
    async with remembering(tmp_path / "memory", embedder=embedder) as room:
        await room.knowledge.files.index.embedded()
        assert (await room.recall("vehicle maintenance"))[0] == "tyres"


async def test_many_memories_get_their_vectors_in_the_background(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    bodies = [f"Number {n} is a note about the weather" for n in range(20)]
    async with remembering(tmp_path / "memory", embedder=embedder) as room:
        room.file().parent.mkdir()
        lines = [{"key": f"k{n}", "content": body} for n, body in enumerate(bodies)]
        lines.append({"key": "tyres", "content": MEMORIES["tyres"]})
        room.file().write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        fresh = room.knowledge.files.index
        assert "tyres" not in await room.recall("vehicle maintenance"), "words alone do not find it"
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fresh.embed)
                while "tyres" not in await room.recall("vehicle maintenance"):
                    await anyio.lowlevel.checkpoint()
                await room.store("dentist", MEMORIES["dentist"])
                assert "dentist" in await room.recall("when is somebody looking at my teeth?")
                tasks.cancel_scope.cancel()


async def test_questions_find_memories_in_other_languages(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    async with remembering(tmp_path / "memory", embedder=embedder) as room:
        await fill(room)
        assert (await room.recall("Wann muss ich zum Zahnarzt?"))[0] == "dentist"
        assert (await room.recall("¿Qué verduras no le gustan?"))[0] == "food"


async def test_the_model_starts_on_demand_and_searches_work_after_it_dies(
    tmp_path: Path,
) -> None:
    embedder = LocalEmbedder()
    async with remembering(tmp_path / "memory", embedder=embedder) as room:
        assert await room.recall("the dentist") == []
        assert embedder._process is None
        await fill(room)
        assert embedder._process is not None
        embedder._process.kill()
        assert (await room.recall("the dentist"))[:1] == ["dentist"], "found by words"
        await room.store("late", "The vault code is 4711")
        assert room.index.embed(8) is None, "it is not started again at once"
        embedder._failed_at = float("-inf")
        await room.knowledge.files.index.embedded()
        with room.index.database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (5,)
        assert "late" in await room.recall("how do I open the vault?")
    embedder.close()


def test_any_text_has_a_vector(embedder: LocalEmbedder) -> None:
    short, long = ["", "\0", "\ud800", "plain"], ["\ufdfa" * 5000]
    if THOROUGH:  # seconds each
        long += ["a" * 100_000, "👍" * 3000]
    for text in short:
        assert embedder.question(text) is not None
    for texts in (short, *([text] for text in long)):
        found = embedder.passages(texts)
        assert found is not None
        assert len(found) == len(texts)


NOT_INSTALLED = EmbeddingModel("none", "package-that-is-not-installed", "none", 8)


def test_without_the_extra_the_error_says_what_to_install() -> None:
    with pytest.raises(StorageError, match=r"xmpp-agent-component\[vectors\]"):
        LocalEmbedder((NOT_INSTALLED,))


def test_the_first_model_that_is_installed_is_used() -> None:
    there = next(model for model in MODELS if installed(model))
    embedder = LocalEmbedder((NOT_INSTALLED, there, NOT_INSTALLED))
    version = importlib.metadata.version(there.package)
    assert embedder.name == f"{there.name} {version}", "vectors of two versions are not compared"


def test_a_model_that_does_not_start_is_explained() -> None:
    # A package whose module is missing, as after an installation for another processor.
    broken = EmbeddingModel("broken", "numpy", "no_such_module", 8)
    embedder = LocalEmbedder((broken,))
    with pytest.raises(StorageError, match=r"does not start .* found by their words only"):
        embedder.check()
    embedder.close()


# Vectors, without a model.

NUMBERS = 5000 if THOROUGH else 2000


class Made:
    """Makes vectors: the number in a text rotates a random vector slightly."""

    name = "made"
    dimensions = 128

    def passages(self, texts: Sequence[str]) -> Sequence[bytes]:
        return [self._vector(int(text.rpartition(" ")[2])).tobytes() for text in texts]

    def question(self, text: str) -> Any:
        vector = self._vector(int(text.rpartition(" ")[2])).astype(np.float32)
        return vector / np.linalg.norm(vector)

    def close(self) -> None:
        pass

    def _vector(self, number: int) -> Any:
        vector = np.random.default_rng(number).standard_normal(self.dimensions)
        return np.rint(vector * 30).clip(-127, 127).astype(np.int8)


def made_index(path: Path) -> Index:
    index = Index(path / FILE_NAME, Made())
    items = {f"k{n}": Item(key=f"k{n}", body=f"memory {n}") for n in range(NUMBERS)}
    index.replace("ann", items, FileState(1, 1, 1, 1))
    while index.embed(1000):
        pass
    return index


def nearest(index: Index, vectors: Vectors, number: int) -> str | None:
    """Return the key of the memory with the vector of a number."""
    with index.database.reading() as connection:
        owner = index.owners(("ann",))["ann"]
        found = vectors.nearest(connection, owner.id, owner.items, Made().question(f"{number}"), 5)
        row = connection.execute("SELECT key FROM items WHERE id = ?", found[0][:1]).fetchone()
    return None if row is None or found[0].similarity < 0.99 else row[0]


def test_the_nearest_vector_is_found_after_changes(tmp_path: Path) -> None:
    index = made_index(tmp_path)
    vectors = Vectors()
    for number in (0, 17, NUMBERS - 1):
        assert nearest(index, vectors, number) == f"k{number}"
    for number in range(NUMBERS, NUMBERS + 5):
        index.put("ann", Item(key=f"k{number}", body=f"memory {number}"), FileState(1, 1, 1, 1))
        assert nearest(index, vectors, number) == f"k{number}"
    index.remove("ann", [f"k{n}" for n in range(1000)], FileState(1, 1, 1, 1))
    assert nearest(index, vectors, 17) is None
    assert nearest(index, vectors, 1000) == "k1000"
    assert max(matrix.used for matrix in vectors._kept.values()) <= NUMBERS - 900
    index.close()


def test_concurrent_searches_find_added_memories(tmp_path: Path) -> None:
    index = made_index(tmp_path)
    vectors = Vectors()
    wrong: list[int] = []

    def ask(numbers: range) -> None:
        wrong.extend(n for n in numbers if nearest(index, vectors, n) != f"k{n}")

    threads = [threading.Thread(target=ask, args=(range(at, 2000, 50),)) for at in range(4)]
    for thread in threads:
        thread.start()
    for number in range(NUMBERS, NUMBERS + 200):
        index.put("ann", Item(key=f"k{number}", body=f"memory {number}"), FileState(1, 1, 1, 1))
        ask(range(number, number + 1))
    for thread in threads:
        thread.join()
    assert wrong == []
    (matrix,) = vectors._kept.values()
    assert len(set(matrix.items[: matrix.used])) == matrix.used == NUMBERS + 200, "each once"
    index.close()


@pytest.mark.thorough
def test_a_vector_takes_few_bytes_of_memory(tmp_path: Path) -> None:
    index = made_index(tmp_path)
    vectors = Vectors()
    nearest(index, vectors, 1)
    each = vectors._size() / NUMBERS
    assert each <= (Made.dimensions * 9 / 8 + 12) * 1.2
    index.close()
