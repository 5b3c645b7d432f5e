"""The kit as a component of a server, which the target is attached to as well."""

import anyio
import pytest

from component.devserver.server import DevServer
from conformance.checks import all_checks
from conformance.drivers import DriverError
from conformance.drivers.component import ComponentDriver
from conformance.model import Status
from conformance.requirements import load
from conformance.runner import Plan, run
from conformance.selection import select
from conformance.skills_map import fixtures
from tests.conformance.small_agent import DOMAIN, SECRET, SmallAgent

pytestmark = pytest.mark.anyio
TESTER = "tester.example.net"
SPECIFICATION = load()


def driver(server: DevServer, secret: str = "ours") -> ComponentDriver:
    return ComponentDriver(TESTER, secret, host="127.0.0.1", port=server.component_port)


async def test_an_agent_is_judged_by_way_of_its_server() -> None:
    components = {DOMAIN: SECRET, TESTER: "ours"}
    async with (
        DevServer(host="example.net", components=components) as server,
        await anyio.connect_tcp("127.0.0.1", server.component_port) as stream,
        anyio.create_task_group() as group,
    ):
        agent = SmallAgent()
        group.start_soon(agent.serve, stream)
        await agent.ready.wait()
        selection = select(["skills", "params", "same", "lists"], SPECIFICATION, all_checks())
        plan = Plan(f"assistant@{DOMAIN}", SPECIFICATION, selection, fixtures(), timeout=3)
        found = await run(plan, driver(server))
        group.cancel_scope.cancel()
    bad = {id_: one.reason for id_, one in found.verdicts.items() if one.status is Status.BROKEN}
    assert not bad
    assert found.good
    assert found.driver.startswith(f"component {TESTER}")


async def test_a_wrong_secret_is_a_sentence() -> None:
    async with DevServer(host="example.net", components={TESTER: "ours"}) as server:
        with pytest.raises(DriverError, match="not-authorized"):
            async with driver(server, "theirs").open(lambda _: None):
                pass
