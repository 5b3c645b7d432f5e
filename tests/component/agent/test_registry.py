"""The states of agents: permitted transitions, and that states survive a restart."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.agent.registry import AgentError, Agents
from component.config.agents import AgentEntry
from component.store import Storage
from tests.component.audit.book import Book
from tests.component.tasks.ledger import InMemory
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

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


async def test_every_agent_has_a_persistent_identity(storage: Storage) -> None:
    async with open_agents(storage) as agents:
        assert states(agents) == {"assistant": "created", "researcher": "created"}
        first = [one.id for one in agents.list()]
        assert len(set(first)) == 2
    async with open_agents(storage, [*ENTRIES, AgentEntry(name="new")]) as agents:
        assert [one.id for one in agents.list()][:2] == first
        assert states(agents)["new"] == "created"
    async with open_agents(storage, ENTRIES[:1]) as agents:
        assert [one.id for one in agents.list()] == first[:1]


async def test_an_agent_that_receives_a_message_is_active_and_then_idle(storage: Storage) -> None:
    async with open_agents(storage, idle_s=600) as agents:
        await agents.message_received("assistant")
        assert states(agents) == {"assistant": "active", "researcher": "created"}
    async with open_agents(storage, idle_s=0.05) as agents:
        await eventually(lambda: states(agents)["assistant"] == "idle")
    async with open_agents(storage, idle_s=600) as agents:
        await agents.message_received("assistant")
        assert states(agents)["assistant"] == "active"
        await agents.message_received("nobody")
    async with open_agents(storage, idle_s=0.05) as agents:
        # On PostgreSQL another instance may hear from it; here nobody does for long enough.
        await eventually(lambda: states(agents) == {"assistant": "idle", "researcher": "created"})


async def test_a_slow_disk_does_not_keep_agents_active(storage: Storage) -> None:
    class Slow:
        async def write(self, op: Any) -> Any:
            await anyio.sleep(2 * idle_s)
            return await storage.write(op)

    idle_s = 0.001
    async with open_agents(Slow(), idle_s=idle_s) as agents:
        await agents.message_received("assistant")
        await eventually(lambda: states(agents)["assistant"] == "idle")


async def test_a_paused_agent_stays_paused_across_a_restart_until_resumed(storage: Storage) -> None:
    async with open_agents(storage) as agents:
        await agents.pause("researcher", "boss@a.example")
        await agents.message_received("researcher")
        assert agents.away("assistant") is None
    async with open_agents(storage) as agents:
        assert states(agents) == {"assistant": "created", "researcher": "paused"}
        assert "paused" in (agents.away("researcher") or "")
        await agents.resume("researcher", "boss@a.example")
        assert agents.away("researcher") is None
        (event,) = agents._recorder.events  # type: ignore[attr-defined]  # it is ours
        assert (event.kind, event.outcome, event.principal) == ("agent", "idle", "boss@a.example")


async def test_a_killed_agent_stays_killed(storage: Storage) -> None:
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


async def test_an_unknown_agent_is_an_error(storage: Storage) -> None:
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
    """A storage in memory, for the state machine."""

    def __init__(self) -> None:
        self._database = InMemory()

    async def read(self, op: Any) -> Any:
        return op(self._database)

    async def write(self, op: Any, *, keep_trying: bool = False) -> Any:
        return op(self._database)


@given(st.lists(st.sampled_from(sorted(ALLOWED)), max_size=12))
def test_only_permitted_transitions_happen(steps: list[str]) -> None:
    async def walk() -> None:
        agents = Agents(ENTRIES[:1], Memory(), Book())
        await agents.load()
        for step in steps:
            before = states(agents)["assistant"]
            if step == "heard":
                await agents.message_received("assistant")
                at_work = before in ("created", "active", "idle")
                assert states(agents)["assistant"] == ("active" if at_work else before)
            elif before in ALLOWED[step]:
                await getattr(agents, step)("assistant", "operator")
            else:
                with pytest.raises(AgentError):
                    await getattr(agents, step)("assistant", "operator")
                assert states(agents)["assistant"] == before

    anyio.run(walk)
