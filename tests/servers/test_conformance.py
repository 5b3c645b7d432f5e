"""The service holds every profile that it claims on real servers, whichever way it is judged."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance.requirements import load
from tests.servers import judging
from tests.servers.base import Server
from tests.servers.fixtures import SERVERS

CLAIMED = {"core", "confirm", "tasks", "commands", "memory"}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """A server of each kind, with the service, and with a place for the kit."""
    with ExitStack() as stack:
        servers = []
        for kind in SERVERS.values():
            server = kind(tmp_path_factory.mktemp(kind.name), second=judging.TESTER)
            servers.append(stack.enter_context(server))
            stack.enter_context(judging.served(server, tmp_path_factory.mktemp("agent")))
        yield servers


# On both servers at once: nearly all of a run is waiting.
@pytest.mark.parametrize("way", [judging.as_client, judging.as_component])
def test_the_service_holds_all_that_it_claims(
    sites: list[Server], tmp_path: Path, way: Callable[..., judging.Result]
) -> None:
    def judge(server: Server) -> judging.Result:
        files = [f"--{kind}={tmp_path / server.name}.{kind}" for kind in ("json", "html")]
        return way(server, *files)

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(judge, sites))
    for server, result in zip(sites, results, strict=True):
        assert result.returncode == 0, f"{server.name}\n{result.stdout}"
        assert "every claimed profile holds" in result.stdout
        found = json.loads((tmp_path / f"{server.name}.json").read_text())
        held = {name for name, status in found["profiles"].items() if status.startswith("holds")}
        assert held == CLAIMED
        page = (tmp_path / f"{server.name}.html").read_text()
        assert not [one.id for one in load().requirements if one.id not in page]
