"""The conformance kit against this project's service on a real server, each as its users run it.

As a program it writes the report that the README links: `python -m tests.servers.judging FILE`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from component.config.policy import Agent
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.prosody import Prosody

Result = subprocess.CompletedProcess[str]
KIT = [sys.executable, "-c", "from conformance.cli import main; main()"]
TIMEOUT = 300.0  # seconds; a bound for a busy machine, not an expectation
TESTER = "tester.localhost"
PEER = {
    "name": "kit",
    "jid": f"peer@{TESTER}",
    "skills": ["echo"],
    "offers": ["conformance.*"],
    "origins": [TESTER, "localhost"],
}
"""The agent that the kit acts as."""


@contextmanager
def served(server: Server, directory: Path) -> Iterator[AgentProcess]:
    """Attach the service with its fixtures to a server that has the component `TESTER` too."""
    admitted = [f"{account}@{domain}" for account in ("juliet", "romeo", "peer")
                for domain in (server.host, TESTER)]  # fmt: skip
    agent = AgentProcess(
        server,
        directory,
        conformance__enabled=True,
        agent__allowed_domains=[server.host, TESTER],
        agent__allowed_jids=admitted,
        agent__notice=Agent().notice,  # as its users have it
        limits__inline_s=1,
        peer=[PEER],
    )
    with agent:
        agent.connected()
        yield agent


def as_client(server: Server, *words: str) -> Result:
    """Judge it through two accounts of the server, verifying its certificate."""
    return _kit(
        server,
        *("--jid", server.jid("juliet"), "--password-env", "JULIET"),
        *("--second-jid", server.jid("romeo"), "--second-password-env", "ROMEO"),
        *("--host", server.address, "--port", str(server.c2s_port)),
        *("--ca-file", str(server.ca_file)),
        *words,
    )


def as_component(server: Server, *words: str) -> Result:
    """Judge it through a component of the same server."""
    return _kit(
        server,
        *("--component", TESTER, "--host", server.address, "--port", str(server.second_port)),
        *("--refused", f"mallory@{TESTER}"),
        *words,
    )


def _kit(server: Server, *words: str) -> Result:
    secrets = {
        "SECRET": server.secret,
        "JULIET": server.accounts["juliet"],
        "ROMEO": server.accounts["romeo"],
    }
    return subprocess.run(
        [*KIT, server.component_domain, *words],
        env={**os.environ, **secrets},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def main(path: Path) -> int:
    """Write the report of a whole run on Prosody; return the kit's exit code."""
    with tempfile.TemporaryDirectory(prefix="conformance-report-") as name:
        folder = Path(name)
        server = Prosody(folder / "server", second=TESTER)
        with server, served(server, folder / "agent"):
            result = as_component(server, "--hostile", "--html", str(path))
    print(result.stdout)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
