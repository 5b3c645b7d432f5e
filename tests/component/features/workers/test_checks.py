"""`xmpp-agent doctor` names each queue, whether it can be used, and its workers."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from component.app.features import make_settings
from component.config import Server
from component.features.workers.feature import WorkersFeature
from component.features.workers.settings import Worker, WorkersEntry
from tests.component.features.workers.support import workers

pytestmark = [pytest.mark.servers, pytest.mark.anyio]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop: the checks run in a thread."""
    return "trio"


async def test_each_queue_is_named(tmp_path: Path, postgres_url: str) -> None:
    database, nowhere = SecretStr(postgres_url), SecretStr("postgresql://a@127.0.0.1:1/a")
    settings = make_settings(
        server=Server(component_domain="agent.example.com", component_secret="s"),
        workers=(
            WorkersEntry(database=database),
            WorkersEntry(database=database, queue="idle"),
            WorkersEntry(database=nowhere, queue="away"),
        ),
        worker=Worker(database=database, queue="idle"),
    )
    with workers(tmp_path / "worker", postgres_url, "render-1"):
        checks = WorkersFeature(settings).availability()
        found = {one.name: (one.verdict, one.text) async for one in checks}
    verdict, text = found.pop("workers away")
    assert verdict == "failed"
    assert "cannot be reached" in text
    idle = "the queue can be used, and no worker is running"
    assert found == {
        "workers default": ("ok", "render-1: 16 skills"),
        "workers idle": ("warning", idle),
        "worker": ("ok", idle),
    }
