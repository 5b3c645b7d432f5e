"""A private memory never reaches another principal, in any order of operations."""

import tempfile
from pathlib import Path

from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from component.config.memory import MemoryScope
from component.memory.index_database import FILE_NAME
from component.memory.index_search import Search
from component.memory.knowledge import KnowledgeError, Memo
from component.memory_directory.layout import SessionKey
from tests.component.memory.remembering import remembering
from xep.jid import JID

WHO = [JID.parse(name) for name in ("ann@a.example", "bob@a.example", "ann@b.example", "a.example")]
AGENTS = ["assistant", "researcher", "researcher/1", "assistant/1"]
SCOPES = [
    MemoryScope(name="home", members=("a.example",), writers=("ann@a.example",)),
    MemoryScope(name="club", members=("bob@a.example", "ann@b.example")),
]
NAMES = ["private", "agent", "home", "club", "nowhere"]
KEYS = ["k", "key two", "17_k", "Schlüssel"]


def sees(scope: str, agent: str, who: JID) -> bool:
    if scope == "private":
        return True
    if "/" in agent or scope == "nowhere":
        return False
    if scope == "home":
        return who.domain == "a.example"
    return scope == "agent" or str(who) in {"bob@a.example", "ann@b.example"}


def writes(scope: str, agent: str, who: JID) -> bool:
    return sees(scope, agent, who) and (scope != "home" or str(who) == "ann@a.example")


def place(scope: str, agent: str, who: JID) -> tuple[str, ...]:
    """The place that two principals with the same memories have in common."""
    return {
        "private": (scope, agent, str(who)),
        "agent": (scope, agent),
    }.get(scope, (scope,))


class Apart(RuleBasedStateMachine):
    """Each body has a unique mark, so that its origin is known."""

    backend = "asyncio"
    root: Path

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory(dir=self.root)
        self._portal_context = start_blocking_portal(self.backend)
        self.portal: BlockingPortal = self._portal_context.__enter__()
        self._room_context = self.portal.wrap_async_context_manager(
            remembering(Path(self._directory.name) / "memory", SCOPES)
        )
        self.room = self._room_context.__enter__()
        self.kept: dict[tuple[str, ...], dict[str, tuple[str, JID]]] = {}
        self.marks = 0

    def teardown(self) -> None:
        self._room_context.__exit__(None, None, None)
        self._portal_context.__exit__(None, None, None)
        self._directory.cleanup()

    @rule(
        agent=st.sampled_from(AGENTS),
        who=st.sampled_from(WHO),
        scope=st.sampled_from(NAMES),
        key=st.sampled_from(KEYS),
    )
    def store(self, agent: str, who: JID, scope: str, key: str) -> None:
        self.marks += 1
        body = f"mark{self.marks}mark common words"
        memo = Memo(key, body, title="common", tags=("tag",))
        try:
            self.portal.call(self.room.knowledge.store, SessionKey(agent, who), memo, scope)
        except KnowledgeError:
            assert not writes(scope, agent, who)
            return
        assert writes(scope, agent, who)
        there = self.kept.setdefault(place(scope, agent, who), {})
        creator = there[key][1] if key in there else who
        there[key] = (body, creator)

    @rule(
        agent=st.sampled_from(AGENTS),
        who=st.sampled_from(WHO),
        scope=st.sampled_from(NAMES),
        key=st.sampled_from(KEYS),
    )
    def forget(self, agent: str, who: JID, scope: str, key: str) -> None:
        there = self.kept.get(place(scope, agent, who), {}) if sees(scope, agent, who) else {}
        try:
            gone = self.portal.call(self.room.knowledge.forget, SessionKey(agent, who), key, scope)
        except KnowledgeError:
            mine = key in there and there[key][1] == who
            assert not (mine and writes(scope, agent, who))
            return
        assert gone == (key in there)
        there.pop(key, None)

    @rule(agent=st.sampled_from(AGENTS), who=st.sampled_from(WHO))
    def erase(self, agent: str, who: JID) -> None:
        count = self.portal.call(self.room.knowledge.erase, SessionKey(agent, who))
        assert count == len(self.kept.pop(place("private", agent, who), {}))

    @rule(agent=st.sampled_from(AGENTS), who=st.sampled_from(WHO), key=st.sampled_from(KEYS))
    def edit_by_hand(self, agent: str, who: JID, key: str) -> None:
        """Remove one line from a private file, as an editor does."""
        there = self.kept.get(place("private", agent, who), {})
        if key not in there:
            return
        found = self.room.knowledge._sharing.place("private", SessionKey(agent, who))
        assert found is not None
        lines = found.file.read_text().splitlines(keepends=True)
        mark = f'"key":"{key}"'
        found.file.write_text("".join(line for line in lines if mark not in line))
        del there[key]

    @rule()
    def lose_the_index(self) -> None:
        async def lose() -> None:
            database = self.room.index.database
            database.opened.damaged = True
            database.renew()

        self.portal.call(lose)
        assert (self.room.root / FILE_NAME).exists()

    @rule(
        agent=st.sampled_from(AGENTS),
        who=st.sampled_from(WHO),
        words=st.sampled_from(["common", "mark", "tag", "key two", "schlüssel", "17_k"]),
        mark=st.integers(1, 30),
    )
    def look(self, agent: str, who: JID, words: str, mark: int) -> None:
        mine = self._visible(agent, who)
        know = self.room.knowledge
        text = f"{words} mark{mark}mark"
        recalled = self.portal.call(know.recall, SessionKey(agent, who), text, 50)
        assert {one.item.body for one in recalled} <= mine
        exact = {body for body in mine if f"mark{mark}mark" in body}
        assert exact <= {one.item.body for one in recalled}
        searched = self.portal.call(
            know.search, SessionKey(agent, who), Search(text, most=50, common=True)
        )
        assert {one.item.body for one in searched} <= mine
        for key in KEYS:
            got = self.portal.call(know.get, SessionKey(agent, who), key)
            assert {one.item.body for one in got} == self._visible(agent, who, key)

    @invariant()
    def everybody_lists_what_they_may_and_nothing_else(self) -> None:
        agent, who = AGENTS[self.marks % len(AGENTS)], WHO[self.marks // 4 % len(WHO)]
        search = Search("", tags=("tag",), most=50, common=True)
        listed = self.portal.call(self.room.knowledge.search, SessionKey(agent, who), search)
        assert {one.item.body for one in listed} == self._visible(agent, who)

    def _visible(self, agent: str, who: JID, key: str | None = None) -> set[str]:
        return {
            body
            for scope in NAMES
            if sees(scope, agent, who)
            for each, (body, _) in self.kept.get(place(scope, agent, who), {}).items()
            if key is None or key == each
        }


def test_no_principal_finds_memories_that_it_may_not_read(tmp_path: Path) -> None:
    class Here(Apart):
        root = tmp_path

    run_state_machine_as_test(
        Here, settings=settings(max_examples=max(6, settings().max_examples // 8))
    )
