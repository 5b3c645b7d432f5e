"""The service holds every profile that it claims on real servers, whichever way it is judged."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.requirements import load
from tests.servers import judging
from tests.servers.base import Server
from tests.servers.fixtures import SERVERS

pytestmark = [pytest.mark.servers]

CLAIMED = {"core", "confirm", "tasks", "plans", "commands", "memory", "delegation", "grants"}


@pytest.fixture(scope="module")
def judged(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the service, and with a place for the kit."""
    kind = SERVERS[server_kind]
    with (
        kind(tmp_path_factory.mktemp(kind.name), second=judging.TESTER) as server,
        judging.served(server, tmp_path_factory.mktemp("agent")),
    ):
        yield server


@pytest.mark.parametrize(
    "way", [judging.as_component, pytest.param(judging.as_client, marks=pytest.mark.thorough)]
)
def test_the_service_holds_all_that_it_claims(
    judged: Server, tmp_path: Path, way: Callable[..., judging.Result]
) -> None:
    result = way(judged, *[f"--{kind}={tmp_path / kind}" for kind in ("json", "html")])
    assert result.returncode == 0, result.stdout
    assert "every claimed profile holds" in result.stdout
    found = json.loads((tmp_path / "json").read_text())
    held = {name for name, status in found["profiles"].items() if status.startswith("holds")}
    assert held == CLAIMED
    page = (tmp_path / "html").read_text()
    assert not [one.id for one in load().requirements if one.id not in page]
