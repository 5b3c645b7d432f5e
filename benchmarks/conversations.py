"""Measures what a turn spends on stored conversations, and that this does not depend on their
length.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio

from benchmarks.report import Line, Target
from component.config.memory import Session
from component.conversations.lines import Said
from component.conversations.sessions import Sessions
from component.memory_directory import files
from component.memory_directory.layout import Layout, SessionKey
from component.memory_directory.texts import Texts
from component.personas.workspace import Workspace
from xep.jid import JID

LONG, SHORT, SUMMARY_AFTER, KNOWN = 100_000, 100, 50, 10_000
LINE = (
    b'{"type":"message","role":"user","content":"'
    + b"word " * 20
    + b'","ts":"2099-01-01T00:00:00Z"}\n'
)
SUMMARY = b'{"type":"summary","content":"They spoke of words.","kept":4}\n'
SAID = Said(role="assistant", content="word " * 20, turn="t", ts="2099-01-01T00:00:00Z")
ALICE = SessionKey("assistant", JID("alice", "example.com"))
MICRO = 1e6


def measure(runs: int) -> Iterator[Line]:
    """Yield the microseconds of each operation, and of the same on a short file or with
    bare calls.
    """
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as name:
            root = files.open_root(Path(name) / "memory")
            for what, value in anyio.run(_run, root, backend="trio").items():
                found.setdefault(what, []).append(value)
    with tempfile.TemporaryDirectory() as name:
        left = anyio.run(_memory, files.open_root(Path(name) / "memory"), backend="trio")
    yield Line(
        f"end of {LONG:,} lines, not known / of {SHORT} lines",
        "µs",
        found["long"],
        found["short"],
        Target(2, "at most"),
    )
    yield Line("end of a conversation, known", "µs", found["known"])
    yield Line("a line added / bare open, write, close", "µs", found["append"], found["bare"])
    yield Line("the same on the disk / and fdatasync", "µs", found["sync"], found["bare sync"])
    yield Line("workspace, unchanged", "µs", found["workspace"])
    yield Line(
        f"memory of each of {KNOWN:,} known conversations",
        "bytes",
        [left],
        (),
        Target(4096, "at most", "ours"),
    )


async def _run(root: Path) -> dict[str, float]:
    layout = Layout(root)
    sessions = Sessions(layout, Session())
    texts = Texts(root)
    workspace = Workspace(layout, texts)
    path = layout.folder(ALICE) / "history.jsonl"
    path.parent.mkdir()
    for name in ("identity.md", "personality.md", "instructions.md"):
        (root / name).write_text("word " * 100)
    (path.parent / "user.md").write_text("word " * 20)

    async def cold() -> None:
        await Sessions(layout, Session()).read(ALICE)

    found = {}
    for what, lines in (("short", SHORT), ("long", LONG)):
        path.write_bytes(LINE * (lines - SUMMARY_AFTER) + SUMMARY + LINE * SUMMARY_AFTER)
        found[what] = await _fastest(cold, 20)
    found["known"] = await _fastest(lambda: sessions.read(ALICE), 200)
    found["append"] = await _fastest(lambda: sessions.append(ALICE, [SAID], sync=False), 200)
    found["sync"] = await _fastest(lambda: sessions.append(ALICE, [SAID], sync=True), 20)
    found["workspace"] = await _fastest(lambda: workspace.read(ALICE), 200)
    found["bare"] = await _fastest(lambda: _bare(path, sync=False), 200)
    found["bare sync"] = await _fastest(lambda: _bare(path, sync=True), 20)
    return found


async def _bare(path: Path, *, sync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, LINE)
    if sync:
        os.fdatasync(descriptor)
    os.close(descriptor)


async def _fastest(work: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the microseconds of the fastest tenth, because the machine does other things too."""
    await work()
    took = []
    for _ in range(times):
        start = time.perf_counter()
        await work()
        took.append(time.perf_counter() - start)
    took.sort()
    return took[len(took) // 10] * MICRO


async def _memory(root: Path) -> float:
    """Return the bytes that each conversation occupies after many have been read."""
    layout = Layout(root)
    sessions, workspace = Sessions(layout, Session()), Workspace(layout, Texts(root))
    keys = [SessionKey("assistant", JID(f"user{n}", "example.com")) for n in range(KNOWN)]
    for key in keys:
        path = layout.folder(key) / "history.jsonl"
        path.parent.mkdir()
        path.write_bytes(LINE * 20)
    gc.collect()
    tracemalloc.start()
    for key in keys:
        await sessions.read(key)
        await workspace.read(key)
    gc.collect()
    left, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return left / KNOWN
