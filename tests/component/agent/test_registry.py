"""The states of agents: who may become what, and that it outlives the process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.agent.registry import AgentError, Agents
from component.settings.agents import AgentEntry
from component.storage import Storage
from tests.component.audit.book import Book
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

ENTRIES = [AgentEntry(name="assistant"), AgentEntry(name="researcher", description="Finds out.")]


@asynccontextmanager
async def open_agents(storage: Any, entries: Any = ENTRIES, **more: Any) -> AsyncIterator[Agents]:
    book = Book()
    agents = Agents(entries, storage, book, **more)
    await agents.load()
    async with anyio.create_task_group() as group:
        await group.start(agents.run)
        yield agents
        group.cancel_scope.cancel()


def states(agents: Agents) -> dict[str, str]:
    return {one.name: one.state for one in agents.list()}


async def test_every_agent_has_an_identity_that_stays(storage: Storage) -> None:
    async with open_agents(storage) as agents:
        assert states(agents) == {"assistant": "created", "researcher": "created"}
        first = [one.id for one in agents.list()]
        assert len(set(first)) == 2
    async with open_agents(storage, [*ENTRIES, AgentEntry(name="new")]) as agents:
        assert [one.id for one in agents.list()][:2] == first
        assert states(agents)["new"] == "created"
    async with open_agents(storage, ENTRIES[:1]) as agents:
        assert [one.id for one in agents.list()] == first[:1]


async def test_who_is_written_to_is_active_and_then_idle(storage: Storage) -> None:
    async with open_agents(storage, idle_s=0.05) as agents:
        await agents.heard("assistant")
        assert states(agents) == {"assistant": "active", "researcher": "created"}
        await eventually(lambda: states(agents)["assistant"] == "idle")
        await agents.heard("assistant")
        assert states(agents)["assistant"] == "active"
        await agents.heard("nobody")
    async with open_agents(storage) as agents:
        assert states(agents) == {"assistant": "idle", "researcher": "created"}


async def test_a_slow_disk_keeps_nobody_active(storage: Storage) -> None:
    class Slow:
        async def write(self, op: Any) -> Any:
            await anyio.sleep(0.03)  # longer than it takes to become idle
            return await storage.write(op)

    async with open_agents(Slow(), idle_s=0.001) as agents:
        await agents.heard("assistant")
        await eventually(lambda: states(agents)["assistant"] == "idle")


async def test_paused_over_a_restart_and_resumed(storage: Storage) -> None:
    async with open_agents(storage) as agents:
        await agents.pause("researcher", "boss@a.example")
        await agents.heard("researcher")
        assert agents.away("assistant") is None
    async with open_agents(storage) as agents:
        assert states(agents) == {"assistant": "created", "researcher": "paused"}
        assert "paused" in (agents.away("researcher") or "")
        await agents.resume("researcher", "boss@a.example")
        assert agents.away("researcher") is None
        (event,) = agents._recorder.events  # type: ignore[attr-defined]  # it is ours
        assert (event.kind, event.outcome, event.principal) == ("agent", "idle", "boss@a.example")


async def test_killed_for_good(storage: Storage) -> None:
    ended: list[str] = []
    async with open_agents(storage, stopped=ended.append) as agents:
        await agents.kill("researcher", "operator")
        assert ended == ["researcher"]
        for change in (agents.pause, agents.resume, agents.kill):
            with pytest.raises(AgentError, match="it is killed"):
                await change("researcher", "operator")
    async with open_agents(storage) as agents:
        assert states(agents)["researcher"] == "killed"
        assert "shut down" in (agents.away("researcher") or "")


async def test_an_agent_that_is_not_there(storage: Storage) -> None:
    async with open_agents(storage) as agents:
        assert agents.away("nobody") == "There is no such agent."
        with pytest.raises(AgentError, match="there are: assistant, researcher"):
            await agents.pause("nobody", "operator")


ALLOWED = {
    "pause": {"created", "active", "idle"},
    "resume": {"paused"},
    "kill": {"created", "active", "idle", "paused"},
    "heard": {"created", "active", "idle", "paused", "killed"},
}


class Memory:
    """A storage in memory, for a machine of states."""

    async def read(self, op: Any) -> Any:
        raise NotImplementedError

    async def write(self, op: Any, *, keep_trying: bool = False) -> Any:
        class Rows:
            def fetchall(self) -> list[Any]:
                return [("1", "assistant", "created", 0, 0)]

        class Database:
            def execute(self, *_: Any) -> Rows:
                return Rows()

        return op(Database())


@given(st.lists(st.sampled_from(sorted(ALLOWED)), max_size=12))
def test_no_state_is_reached_but_by_its_ways(steps: list[str]) -> None:
    async def walk() -> None:
        agents = Agents(ENTRIES[:1], Memory(), Book())
        await agents.load()
        for step in steps:
            before = states(agents)["assistant"]
            if step == "heard":
                await agents.heard("assistant")
                at_work = before in ("created", "active", "idle")
                assert states(agents)["assistant"] == ("active" if at_work else before)
            elif before in ALLOWED[step]:
                await getattr(agents, step)("assistant", "operator")
            else:
                with pytest.raises(AgentError):
                    await getattr(agents, step)("assistant", "operator")
                assert states(agents)["assistant"] == before

    anyio.run(walk)
