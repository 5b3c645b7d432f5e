"""The installed `xmpp-agent` as a target, used only through its command line."""

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from conformance.drivers import DriverError

DOMAIN = "agent.localhost"
USERS = "localhost"
PEER = f"peer@{USERS}"
REFUSED = "mallory@elsewhere.example"
_PEER = f"""[[peer]]
name = "kit"
jid = "{{}}"
skills = ["echo"]
offers = ["conformance.*"]
origins = ["{USERS}"]
"""
_START = 60.0
"""Seconds that the demo's own server may take to start."""
_INLINE = "5"
"""The inline limit in seconds: checks that wait for it should not wait long, and a busy machine
answers all others within it."""
_PORT = re.compile(r"server\s+([\d.:a-f]+), port (\d+)")
_TRUST = re.compile(r"trust\s+the authority in (\S+?),")


@dataclass(frozen=True)
class Site:
    """The embedded server: address for clients, and trusted certificate."""

    host: str
    port: int
    ca_file: str


def _program() -> str:
    beside = Path(sys.executable).with_name("xmpp-agent")
    found = str(beside) if beside.exists() else shutil.which("xmpp-agent")
    if found is None:
        raise DriverError(
            "There is no xmpp-agent on this machine to test:"
            " pip install 'xmpp-agent-component[demo]'"
        )
    return found


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("XMPP_AGENT_")}
    return own | {
        "XMPP_AGENT_CONFORMANCE__ENABLED": "true",
        "XMPP_AGENT_LIMITS__INLINE_S": _INLINE,
    }


@contextlib.asynccontextmanager
async def attached(
    host: str, port: int, secret: str, peer: str | None = PEER
) -> AsyncIterator[None]:
    """Run the agent, connected to the acceptor at ``host`` and ``port``; ``peer`` is an agent that
    it knows as its peer.

    Raises:
        DriverError: it is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="xmpp-agent-conformance-") as folder:
        config = Path(folder) / "agent.toml"
        config.write_text(
            f'[server]\nhost = "{host}"\nport = {port}\n'
            f'component_domain = "{DOMAIN}"\ncomponent_secret = "${{CONFORMANCE_SECRET}}"\n'
            "reconnect_min_s = 0.1\nreconnect_max_s = 0.5\n"
            f'[storage]\npath = "{folder}/data"\n[log]\nlevel = "error"\n'
            + ("" if peer is None else _PEER.format(peer)),
            "utf-8",
        )
        command = [_program(), "run", "--config", str(config)]
        environment = _environment() | {"CONFORMANCE_SECRET": secret}
        async with await anyio.open_process(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None,
        ) as process:
            try:
                yield
            finally:
                await _end(process)


@contextlib.asynccontextmanager
async def demonstrated() -> AsyncIterator[Site]:
    """Run the agent with its embedded server, which has the accounts juliet, you, and mallory.

    Raises:
        DriverError: it is not installed, or its server did not start.
    """
    command = [_program(), "demo", "--port", "0", "--fixtures"]
    async with await anyio.open_process(
        command, env=_environment(), stdin=subprocess.DEVNULL, stderr=None
    ) as process:
        try:
            site = None
            with anyio.move_on_after(_START):
                site = await _site(process)
            if site is None:
                raise DriverError(
                    "`xmpp-agent demo`, whose server the self-test needs, did not start; see above."
                )
            yield site
        finally:
            await _end(process)


async def _site(process: Process) -> Site | None:
    assert process.stdout is not None
    said = ""
    async for text in TextReceiveStream(process.stdout):
        said += text
        port, trust = _PORT.search(said), _TRUST.search(said)
        if port and trust:
            return Site(port[1], int(port[2]), trust[1])
    return None


async def _end(process: Process) -> None:
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.terminate()
        with anyio.move_on_after(10):
            await process.wait()
        if process.returncode is None:
            process.kill()


def new_secret() -> str:
    """Return a secret for one run."""
    return secrets.token_urlsafe(16)
