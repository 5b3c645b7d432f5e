"""Three agents on three domains, for the scenarios."""

import os
from collections.abc import Generator, Iterator

import pytest

from tests.federation.federation import Federation, Gate
from tests.servers import forked
from tests.servers.clients import SlixClient
from tests.servers.talk import login


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the agents to the report of a scenario that fails, as it is then."""
    report = yield
    agents = getattr(item, "funcargs", {}).get("agents")
    if report.failed and report.when == "call" and isinstance(agents, Federation):
        report.sections.append(("the agents when it failed", agents.described()))
    return report


def pytest_sessionfinish() -> None:
    """End what services were forked from."""
    forked.close()


@pytest.fixture(scope="session")
def all_agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """The agents that all scenarios share."""
    if "IN_NETWORK" not in os.environ:
        pytest.exit("The scenarios need a network of their own: make federation T='…::test_…'", 4)
    with Federation(tmp_path_factory.mktemp("federation")) as agents:
        yield agents


@pytest.fixture
def agents(all_agents: Federation) -> Federation:
    """The agents, all of which run and reach each other."""
    all_agents.restore()
    return all_agents


@pytest.fixture
def romeo(agents: Federation) -> Iterator[SlixClient]:
    """A person of the first domain."""
    with login(agents.a.server, "romeo") as client:
        yield client


@pytest.fixture(scope="session")
def gate() -> Iterator[Gate]:
    """Where a skill of the last agent waits."""
    gate = Gate()
    yield gate
    gate.close()
