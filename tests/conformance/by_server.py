"""A small agent on a server, and the kit as another component of that server."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import anyio

from conformance.checks import all_checks
from conformance.drivers.component import ComponentDriver
from conformance.model import Run
from conformance.requirements import load
from conformance.runner import Plan, run
from conformance.selection import select
from conformance.skills_map import Skill, fixtures
from demo_server.server import DemoServer
from tests.conformance.small_agent import DOMAIN, SECRET, SmallAgent

TESTER = "tester.example.net"
SPECIFICATION = load()
Way = Callable[[], ComponentDriver]
"""Gives a driver; each is for one run."""


def driver(server: DemoServer, secret: str = "ours") -> ComponentDriver:
    return ComponentDriver(TESTER, secret, host="127.0.0.1", port=server.component_port)


@asynccontextmanager
async def attached(agent: SmallAgent) -> AsyncIterator[Way]:
    """The way to an agent by a server that both are attached to."""
    components = {DOMAIN: SECRET, TESTER: "ours"}
    async with (
        DemoServer(host="example.net", components=components) as server,
        await anyio.connect_tcp("127.0.0.1", server.component_port) as stream,
        anyio.create_task_group() as group,
    ):
        group.start_soon(agent.serve, stream)
        await agent.ready.wait()
        yield lambda: driver(server)
        group.cancel_scope.cancel()


async def judged(way: Way, words: list[str], skills: Mapping[str, Skill] | None = None) -> Run:
    """What the kit finds."""
    selection = select(words, SPECIFICATION, all_checks())
    plan = Plan(f"assistant@{DOMAIN}", SPECIFICATION, selection, skills or fixtures(), timeout=3)
    return await run(plan, way())
