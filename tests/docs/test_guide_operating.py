"""What the guide says of backups is done, with a service that runs meanwhile."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from component.memory.index_database import FILE_NAME as INDEX
from component.private import exposed
from tests.component.cli.embedded import Embedded, embedded_server
from tests.component.models.endpoint import Calls, Endpoint, Text, in_thread
from tests.servers.agent_process import PROGRAM, TIMEOUT, AgentProcess, environment
from tests.servers.chatting import asks
from tests.servers.guides import DOCS, block

GUIDE = DOCS / "how-to" / "backup.md"
SQLITE = f"""#!{sys.executable}
import sqlite3, sys
_, path, command = sys.argv
order, target = command.split()
assert order == ".backup"
sqlite3.connect(path).backup(sqlite3.connect(target))
"""
"""Stands in for SQLite's program, where it is not installed."""
WHO = "juliet@localhost"


@pytest.fixture(scope="module")
def server() -> Iterator[Embedded]:
    with embedded_server() as embedded:
        yield embedded


@pytest.fixture
def model() -> Iterator[Endpoint]:
    with in_thread() as endpoint:
        yield endpoint


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A PATH on which the programs of the guide are."""
    own = tmp_path / "bin"
    own.mkdir()
    if shutil.which("sqlite3") is None:
        (own / "sqlite3").write_text(SQLITE)
        (own / "sqlite3").chmod(0o700)
    return f"{PROGRAM.parent}:{own}:{os.environ['PATH']}"


def service(server: Embedded, directory: Path, model: Endpoint) -> AgentProcess:
    toml = f'{server.agent_toml()}[llm]\nprovider = "vllm"\nmodel = "any"\n'
    return AgentProcess(server, directory, toml=toml, llm__base_url=model.url)


def shell(agent: AgentProcess, script: str, path: str, **variables: str) -> str:
    """Run a script of the guide where the service was started."""
    named = {"GIT_AUTHOR_NAME": "An Admin", "GIT_AUTHOR_EMAIL": "admin@example.com"}
    named |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in named.items()}
    done = subprocess.run(
        ["/bin/sh", "-ec", f"umask 022\n{script}"],
        cwd=agent.directory,
        env={**environment(), **named, **variables, "AGENT_SECRET": agent.secret, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_put_back_is_what_there_was(
    server: Embedded, model: Endpoint, tmp_path: Path, programs: str
) -> None:
    kept = Calls(("memory_store", {"key": "tea", "body": "Green, two leaves."}))
    model.answers(kept, Text("I will remember."), Text("Later."), Text("Green."))
    first, second = (service(server, tmp_path / name, model) for name in ("here", "there"))
    with first, server.login() as juliet:
        first.connected()
        asks(juliet, first.domain, "My tea is green, with two leaves.", "remember")
        shell(first, block(GUIDE, "backup"), programs)
        asks(juliet, first.domain, "And this is said after the backup.", "Later")
        assert first.stop() == 0
    ((there,),) = [tuple((first.directory / "backup").iterdir())]
    assert stat.S_IMODE(there.stat().st_mode) == 0o700
    assert not list(exposed(there))

    second.directory.mkdir()
    (second.directory / "agent.toml").write_text(
        server.agent_toml() + f'[llm]\nprovider = "vllm"\nmodel = "any"\nbase_url = "{model.url}"\n'
    )
    printed = shell(second, block(GUIDE, "restore"), programs, there=str(there))
    assert "The audit log is complete and unchanged" in printed
    assert not list(exposed(second.directory / "data"))
    data, former = second.directory / "data", first.directory / "data"
    assert (data / "home").read_text() == (former / "home").read_text()
    person = data / "memory" / WHO
    assert stat.S_IMODE(person.stat().st_mode) == 0o700
    assert stat.S_IMODE((person / "history.jsonl").stat().st_mode) == 0o600
    assert not list((data / "memory").glob(f"{INDEX}*"))
    with second, server.login() as juliet:
        second.connected()
        assert "Green, two leaves." in asks(juliet, second.domain, "/memory", "tea")
        assert asks(juliet, second.domain, "Which tea do I like?", "Green") == "Green."
        shown = str(model.requests[-1].body["messages"])
        assert "My tea is green" in shown
        assert "said after the backup" not in shown
        assert (data / "memory" / INDEX).exists()
        assert second.stop() == 0


def test_the_memory_is_a_repository_while_it_is_in_use(
    server: Embedded, model: Endpoint, tmp_path: Path, programs: str
) -> None:
    agent = service(server, tmp_path / "here", model)
    model.answers(Text("Good day."), Text("Good night."), Text("Good bye."))
    with agent, server.login() as juliet:
        agent.connected()
        asks(juliet, agent.domain, "This is the first.", "day")
        asks(juliet, agent.domain, "/memory")
        shell(agent, block(GUIDE, "git"), programs)
        assert not list(exposed(agent.directory / "data"))
        listed = shell(agent, "git -C data/memory ls-files", programs).split()
        assert set(listed) == {".gitignore", f"{WHO}/history.jsonl"}
        asks(juliet, agent.domain, "This is the second.", "night")
        there = shell(agent, "git -C data/memory diff --stat", programs)
        assert f"{WHO}/history.jsonl" in there
        shell(agent, "git -C data/memory restore .", programs)
        asks(juliet, agent.domain, "This is the third.", "bye")
        shown = str(model.requests[-1].body["messages"])
        assert "the first" in shown
        assert "the second" not in shown
        assert agent.stop() == 0
