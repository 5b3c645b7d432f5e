"""The guide for callers: its programs run a skill of a real agent on a real server."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.fixtures import OTHER
from tests.servers.guides import DOCS, block
from tests.servers.node import node_modules, node_program

pytestmark = [pytest.mark.servers]

GUIDE = DOCS / "how-to" / "callers.md"
EXAMPLES = DOCS.parent / "examples" / "callers"
PROGRAMS = {"caller.py": EXAMPLES / "python", "caller.js": EXAMPLES / "javascript"}
LIMIT_S = 120.0
Call = Callable[..., tuple[int, list[str]]]


@pytest.fixture(scope="module")
def agent(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = xmpp_server.on(OTHER)
    with AgentProcess(
        server,
        tmp_path_factory.mktemp("called"),
        program=True,
        tasks__poll_after_s=int(LIMIT_S),  # all that is shown comes in messages
        skills__modules=["component.cli.demo_skills"],
    ) as process:
        process.connected()
        yield server


def command(program: str, directory: Path) -> list[str]:
    """The command line of a program, whose libraries are beside it."""
    copied = str(shutil.copy(PROGRAMS[program] / program, directory))
    if program == "caller.py":
        return [sys.executable, copied]
    shutil.copy(PROGRAMS[program] / "package.json", directory)
    (directory / "node_modules").symlink_to(node_modules("callers"))
    return [node_program(), copied]


def variables(agent: Server) -> dict[str, str]:
    """The environment of a program: juliet's password, and where her server is."""
    return {
        "PASSWORD": agent.accounts["juliet"],
        "HOST": agent.address,
        "PORT": str(agent.c2s_port),
        "CA_FILE": str(agent.ca_file),
        "SERVICE": f"xmpp://{agent.address}:{agent.c2s_port}",
        "NODE_EXTRA_CA_CERTS": str(agent.ca_file),
    }


@pytest.fixture(params=PROGRAMS)
def call(request: pytest.FixtureRequest, agent: Server, tmp_path: Path) -> Call:
    """Run a program of the guide as juliet; return its exit code and its lines."""
    words = command(request.param, tmp_path)

    def run(*arguments: str, said: str = "", **changed: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            [*words, agent.jid("juliet"), agent.component_domain, *arguments],
            env={**os.environ, **variables(agent), **changed},
            input=said,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return done.returncode, done.stdout.splitlines()

    return run


def test_a_result_is_printed(call: Call) -> None:
    assert call("echo", "text=hello") == (0, ["hello"])
    assert call("trip-cost", "kilometres=450", "by=train", "people=2") == (0, ["about 180 euros"])


def test_an_error_is_printed(call: Call) -> None:
    code, (line,) = call("echo")
    assert code == 1
    assert re.fullmatch("(bad-request - |invalid-param: )text: is required.?", line)


QUESTION = re.compile(
    r'May I empty the folder \*Archive\*\?.*|empty-folder \{.*"folder": "Archive".*\}\?'
)


def test_a_yes_approves(call: Call) -> None:
    code, lines = call("empty-folder", "folder=Archive", said="yes\n")
    question = lines.pop(2)
    assert QUESTION.fullmatch(question)
    assert lines == [
        "accepted",
        "input-required",
        "accepted",
        "running",
        "completed",
        "Archive: nothing is older than 30 days any more.",
    ]
    assert code == 0


@pytest.mark.parametrize("said", ["no\n", ""], ids=["no", "end of input"])
def test_anything_else_denies(said: str, call: Call) -> None:
    code, lines = call("empty-folder", "folder=Archive", said=said)
    assert QUESTION.fullmatch(lines.pop(2))
    assert lines.pop().endswith("The person asked did not allow it.")
    assert lines == ["accepted", "input-required", "failed"]
    assert code == 1


def test_a_wrong_password_is_said(call: Call) -> None:
    code, lines = call("echo", "text=hello", PASSWORD="wrong")
    assert code == 1
    assert len(lines) == 1, lines


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_guide_shows_the_programs_that_run(program: str) -> None:
    assert block(GUIDE, program) == (PROGRAMS[program] / program).read_text()


AIOXMPP = """
def at_a_port(jid, layer):
    from aioxmpp import connector, security_layer

    def context():
        made = security_layer.default_ssl_context()
        made.load_verify_locations(os.environ["CA_FILE"])
        return made

    address = os.environ["HOST"], int(os.environ["PORT"]), connector.STARTTLSConnector()
    layer = layer._replace(ssl_context_factory=context)
    return aioxmpp.PresenceManagedClient(jid, layer, override_peer=[address])


asyncio.run("""
SLIXMPP = """xmpp.enable_direct_tls = False
    xmpp.ca_certs = os.environ["CA_FILE"]
    xmpp.connect(os.environ["HOST"], int(os.environ["PORT"]))"""
AT_A_PORT = {
    "first call": {"xmpp.connect()": SLIXMPP},
    "aioxmpp": {"aioxmpp.PresenceManagedClient(": "at_a_port(", "asyncio.run(": AIOXMPP},
}
"""What the programs say of the server, which they find by the DNS, and what the test writes."""


@pytest.mark.parametrize("name", AT_A_PORT)
def test_a_first_call_is_answered(name: str, agent: Server, tmp_path: Path) -> None:
    source = block(GUIDE, name)
    account = {
        '"juliet@example.com"': f'"{agent.jid("juliet")}"',
        '"agent.example.com"': f'"{agent.component_domain}"',
    }
    for shown, written in (account | AT_A_PORT[name]).items():
        assert source.count(shown) == 1
        source = source.replace(shown, written)
    program = tmp_path / "program.py"
    program.write_text(source)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program],
        env={**os.environ, **variables(agent)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert done.stdout == "hello\n"
