"""Two releases, each installed from its wheel, go up and down on one database."""

import contextlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.cli.embedded import Embedded, embedded_server
from tests.packaging.chroots import connected
from tests.packaging.releases import NEWER, ROOT, build, copy_sources, newer_sources, run
from tests.servers.guides import block
from tests.servers.talk import PING

pytestmark = [pytest.mark.servers, pytest.mark.thorough]


class Release:
    """The program of a release, with its working directory and settings."""

    def __init__(self, venv: Path, directory: Path, settings: dict[str, str]) -> None:
        self._program = str(venv / "bin" / "xmpp-agent")
        self._directory = directory
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._environment = own | settings

    def run(self, *arguments: str, succeeds: bool = True) -> str:
        """Run a command; return what it says."""
        done = subprocess.run(
            [self._program, *arguments],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) is succeeds, done.stdout + done.stderr
        return done.stdout if succeeds else done.stderr

    @contextlib.contextmanager
    def service(self) -> Iterator[None]:
        """Run the service until the context ends; it is connected in it."""
        process = subprocess.Popen(
            [self._program, "run"],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with connected(process, process.terminate):
            yield


def installed(sources: Path) -> Path:
    """Install the wheel of these sources; what it depends on is that of the tests."""
    (wheel,) = build(sources, "wheel")
    venv = sources / "venv"
    run("python", "-m", "venv", "--without-pip", venv, cwd=sources)
    python = venv / "bin" / "python"
    without = ("--quiet", "--no-deps", "--no-index")
    run("pip", "--python", python, "install", *without, wheel, cwd=sources)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = venv / "lib" / version / "site-packages"
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return venv


@pytest.fixture
def server() -> Iterator[Embedded]:
    with embedded_server() as embedded:
        yield embedded


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_an_upgrade_and_its_undoing(
    database: str, server: Embedded, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if database == "postgresql" else ""
    settings = {"AGENT_SECRET": server.secret, "XMPP_AGENT_STORAGE__POSTGRES": url}
    site = tmp_path / "site"
    site.mkdir()
    # Schedules say a goal to a model, which is asked nothing here.
    model = '[llm]\nprovider = "vllm"\nmodel = "any"\nbase_url = "http://127.0.0.1:9/v1"\n'
    (site / "agent.toml").write_text(server.agent_toml() + model)
    older = Release(installed(copy_sources(tmp_path / "older")), site, settings)
    newer = Release(installed(newer_sources(tmp_path / "newer")), site, settings)

    def add(release: Release, text: str) -> None:
        who = ("--for", "juliet@localhost", "--zone", "Europe/Paris")
        release.run("schedules", "add", *who, "--when", "every monday at 9", "--goal", text)

    with older.service():
        add(older, "Sum up the week.")

    # Nothing but the service and `upgrade` changes the database.
    assert "written by an older release" in newer.run("tasks", "list", succeeds=False)
    with older.service():
        assert "succeeds" in newer.run("upgrade", "--rehearse")
        assert "in use" in newer.run("upgrade", succeeds=False)
    with newer.service():
        assert "Sum up the week." in newer.run("schedules", "list", "--json")
    assert "there is nothing to do" in newer.run("upgrade")

    # The older release refuses it, and undoes the upgrade.
    assert "written by a newer release" in older.run("run", succeeds=False)
    assert NEWER in older.run("rollback")
    with older.service():
        assert "Sum up the week." in older.run("schedules", "list", "--json")

    # So does the newer one, but not if that loses work.
    assert "Upgraded the database" in newer.run("upgrade")
    add(newer, "And the year.")
    assert "schedules (1 more rows)" in newer.run("rollback", succeeds=False)
    assert "And the year." in newer.run("schedules", "list", "--json")
    newer.run("rollback", "--discard-newer")
    listed = older.run("schedules", "list", "--json")
    assert "Sum up the week." in listed
    assert "And the year." not in listed
    with older.service():
        pass
    assert "There is no upgrade to undo" in older.run("rollback", succeeds=False)


def test_the_readme_installs_a_checkout_which_is_upgraded_and_removed(
    server: Embedded, tmp_path: Path
) -> None:
    checkout = copy_sources(tmp_path / "checkout")
    script = block(ROOT / "README.md", "install")
    run("sh", "-ec", script, cwd=checkout, HOME=str(tmp_path))
    venv = tmp_path / "xmpp-agent"
    site = tmp_path / "site"
    program = Release(venv, tmp_path, {"XMPP_AGENT_CONFIG": str(site / "agent.toml")})
    where = ("--domain", server.component_domain, "--host", "127.0.0.1", "--port", str(server.port))
    site.mkdir()
    (site / "agent.env").write_text(f"AGENT_SECRET={server.secret}\n")
    program.run("init", *where, "--server", "prosody")
    assert "failed" not in program.run("doctor")
    with program.service(), server.login() as juliet:
        assert juliet.iq(server.component_domain, PING).get("type") == "result"

    newer = newer_sources(tmp_path / "newer")
    pip = str(venv / "bin" / "pip")
    run(pip, "install", "--quiet", ".", cwd=newer)
    assert NEWER in program.run("--version")
    with program.service():
        pass
    run(pip, "uninstall", "--quiet", "--yes", "xmpp-agent-component", cwd=newer)
    assert not list(venv.rglob("xmpp-agent*"))
    assert not list(venv.rglob("component"))
