"""The kit as a component of a server, which the target is attached to as well."""

import pytest

from conformance.drivers import DriverError
from conformance.model import Status
from demo_server.server import DemoServer
from tests.conformance.by_server import TESTER, attached, driver, judged
from tests.conformance.small_agent import SmallAgent

pytestmark = pytest.mark.anyio


async def test_an_agent_is_judged_by_way_of_its_server() -> None:
    async with attached(SmallAgent()) as way:
        found = await judged(way, ["skills", "params", "same", "lists"])
    bad = {id_: one.reason for id_, one in found.verdicts.items() if one.status is Status.BROKEN}
    assert not bad
    assert found.good
    assert found.driver.startswith(f"component {TESTER}")


async def test_a_wrong_secret_is_a_sentence() -> None:
    async with DemoServer(host="example.net", components={TESTER: "ours"}) as server:
        with pytest.raises(DriverError, match="not-authorized"):
            async with driver(server, "theirs").open(lambda _: None):
                pass
