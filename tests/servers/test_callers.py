"""The package for callers, with slixmpp, on Prosody and ejabberd."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.fixtures import OTHER
from tests.servers.proxy import Proxy
from tests.xmpp_agent_client.callers import LIMIT, slixmpp_caller
from xmpp_agent_client import Agents, Confirmation, Question, Task, TaskCancelledError

pytestmark = [pytest.mark.servers, pytest.mark.both_servers]
Work = Callable[[Agents, str], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def agent(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    with AgentProcess(
        xmpp_server.on(OTHER),
        tmp_path_factory.mktemp("called"),
        conformance__enabled=True,
        limits__inline_s=1,
    ) as process:
        process.connected()
        yield process


@pytest.fixture
def way(xmpp_server: Server) -> Iterator[Proxy]:
    server = xmpp_server.on(OTHER)
    with Proxy(server.address, server.c2s_port) as way:
        yield way


@pytest.fixture
def call(xmpp_server: Server, agent: AgentProcess, way: Proxy) -> Callable[[Work], None]:
    """Log in as juliet, and do some work."""
    server = xmpp_server.on(OTHER)

    async def run(work: Work) -> None:
        jid, password = server.jid("juliet"), server.accounts["juliet"]
        async with (
            asyncio.timeout(LIMIT),
            slixmpp_caller(jid, password, "127.0.0.1", way.port, server.ca_file) as agents,
        ):
            await work(agents, agent.domain)

    return lambda work: asyncio.run(run(work))


def test_agents_are_discovered_and_called(call: Callable[[Work], None]) -> None:
    async def work(agents: Agents, address: str) -> None:
        assert address in [info.address for info in await agents.discover()]
        agent = agents.at(address)
        assert "conformance.add" in [skill.name for skill in await agent.skills()]
        assert (await agent.call("conformance.add", {"a": 1, "b": 2})).text == "3"

    call(work)


def test_a_task_is_followed_answered_and_decided(call: Callable[[Work], None]) -> None:
    async def work(agents: Agents, address: str) -> None:
        agent = agents.at(address)
        execution = await agent.execute("conformance.ask", {"question": "Which?"})
        revisions = []
        async for news in execution:
            if isinstance(news, Task):
                revisions.append(news.revision)
            elif isinstance(news, Question):
                await execution.answer(news, {"colour": "red"})
        assert revisions == list(range(len(revisions)))
        assert (await execution.result()).outputs[0].json()["colour"] == "red"
        execution = await agent.execute("conformance.erase", {"target": "x"})
        async for news in execution:
            if isinstance(news, Confirmation):
                assert news.genuine
                await agents.decide(news, approve=True)
        assert (await execution.result()).text

    call(work)


def test_a_task_is_cancelled(call: Callable[[Work], None]) -> None:
    async def work(agents: Agents, address: str) -> None:
        execution = await agents.at(address).execute(
            "conformance.sleep", {"seconds": 30}, mode="async"
        )
        await execution.cancel()
        with pytest.raises(TaskCancelledError):
            await execution.result()

    call(work)


def test_a_broken_stream_and_a_killed_agent_are_survived(
    call: Callable[[Work], None], way: Proxy, agent: AgentProcess
) -> None:
    async def work(agents: Agents, address: str) -> None:
        caller = agents.at(address)
        execution = await caller.execute("conformance.ask", {"question": "Which?"})
        async for news in execution:
            if isinstance(news, Question):
                way.cut()
                await asyncio.to_thread(agent.kill)
                await asyncio.to_thread(lambda: agent.start().connected())
                await execution.answer(news, {"colour": "blue"})
        assert (await execution.result()).outputs[0].json()["colour"] == "blue"
        counting = asyncio.ensure_future(caller.call("conformance.count", {"key": "k"}))
        await asyncio.sleep(0)
        way.cut()
        assert (await counting).text == "1"

    call(work)
