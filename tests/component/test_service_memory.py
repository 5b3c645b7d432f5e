"""What the service does about its memory by itself: sub-agents that ended long ago are removed."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from component.agent import turns
from component.agent.protocol import Incoming
from component.memory.index_search import Search
from component.memory.knowledge import Memo
from component.memory.lines import Said, SessionKey
from component.service import Service
from component.service.remembering import Memories, keep, remembering, remove_sub_agents
from component.settings import Server, Settings
from component.settings import Storage as Where
from component.settings.memory import Memory, Session
from component.storage import Storage
from tests.component.audit.book import Book
from tests.waiting import eventually
from xep.jid import JID

pytestmark = pytest.mark.anyio

ANN, BOB = JID.parse("ann@example.com"), JID.parse("bob@example.com")
BELOW = "assistant/helper-3f9a21bc"
DAY = 86400.0
EARLY = 4_000_000_000.0  # later than any file of these tests


class Kept:
    """A memory with a sub-agent in it, which said and remembered something for Ann."""

    def __init__(self, path: Path, memories: Memories, book: Book) -> None:
        self.memories = memories
        self.book = book
        self.folder = path / "memory" / "_sub" / "helper-3f9a21bc"

    async def fill(self) -> None:
        said = Said(role="user", content="Count them.")
        await self.memories.sessions.append(SessionKey(BELOW, ANN), [said], sync=False)
        await self.memories.knowledge.store(BELOW, ANN, Memo("count", "there are seven"))

    async def gone(self) -> None:
        async def is_gone() -> bool:
            return not self.folder.exists() and not await self.indexed()

        await eventually(is_gone)

    async def indexed(self) -> list[str]:
        # By what the index has, as a search would look at the file first.
        index = self.memories.knowledge._index
        return await anyio.to_thread.run_sync(index.names)


@asynccontextmanager
async def kept(path: Path, days: int = 7) -> AsyncIterator[Kept]:
    settings = Settings(
        server=Server(component_domain="agent.example", component_secret="s"),  # type: ignore[arg-type]
        memory=Memory(path=path / "memory"),
        session=Session(sub_agents_keep_days=days),
    )
    book = Book()
    async with remembering(settings, book) as memories:
        yield Kept(path, memories, book)


async def asked(storage: Storage, who: JID, agent: str = "assistant") -> str:
    """A message that is not answered yet; its id."""
    id_ = f"{agent} {who}"
    message = Incoming(id=id_, agent=agent, principal=who, requester=who, target=who, body="Count.")
    key = SessionKey(agent, who)
    await storage.write(partial(turns.insert, home="here", key=key, incoming=message))
    return id_


async def test_one_that_ended_goes_with_its_memories(tmp_path: Path, storage: Storage) -> None:
    async with kept(tmp_path) as world:
        await world.fill()
        assert await world.indexed() == ["_sub/helper-3f9a21bc/ann@example.com"]
        mine = await world.memories.knowledge.store("assistant", ANN, Memo("own", "there are two"))
        await asked(storage, BOB)
        await asked(storage, ANN, "reader")
        await remove_sub_agents(world.memories, storage, "here", EARLY)
        assert not world.folder.exists()
        assert await world.indexed() == ["ann@example.com"]
        found = await world.memories.knowledge.search("assistant", ANN, Search("two", most=5))
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
    await storage.write(partial(turns.delete, turns=[turn]))
    async with kept(tmp_path) as world:
        await remove_sub_agents(world.memories, storage, "elsewhere", EARLY)
        assert not world.folder.exists()


async def test_one_is_kept_for_some_days(tmp_path: Path, storage: Storage) -> None:
    async with kept(tmp_path, days=3) as world:
        await world.fill()
        last = max(path.stat().st_mtime for path in world.folder.rglob("*.jsonl"))
        await remove_sub_agents(world.memories, storage, "here", last + 3 * DAY)
        assert world.folder.exists()
        await remove_sub_agents(world.memories, storage, "here", last + 3 * DAY + 1)
        assert not world.folder.exists()


async def test_it_is_done_by_itself_again_and_again(tmp_path: Path, storage: Storage) -> None:
    async with kept(tmp_path) as world, anyio.create_task_group() as group:
        now = 0.0
        work = partial(keep, every_s=0, clock=lambda: now)
        group.start_soon(work, world.memories, storage, "here")
        for _ in range(2):
            await world.fill()
            now = EARLY
            await world.gone()
            now = 0.0
        group.cancel_scope.cancel()


async def test_a_service_does_it_whether_it_has_a_model_or_not(tmp_path: Path) -> None:
    settings = Settings(
        server=Server(component_domain="agent.example", component_secret="s", port=1),  # type: ignore[arg-type]
        storage=Where(path=tmp_path / "data"),
    )
    folder = settings.memory_path / "_sub" / "helper-3f9a21bc"
    folder.mkdir(parents=True)
    os.utime(folder, (0, 0))
    service = Service(settings)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            await group.start(service.run)
            while folder.exists():
                await anyio.lowlevel.checkpoint()
            service.stop()


async def test_with_nought_days_they_stay_until_they_are_forgotten(
    tmp_path: Path, storage: Storage
) -> None:
    async with kept(tmp_path, days=0) as world:
        await world.fill()
        with anyio.fail_after(20):
            await keep(world.memories, storage, "here", clock=lambda: EARLY)
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

        group.start_soon(partial(keep, every_s=0, clock=clock), world.memories, storage, "here")
        await eventually(lambda: rounds >= 3)
        group.cancel_scope.cancel()
    assert "could not be removed" in "".join(capsys.readouterr())
