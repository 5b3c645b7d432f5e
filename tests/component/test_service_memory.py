"""The service removes directories of sub-agents that ended long ago."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from component.agent import rows
from component.app.features import make_settings
from component.app.service import Service
from component.config import Server
from component.config import Storage as Where
from component.config.memory import Memory, Session
from component.conversations.lines import Said
from component.kernel.memory import Memories, open_memories, remove_sub_agents, tidy
from component.memory import embedding
from component.memory.index_search import Search
from component.memory.knowledge import Memo
from component.memory_directory.layout import SessionKey
from component.store import Storage
from component.store.database import Database
from component.tasks.protocol import AGENT_WORK
from component.tasks.request import CallerContext, Request
from tests.component.agent.world import AGENT, begun, message, over
from tests.component.audit.book import Book
from tests.waiting import eventually
from xep.jid import JID

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

ANN, BOB = JID.parse("ann@example.com"), JID.parse("bob@example.com")
BELOW = "assistant/helper-3f9a21bc"
DAY = 86400.0
EARLY = 4_000_000_000.0  # later than any file of these tests


class Kept:
    """A directory with the conversation and a memory of a sub-agent for Ann."""

    def __init__(self, path: Path, memories: Memories, book: Book) -> None:
        self.memories = memories
        self.book = book
        self.folder = path / "memory" / "_sub" / "helper-3f9a21bc"

    async def fill(self) -> None:
        said = Said(role="user", content="Count them.")
        await self.memories.sessions.append(SessionKey(BELOW, ANN), [said], sync=False)
        await self.memories.knowledge.store(
            SessionKey(BELOW, ANN), Memo("count", "there are seven")
        )

    async def gone(self) -> None:
        async def is_gone() -> bool:
            return not self.folder.exists() and not await self.indexed()

        await eventually(is_gone)

    async def indexed(self) -> list[str]:
        # By what the index has, as a search would look at the file first.
        index = self.memories.knowledge.files._index
        return await anyio.to_thread.run_sync(index.names)


@asynccontextmanager
async def kept(path: Path, days: int = 7) -> AsyncIterator[Kept]:
    settings = make_settings(
        server=Server(component_domain="agent.example", component_secret="s"),  # type: ignore[arg-type]
        memory=Memory(path=path / "memory"),
        session=Session(sub_agents_keep_days=days),
    )
    book = Book()
    async with open_memories(settings, book) as memories:
        yield Kept(path, memories, book)


async def asked(storage: Storage, who: JID, agent: str = "assistant") -> str:
    """Store an unanswered message; return its id."""
    id_ = f"{agent} {who}"
    request = message(id_, "Count.", who, agent=agent, taint=None)
    await storage.write(partial(rows.insert, home="here", request=request))
    return id_


async def test_a_sub_agent_that_ended_is_removed_with_its_memories(
    tmp_path: Path, storage: Storage
) -> None:
    async with kept(tmp_path) as world:
        await world.fill()
        assert await world.indexed() == ["_sub/helper-3f9a21bc/ann@example.com"]
        mine = await world.memories.knowledge.store(
            SessionKey("assistant", ANN), Memo("own", "there are two")
        )
        await asked(storage, BOB)
        await asked(storage, ANN, "reader")
        await remove_sub_agents(world.memories, storage, "here", EARLY)
        assert not world.folder.exists()
        assert await world.indexed() == ["ann@example.com"]
        found = await world.memories.knowledge.search(
            SessionKey("assistant", ANN), Search("two", most=5)
        )
        assert [one.item.key for one in found] == [mine.item.key]
        assert world.book.of("memory")[-2] == ("erased", "_sub/helper-3f9a21bc")


async def test_one_whose_turn_is_not_over_stays_over_restarts(
    tmp_path: Path, storage: Storage
) -> None:
    turn = await asked(storage, ANN)
    for life in range(2):
        async with kept(tmp_path) as world:
            if not life:
                await world.fill()
            await remove_sub_agents(world.memories, storage, "here", EARLY)
            assert world.folder.exists()
            assert await world.indexed() == ["_sub/helper-3f9a21bc/ann@example.com"]
    await storage.write(partial(rows.delete, turns=[turn]))
    async with kept(tmp_path) as world:
        await remove_sub_agents(world.memories, storage, "elsewhere", EARLY)
        assert not world.folder.exists()


async def test_one_that_works_for_a_task_stays_until_that_has_ended(
    tmp_path: Path, storage: Storage
) -> None:
    caller = CallerContext("assistant")
    request = Request(AGENT_WORK, ANN, ANN, AGENT, origin="child", caller_context=caller)
    text = msgspec.json.encode(request).decode()

    def work(database: Database) -> None:
        begun(database, "t1")
        change = "UPDATE tasks SET skill = ?, request = ? WHERE id = 't1'"
        database.execute(change, (AGENT_WORK, text))

    async with kept(tmp_path) as world:
        await world.fill()
        await storage.write(work)
        await remove_sub_agents(world.memories, storage, "here", EARLY)
        assert world.folder.exists()
        await storage.write(lambda database: over(database, "t1"))
        await remove_sub_agents(world.memories, storage, "here", EARLY)
        assert not world.folder.exists()


async def test_a_sub_agent_that_ended_is_kept_for_the_configured_days(
    tmp_path: Path, storage: Storage
) -> None:
    async with kept(tmp_path, days=3) as world:
        await world.fill()
        last = max(path.stat().st_mtime for path in world.folder.rglob("*.jsonl"))
        await remove_sub_agents(world.memories, storage, "here", last + 3 * DAY)
        assert world.folder.exists()
        await remove_sub_agents(world.memories, storage, "here", last + 3 * DAY + 1)
        assert not world.folder.exists()


async def test_sub_agents_that_ended_are_removed_at_intervals(
    tmp_path: Path, storage: Storage
) -> None:
    async with kept(tmp_path) as world, anyio.create_task_group() as group:
        group.start_soon(partial(tidy, every_s=0), world.memories, storage, "here")
        for _ in range(2):
            await world.fill()
            for path in world.folder.rglob("*.jsonl"):
                os.utime(path, (0, 0))
            await world.gone()
        group.cancel_scope.cancel()


async def test_a_clock_that_jumps_ahead_removes_no_memory_of_a_sub_agent(
    tmp_path: Path, storage: Storage
) -> None:
    async with kept(tmp_path) as world, anyio.create_task_group() as group:
        await world.fill()
        rounds = 0

        def clock() -> float:
            nonlocal rounds
            rounds += 1
            return EARLY

        group.start_soon(partial(tidy, every_s=0, clock=clock), world.memories, storage, "here")
        await eventually(lambda: rounds >= 3)
        group.cancel_scope.cancel()
        assert world.folder.exists()


async def test_a_service_does_it_whether_it_has_a_model_or_not(tmp_path: Path) -> None:
    settings = make_settings(
        server=Server(component_domain="agent.example", component_secret="s", port=1),  # type: ignore[arg-type]
        storage=Where(path=tmp_path / "data"),
    )
    folder = settings.memory_path / "_sub" / "helper-3f9a21bc"
    folder.mkdir(parents=True)
    os.utime(folder, (0, 0))
    service = Service(settings)
    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            await group.start(service.run)
            while folder.exists():
                await anyio.lowlevel.checkpoint()
            service.stop()


async def only_warning_of_recalling(path: Path) -> str:
    """Return the reason of the only warning when `vectors` are on and cannot be made."""
    settings = make_settings(
        server=Server(component_domain="agent.example", component_secret="s", port=1),  # type: ignore[arg-type]
        storage=Where(path=path),
        memory=Memory(vectors="local"),
    )
    with capture_logs() as lines:
        async with open_memories(settings, Book()) as memories:
            await memories.knowledge.store(
                SessionKey("assistant", ANN), Memo("dentist", "On Tuesday at nine")
            )
            found = await memories.knowledge.recall(SessionKey("assistant", ANN), "the dentist", 5)
            assert [one.key for one in found] == ["dentist"]
    (why,) = [line["why"] for line in lines if line["log_level"] == "warning"]
    assert isinstance(why, str)
    return why


async def test_without_the_extra_for_vectors_it_warns_and_finds_by_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "_version", lambda package: "")
    why = await only_warning_of_recalling(tmp_path / "data")
    assert "Install xmpp-agent-component[vectors]" in why
    assert "found by their words only" in why


async def test_a_model_that_does_not_start_leaves_the_search_by_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("raise ImportError('no engine for this processor')")
    monkeypatch.setattr(embedding, "_WORKER", worker)
    why = await only_warning_of_recalling(tmp_path / "data")
    assert "does not start" in why, "and only one line, though it was needed twice"


async def test_with_nought_days_they_stay_until_they_are_forgotten(
    tmp_path: Path, storage: Storage
) -> None:
    async with kept(tmp_path, days=0) as world:
        await world.fill()
        with anyio.fail_after(120):
            await tidy(world.memories, storage, "here", clock=lambda: EARLY)
        assert world.folder.exists()


async def test_a_directory_that_is_in_the_way_does_not_end_the_service(
    tmp_path: Path, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    async with kept(tmp_path) as world, anyio.create_task_group() as group:
        subs = tmp_path / "memory" / "_sub"
        subs.symlink_to(tmp_path)
        rounds = 0

        def clock() -> float:
            nonlocal rounds
            rounds += 1
            return EARLY

        group.start_soon(partial(tidy, every_s=0, clock=clock), world.memories, storage, "here")
        await eventually(lambda: rounds >= 3)
        group.cancel_scope.cancel()
    assert "could not be removed" in "".join(capsys.readouterr())
