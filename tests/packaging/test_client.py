"""The wheel of the package for callers, installed where nothing of the service is."""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packaging.releases import ROOT, copy_sources, run
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.fixtures import OTHER
from tests.servers.guides import DOCS, block

WHEELS = Path(sys.prefix) / "wheelhouse"
LIMIT_S = 300.0
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
SERVICE = ("component", "conformance", "anyio", "pydantic", "joserfc")
Python = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it."""
    sources = copy_sources(tmp_path_factory.mktemp("client") / "sources")
    run("hatchling", "build", "-t", "wheel", "-d", "dist", cwd=sources / "packaging" / "client")
    (built,) = (sources / "packaging" / "client" / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Run a program in a new virtual environment that has the wheel and slixmpp."""
    assert WHEELS.exists(), f"{WHEELS} is missing: run tests/tools/wheelhouse.sh"
    environment = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=LIMIT_S)

    def run(*words: str, **variables: str) -> str:
        done = subprocess.run(
            [environment / "bin" / "python", *words],
            cwd=environment,
            env={"PATH": "/usr/bin:/bin", **OFFLINE, "PIP_FIND_LINKS": str(WHEELS), **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "pip", "install", f"{wheel}[slixmpp]")
    return run


def test_the_wheel_has_the_package_and_the_wire_with_its_types_and_nothing_else(
    wheel: Path,
) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "xep", "xmpp_agent_client"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    with zipfile.ZipFile(wheel) as found:
        names = {name for name in found.namelist() if ".dist-info/" not in name}
    assert names == {*listed, "xmpp_agent_client/LICENSE"}
    assert {"xep/py.typed", "xmpp_agent_client/py.typed"} <= names


def test_it_installs_nothing_of_the_service(python: Python) -> None:
    there = python(
        "-c",
        "import importlib.util, xmpp_agent_client.slixmpp_plugin\n"
        f"print(*[name for name in {SERVICE} if importlib.util.find_spec(name)])",
    )
    assert there.split() == []


@pytest.mark.servers
@pytest.mark.both_servers
def test_the_first_call_of_the_guide_reaches_an_agent(
    python: Python, xmpp_server: Server, tmp_path: Path
) -> None:
    server = xmpp_server.on(OTHER)
    program = block(DOCS / "how-to" / "callers.md", "first call")
    connect = f"""xmpp.enable_direct_tls = False
    xmpp.ca_certs = {str(server.ca_file)!r}
    xmpp.connect({server.address!r}, {server.c2s_port})"""
    for said, meant in (
        ("agent.example.com", server.component_domain),
        ("juliet@example.com", server.jid("juliet")),
        ("xmpp.connect()", connect),
    ):
        assert said in program
        program = program.replace(said, meant)
    modules = ["component.cli.demo_skills"]
    with AgentProcess(server, tmp_path, skills__modules=modules) as agent:
        agent.connected()
        password = server.accounts["juliet"]
        printed = python("-c", program, PASSWORD=password, HOME=str(tmp_path))
    assert printed == "hello\n"
