"""How often the right memory is among those recalled, on the texts of `recall_texts`, and how long
it takes to index documents.

The figures of the development set may be tuned on. Those of the set that is held out may not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import anyio

from benchmarks import pdfs
from benchmarks.recall_texts import Question, Text, load
from benchmarks.report import Line, Target
from component.audit.protocol import NoRecord
from component.config.memory import Memory
from component.memory.embedding import LocalEmbedder
from component.memory.index import Index
from component.memory.index_database import FILE_NAME
from component.memory.knowledge import Knowledge
from component.memory.knowledge_lines import MemoryLine, encode_memory
from component.memory.sharing import PRIVATE, Sharing
from component.memory_directory.files import open_root
from component.memory_directory.layout import Layout, SessionKey
from xep.jid import JID

_AGENT = "assistant"
_ANN = JID.parse("ann@example.com")
_PAGES = 100

Ranks = dict[Question, int]


def measure() -> Iterator[Line]:
    """Yield the recall with and without vectors, and the time to index documents."""
    memories, questions = load()
    embedder = LocalEmbedder()
    try:
        ways: tuple[tuple[str, LocalEmbedder | None, float], ...] = (
            ("words", None, 60),
            ("words and vectors", embedder, 85),
        )
        for name, used, least in ways:
            ranks, ms, seconds = anyio.run(_ranks, memories, questions, used, backend="trio")
            yield from _lines(name, ranks, least)
            yield Line(f"recall of {len(memories)} memories by {name}, p50", "ms", [ms])
            if used is not None:
                each = seconds / len(memories) * 1e3
                yield Line("one memory gets its vector, in the background", "ms", [each])
        yield Line(f"a PDF of {_PAGES} pages is read and indexed", "s", [_document()])
    finally:
        embedder.close()


def _lines(name: str, ranks: Ranks, least: float) -> Iterator[Line]:
    for part in ("development", "held out"):
        own = {one: rank for one, rank in ranks.items() if one.part == part and not one.crosses}
        target = Target(least, "at least", of="ours") if part == "held out" else None
        what = f"right memory recalled by {name}, {part}"
        yield Line(f"{what}, among the first 5", "%", [_share(own, 5)], target=target)
        yield Line(f"{what}, first", "%", [_share(own, 1)])
        for language in ("en", "de", "fr", "es"):
            some = {one: rank for one, rank in own.items() if one.language == language}
            yield Line(f"{what}, {language}, among the first 5", "%", [_share(some, 5)])
        across = {one: rank for one, rank in ranks.items() if one.part == part and one.crosses}
        yield Line(
            f"{what}, question in another language, among the first 5", "%", [_share(across, 5)]
        )


def _share(ranks: Ranks, most: int) -> float:
    return 100 * sum(rank <= most for rank in ranks.values()) / len(ranks)


async def _ranks(
    memories: list[Text], questions: list[Question], embedder: LocalEmbedder | None
) -> tuple[Ranks, float, float]:
    """The rank of the right memory for each question, the milliseconds of a search, and the seconds
    that the vectors took."""
    with tempfile.TemporaryDirectory() as directory:
        root = open_root(Path(directory))
        sharing = Sharing(Layout(root))
        place = sharing.place(PRIVATE, SessionKey(_AGENT, _ANN))
        assert place is not None
        place.folder.mkdir(parents=True)
        lines = [MemoryLine(key=one.key, body=one.body, by=str(_ANN)) for one in memories]
        place.file.write_bytes(b"".join(map(encode_memory, lines)))
        index = Index(root / FILE_NAME, embedder)
        knowledge = Knowledge(index, sharing, Memory(), NoRecord())
        await knowledge.recall(SessionKey(_AGENT, _ANN), "make the index", 5)
        before = perf_counter()
        await knowledge.files.index.embedded()
        seconds = perf_counter() - before
        ranks: Ranks = {}
        times: list[float] = []
        for question in questions:
            before = perf_counter()
            found = await knowledge.recall(SessionKey(_AGENT, _ANN), question.text, 5)
            times.append((perf_counter() - before) * 1e3)
            keys = [one.key for one in found]
            ranks[question] = 1 + (
                keys.index(question.about.key) if question.about.key in keys else len(memories)
            )
        index.close()
    times.sort()
    return ranks, times[len(times) // 2], seconds


def _document() -> float:
    memories, _ = load()
    texts = [one.body for one in memories if one.body.isascii() and "(" not in one.body]
    pages = ["\n".join(texts[at % 60 : at % 60 + 30]) for at in range(_PAGES)]

    async def read(root: Path) -> float:
        index = Index(root / FILE_NAME)
        knowledge = Knowledge(index, Sharing(Layout(root)), Memory(), NoRecord())
        before = perf_counter()
        await knowledge.documents.refresh()
        took = perf_counter() - before
        assert index.documents("knowledge")["book.pdf"].parts >= _PAGES
        index.close()
        return took

    with tempfile.TemporaryDirectory() as directory:
        root = open_root(Path(directory))
        (root / "knowledge").mkdir()
        (root / "knowledge" / "book.pdf").write_bytes(pdfs.with_pages(pages))
        return anyio.run(read, root, backend="trio")
