"""In any order of edits, deletions, comparisons and failures, nothing is lost and the person's
text is used.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.component.features.memory_nodes.world import ANNS, World, world

KEYS = ("k1", "k2", "k3")
key = st.sampled_from(KEYS)
step = st.one_of(
    st.tuples(st.just("owner edits"), key),
    st.tuples(st.just("owner deletes"), key),
    st.tuples(st.just("owner deletes silently"), key),
    st.tuples(st.just("agent stores"), key),
    st.tuples(st.just("agent stores"), key),
    st.tuples(st.just("agent forgets"), key),
    st.tuples(st.just("server goes down")),
    st.tuples(st.just("server is back")),
    st.tuples(st.just("answer is lost")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("compare")),
    st.tuples(st.just("read"), key),
)


class Play:
    """The steps, and the expected result.

    Attributes:
        owed: by key, what the owner has written (None: deleted) and the agent has not seen yet.
        own: by key, the agent's text that no later step has replaced.
    """

    def __init__(self, here: World) -> None:
        self.here = here
        self.texts = 0
        self.owed: dict[str, str | None] = {}
        self.own: dict[str, str] = {}

    async def do(self, what: str, key: str = "") -> None:
        nodes = self.here.nodes
        match what:
            case "owner edits":
                text = self._text("owner")
                nodes.edit(key, text, version=self.texts % 3)
                self._owner_acted(key, text)
            case "owner deletes" | "owner deletes silently":
                nodes.silent = what != "owner deletes"
                if key in nodes.nodes.get(ANNS, {}):
                    known = await self.here.states.load(ANNS)
                    nodes.delete(key)
                    if key in known.synced:
                        self._owner_acted(key, None)
                    else:
                        # Whether an item was deleted or never arrived cannot be known, if the
                        # answer was lost: it is published again.
                        self.owed.pop(key, None)
            case "agent stores":
                await self._look(key)
                text = self._text("agent")
                deletion_unseen = self.owed.get(key, "") is None
                await self.here.remember(key, text)
                self.own.pop(key, None)
                if not deletion_unseen:  # what was deleted is not written again (MEM-009)
                    self.own[key] = text
            case "agent forgets":
                await self._look(key)
                await self.here.forget(key)
                self.own.pop(key, None)
            case "server goes down":
                nodes.down = True
            case "server is back":
                nodes.down = False
                self.here.replica.connected()
            case "answer is lost":
                nodes.loses_answer = True
            case "restart":
                self.here.restart()
            case "compare":
                await self.here.reconcile()
            case "read":
                await self.here.get(key)
        await self._see()

    async def _look(self, key: str) -> None:
        """The agent reads before it writes, so that its text is the later one."""
        await self.here.get(key)
        await self._see()

    async def _see(self) -> None:
        there = await self.here.texts()
        known = await self.here.states.load(ANNS)
        for key, text in list(self.owed.items()):
            # The agent may have forgotten by itself what the owner has deleted.
            if there.get(key) == text and (text is not None or key not in known.synced):
                del self.owed[key]

    def _owner_acted(self, key: str, text: str | None) -> None:
        was_there = any(self.own.get(key) == said for _, said in self.here.nodes.published)
        if text is None or was_there:
            self.own.pop(key, None)
        self.owed[key] = text

    def _text(self, who: str) -> str:
        self.texts += 1
        return f"{who} {self.texts}"

    async def end(self) -> None:
        self.here.nodes.down = self.here.nodes.loses_answer = False
        for _ in range(3):
            await self.here.reconcile()
        here, there = await self.here.texts(), self.here.nodes.texts()
        assert here == there, "both are alike"
        for key, text in self.owed.items():
            assert there.get(key) == text, f"the word of the owner about {key}"
        for key, text in self.own.items():
            assert text in there.values() or self.owed.get(key, "") is None, f"{key}: {text}"
        before = len(self.here.nodes.published), len(self.here.nodes.retracted)
        self.here.restart()
        await self.here.reconcile()
        after = len(self.here.nodes.published), len(self.here.nodes.retracted)
        assert before == after, "what is alike stays as it is"


@pytest.mark.parametrize("edits_of_files", [True, False], ids=["both", "pep"])
@given(steps=st.lists(step, max_size=25))
@example(
    steps=[
        ("agent stores", "k2"),
        ("owner deletes", "k2"),
        ("server goes down",),
        ("agent forgets", "k2"),
        ("agent stores", "k2"),
    ]
)
@example(  # the agent's own deletion is not the owner's, though nobody confirmed it
    steps=[
        ("owner edits", "k1"),
        ("answer is lost",),
        ("agent forgets", "k1"),
        ("agent stores", "k1"),
    ]
)
def test_interleaved_edits_and_comparisons_lose_nothing(
    edits_of_files: bool, steps: list[Any]
) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as name:
            options = {"edits_of_files": edits_of_files, "timeout_s": 60.0}
            async with world(Path(name) / "memory", **options) as here:
                it = Play(here)
                for each in steps:
                    await it.do(*each)
                await it.end()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        patch.setattr(os, "fdatasync", lambda _descriptor: None)
        anyio.run(play, backend="asyncio")
