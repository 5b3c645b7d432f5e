"""`xmpp-agent worker` runs what its configuration says, or says what is missing."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from component import logs
from component.app.schema import SCHEMA
from component.cli.frame import ExitCode
from component.cli.group import group
from component.store import Storage
from tests.component.features.installed_skills.world import install
from tests.component.features.workers.support import in_thread, serving, workers
from tests.waiting import eventually
from xep.fluux_agent.execute import Result as Answer

WORKER = '[worker]\ndatabase = "postgresql://nobody@127.0.0.1:1/queue"\n'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # other tests capture what is logged


def run(text: str, command: str = "worker") -> Result:
    Path("worker.toml").write_text(text)
    return CliRunner().invoke(group, [command, "--config", "worker.toml"])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[server]\ncomponent_domain = "a.b"\ncomponent_secret = "s"\n', "no section [worker]"),
        (WORKER, "The worker has no skills"),
        (f'{WORKER}[skills]\nmodules = ["./missing.py"]\n', "missing.py"),
    ],
)
def test_what_is_missing_is_said(text: str, what: str) -> None:
    found = run(text)
    assert found.exit_code == ExitCode.CONFIG
    assert what in found.output


def test_a_database_that_cannot_be_reached_is_said() -> None:
    Path("own.py").write_text(
        "from xmpp_agent import skill\n\n\n@skill\ndef own() -> str:\n"
        '    """Be there."""\n    return ""\n'
    )
    found = run(f'{WORKER}[skills]\nmodules = ["./own.py"]\n')
    assert found.exit_code == ExitCode.FAILURE
    assert "the database of the queue cannot be reached" in found.output


def test_a_worker_is_not_run_as_a_service() -> None:
    found = run(WORKER, "run")
    assert found.exit_code == ExitCode.CONFIG
    assert "xmpp-agent worker --config worker.toml" in found.output


@pytest.mark.servers
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_skill_of_a_directory_is_offered_when_it_is_approved_on_the_worker(
    tmp_path: Path, migrated_url: str
) -> None:
    directory = tmp_path / "worker"
    install(directory / "skills")
    text = (
        '[worker]\ndatabase = "${QUEUE}"\n[skills]\ndirectories = ["./skills"]\n'
        '[storage]\npath = "./data"\n'
    )
    approve = ["skills", "approve", "--yes", "greet", "--config", "one.toml"]
    open_storage = partial(Storage.open, SCHEMA, tmp_path / "data")
    with workers(directory, migrated_url, text=text) as (program,):
        async with serving(open_storage, migrated_url) as served:
            assert served.registry.get("greet") is None
            approved = await in_thread(partial(program.command, *approve))
            assert "greet is offered." in approved
            await eventually(lambda: served.registry.get("greet") is not None)
            answer = await served.world.run("greet", params={"who": "Juliet"})
            assert isinstance(answer, Answer)
            assert "Juliet" in answer.outputs[0].text


@pytest.mark.servers
def test_a_signal_stops_it_in_order(tmp_path: Path, migrated_url: str) -> None:
    with workers(tmp_path / "worker", migrated_url, program=True) as (program,):
        assert program.stop(signal.SIGINT) == ExitCode.OK
