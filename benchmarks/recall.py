"""Memories: found among 10,000 and 100,000, stored, forgotten, and the index made anew from the
files. How often the right one is found is measured by `recall_quality`.

The peer of finding is FTS5 alone: the same words in one table without owners, ranked by its bm25.
"""

from __future__ import annotations

import itertools
import random
import sqlite3
import tempfile
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from time import perf_counter

import anyio

from benchmarks import recall_quality
from benchmarks.report import Line, Target
from component.audit.protocol import NoRecord
from component.config.memory import Memory
from component.memory.embedding import LocalEmbedder
from component.memory.index import Index
from component.memory.index_database import FILE_NAME
from component.memory.knowledge import Knowledge, Memo
from component.memory.knowledge_lines import MemoryLine, encode_memory, parse_memories
from component.memory.sharing import PRIVATE, Sharing
from component.memory_directory.files import open_root
from component.memory_directory.layout import Layout, SessionKey
from xep.jid import JID

_MEMORIES = 100_000
_FEWER = 10_000
_PEOPLE = 1000
_QUESTIONS = 200
_STORES = 100
_AGENT = "assistant"
_ANN = JID.parse("ann@example.com")

Figures = dict[str, list[float]]


def measure(runs: int) -> Iterator[Line]:
    """Yield the times to find, store and delete."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as directory:
        anyio.run(_one, Path(directory) / "one", runs, figures, backend="trio")
        anyio.run(_many, Path(directory) / "many", runs, figures, backend="trio")
        embedder = _RandomEmbedder()
        for path, count, name, used in (
            ("meaning", _MEMORIES, "vectors", embedder),
            ("fewer", _FEWER, "fewer", None),
            ("fewer-meaning", _FEWER, "fewer vectors", embedder),
        ):
            where = Path(directory) / path
            anyio.run(_finding, where, runs, figures, count, name, used, backend="trio")
        embedder.close()
    fast = Target(10, "at most", of="ours")
    one = f"of {_MEMORIES:,} memories of one person"
    yield Line(f"recall {one}, p50", "ms", figures["p50"], figures["peer p50"], fast)
    yield Line(f"recall {one}, p99", "ms", figures["p99"], figures["peer p99"])
    yield Line(f"recall {one}, question of 300 words, p50", "ms", figures["long"])
    many = f"of {_MEMORIES:,} memories of {_PEOPLE:,} people"
    yield Line(f"recall {many}, p50", "ms", figures["many p50"], target=fast)
    yield Line(f"recall {many}, p99", "ms", figures["many p99"])
    yield Line(f"recall with vectors {one}, p50", "ms", figures["vectors p50"])
    few = f"of {_FEWER:,} memories of one person"
    yield Line(f"recall {few}, p50", "ms", figures["fewer p50"], target=fast)
    yield Line(f"recall with vectors {few}, p50", "ms", figures["fewer vectors p50"])
    yield Line(f"store beside {one.removeprefix('of ')}, on disk, p50", "ms", figures["store"])
    yield Line(f"forget one {one}, p50", "ms", figures["forget"])
    yield Line(f"the index {one}, made anew", "s", figures["rebuild"])
    yield from recall_quality.measure()


async def _one(path: Path, runs: int, figures: Figures) -> None:
    words = _Words()
    root = open_root(path)
    sharing = Sharing(Layout(root))
    _write(sharing, _ANN, [words.entry(number) for number in range(_MEMORIES)])
    index = Index(root / FILE_NAME)
    knowledge = Knowledge(index, sharing, Memory(items_per_principal=2 * _MEMORIES), NoRecord())
    before = perf_counter()
    assert await knowledge.recall(SessionKey(_AGENT, _ANN), words.text(8), 5)
    figures["rebuild"] = [perf_counter() - before]
    peer = _peer(path, sharing)
    for run in range(runs):
        questions = [words.text(8) for _ in range(_QUESTIONS)]
        times = [await _ms(knowledge.recall(SessionKey(_AGENT, _ANN), q, 5)) for q in questions]
        _add(figures, "p50", "p99", times)
        _add(figures, "peer p50", "peer p99", [_peer_ms(peer, question) for question in questions])
        long = [words.text(300) for _ in range(20)]
        times = [await _ms(knowledge.recall(SessionKey(_AGENT, _ANN), q, 5)) for q in long]
        _add(figures, "long", "", times)
        memos = [Memo(f"new {run} {number}", words.text(25)) for number in range(_STORES)]
        times = [await _ms(knowledge.store(SessionKey(_AGENT, _ANN), m)) for m in memos]
        _add(figures, "store", "", times)
        keys = [memo.key for memo in memos[:3]]
        times = [await _ms(knowledge.forget(SessionKey(_AGENT, _ANN), k)) for k in keys]
        _add(figures, "forget", "", times)
    peer.close()
    index.close()


async def _many(path: Path, runs: int, figures: Figures) -> None:
    words = _Words()
    root = open_root(path)
    sharing = Sharing(Layout(root))
    people = [JID.parse(f"person{number}@example.com") for number in range(_PEOPLE)]
    index = Index(root / FILE_NAME)
    knowledge = Knowledge(index, sharing, Memory(), NoRecord())
    for who in people:
        _write(sharing, who, [words.entry(number) for number in range(_MEMORIES // _PEOPLE)])
        await knowledge.recall(SessionKey(_AGENT, who), words.text(8), 5)
    for _ in range(runs):
        asked = [(words.choose(people), words.text(8)) for _ in range(_QUESTIONS)]
        times = [await _ms(knowledge.recall(SessionKey(_AGENT, w), q, 5)) for w, q in asked]
        _add(figures, "many p50", "many p99", times)
    index.close()


async def _finding(
    path: Path, runs: int, figures: Figures, count: int, name: str, embedder: LocalEmbedder | None
) -> None:
    words = _Words()
    root = open_root(path)
    sharing = Sharing(Layout(root))
    _write(sharing, _ANN, [words.entry(number) for number in range(count)])
    index = Index(root / FILE_NAME, embedder)
    knowledge = Knowledge(index, sharing, Memory(items_per_principal=2 * count), NoRecord())
    await knowledge.recall(SessionKey(_AGENT, _ANN), words.text(8), 5)
    await knowledge.files.index.embedded()
    await knowledge.recall(
        SessionKey(_AGENT, _ANN), words.text(8), 5
    )  # the vectors are in memory then
    for _ in range(runs):
        questions = [words.text(8) for _ in range(_QUESTIONS)]
        times = [await _ms(knowledge.recall(SessionKey(_AGENT, _ANN), q, 5)) for q in questions]
        _add(figures, f"{name} p50", "", times)
    index.close()


class _RandomEmbedder(LocalEmbedder):
    """The vectors of questions are real; those of memories are random, which takes less time."""

    def __init__(self) -> None:
        import numpy as np

        super().__init__()
        self._random = np.random.default_rng(5)

    def passages(self, texts: Sequence[str]) -> Sequence[bytes]:
        import numpy as np

        found = self._random.standard_normal((len(texts), self._model.dimensions)) * 30
        return [row.tobytes() for row in found.clip(-127, 127).astype(np.int8)]


class _Words:
    """Texts of words with the frequencies of a language (Zipf)."""

    def __init__(self) -> None:
        self._random = random.Random(5)
        parts = ("ka", "lo", "mi", "ter", "un", "sha", "ven", "dor", "pi", "esk", "tra", "bel")
        made = {"".join(self._random.choices(parts, k=2 + n % 3)) for n in range(30_000)}
        self._words = sorted(made)
        self._random.shuffle(self._words)
        self._weights = list(itertools.accumulate(1 / (n + 3) for n in range(len(self._words))))

    def text(self, count: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=count))

    def choose(self, people: list[JID]) -> JID:
        return self._random.choice(people)

    def entry(self, number: int) -> MemoryLine:
        return MemoryLine(
            key=f"key {number}",
            body=self.text(25),
            title=self.text(3),
            tags=(self.text(1),),
            ts="2026-01-01T00:00:00Z",
            by=str(_ANN),
        )


def _write(sharing: Sharing, who: JID, entries: list[MemoryLine]) -> None:
    place = sharing.place(PRIVATE, SessionKey(_AGENT, who))
    assert place is not None
    place.folder.mkdir(parents=True)
    place.file.write_bytes(b"".join(map(encode_memory, entries)))


def _peer(path: Path, sharing: Sharing) -> sqlite3.Connection:
    place = sharing.place(PRIVATE, SessionKey(_AGENT, _ANN))
    assert place is not None
    connection = sqlite3.connect(path / "peer.db")
    connection.execute("CREATE VIRTUAL TABLE texts USING fts5 (title, key, tags, body)")

    connection.executemany(
        "INSERT INTO texts VALUES (?, ?, ?, ?)",
        (
            (item.title, item.key, " ".join(item.tags), item.body)
            for item in parse_memories(place.file.read_bytes()).items.values()
        ),
    )
    connection.commit()
    return connection


def _peer_ms(connection: sqlite3.Connection, question: str) -> float:
    query = " OR ".join(f'"{word}"' for word in question.split())
    before = perf_counter()
    connection.execute(
        "SELECT * FROM texts WHERE texts MATCH ? ORDER BY bm25(texts, 3, 2.5, 2, 1) LIMIT 5",
        (query,),
    ).fetchall()
    return (perf_counter() - before) * 1e3


async def _ms(work: Awaitable[object]) -> float:
    before = perf_counter()
    await work
    return (perf_counter() - before) * 1e3


def _add(figures: Figures, middle: str, end: str, times: list[float]) -> None:
    times.sort()
    figures.setdefault(middle, []).append(times[len(times) // 2])
    if end:
        figures.setdefault(end, []).append(times[len(times) * 99 // 100])
