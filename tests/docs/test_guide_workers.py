"""The guide to workers: its example runs as it is written, and each section is valid."""

import re
import tomllib
from functools import partial
from pathlib import Path

import pytest

from component.app.schema import SCHEMA
from component.features.workers.settings import Worker, WorkersEntry
from component.store import Storage
from tests.component.features.workers.support import serving, workers
from xep.fluux_agent.execute import Result

GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "workers.md").read_text()
SERVICE, WORKER, *OTHERS = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
(SKILL,) = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
ADDRESS = "postgresql://agent:${QUEUE_PASSWORD}@db.example.com/queue"


def test_the_workers_guide_declares_a_queue_in_two_lines() -> None:
    assert len(SERVICE.splitlines()) == 2
    (entry,) = tomllib.loads(SERVICE)["workers"]
    assert WorkersEntry.model_validate(entry).queue == "default"


def test_every_toml_example_of_the_workers_guide_is_valid() -> None:
    assert OTHERS
    for block in (tomllib.loads(text) for text in (WORKER, *OTHERS)):
        for entry in block.get("workers", []):
            assert WorkersEntry.model_validate(entry | {"database": ADDRESS})
        if "worker" in block:
            Worker.model_validate(block["worker"])


@pytest.mark.servers
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_the_example_runs(tmp_path: Path, postgres_url: str) -> None:
    directory = tmp_path / "worker"
    directory.mkdir()
    (directory / "render.py").write_text(SKILL)
    assert ADDRESS in WORKER
    text = WORKER.replace(ADDRESS, "${QUEUE}")
    (entry,) = tomllib.loads(SERVICE.replace(ADDRESS, postgres_url))["workers"]
    open_storage = partial(Storage.open, SCHEMA, tmp_path / "data")
    with workers(directory, postgres_url, text=text):
        async with serving(open_storage, entry["database"], "render") as served:
            answer = await served.world.run("render", params={"scene": "a sunset"})
            assert isinstance(answer, Result)
            assert answer.outputs[0].type == "image/png"
