"""Three domains on three servers, each with an agent: `a.test` uses `b.test`, which uses `c.test`.

The agents run the configuration of the guides. A and C are on Prosody, B is on ejabberd. All of it
is in a network of its own (`tests/tools/network.sh`).
"""

import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self

from tests.federation.archive_skills import GATE_PORT
from tests.federation.names import Names
from tests.servers import guides
from tests.servers.agent_process import TIMEOUT, AgentProcess
from tests.servers.base import Server
from tests.servers.ejabberd import Ejabberd
from tests.servers.prosody import Prosody

GUIDE = guides.DOCS / "how-to" / "federation.md"
S2S_PORT = 5269
HOSTS = {"example.com": "a.test", "example.net": "b.test", "example.org": "c.test"}
"""The domains of the guide, and those of the tests."""
ADDRESSES = {"a.test": "127.0.0.2", "b.test": "127.0.0.3", "c.test": "127.0.0.4"}
KINDS: dict[str, type[Server]] = {"a": Prosody, "b": Ejabberd, "c": Prosody}
BLOCKS = {"a": ("uses",), "b": ("offers", "delegates", "archive", "bot"), "c": ("origins",)}
"""The blocks of the guide in the configuration of each agent."""
BOT = "newsbot"
"""The account of a bot on the first domain."""
SETTINGS: dict[str, Any] = {"limits__inline_s": 1, "limits__iq_timeout_s": 10}
"""Agents wait less than by default for what has been killed."""


_OPEN = {
    "tasks": "id, skill, state, revision, waits, owner, unsent_revision, updated",
    "peer_calls": "id, task, state, remote, owner, question, reply",
    "waiters": "*",
    "instances": "*",
}


class Agent:
    """One of the three: its server, and its service."""

    def __init__(self, server: Server, directory: Path, name: str) -> None:
        skills = {"b": "research_skills.py", "c": "archive_skills.py"}
        modules = [str(Path(__file__).with_name(skills[name]))] if name in skills else []
        self._toml = server.agent_toml() + "".join(map(block, BLOCKS[name]))
        self.name = name
        self.server = server
        admins = {"agent__admins": ["romeo@a.test"]} if name == "a" else {}
        self.service = AgentProcess(
            server, directory, toml=self._toml, skills__modules=modules, **SETTINGS | admins
        )

    @property
    def address(self) -> str:
        """The address of the agent."""
        return f"assistant@{self.server.component_domain}"

    def start(self) -> Self:
        """Start the service, and wait until it is connected."""
        self.service.start().connected()
        return self

    def kill(self) -> None:
        """End the service with SIGKILL."""
        self.service.kill()

    @contextmanager
    def changed(self, *changes: tuple[str, str], more: str = "") -> Iterator[None]:
        """Run the service with lines in place of others, and with more sections, for the time of
        the context.
        """
        toml = self._toml
        for before, after in changes:
            assert before in toml
            toml = toml.replace(before, after)
        self._again(toml + more)
        try:
            yield
        finally:
            self._again(self._toml)

    def _again(self, toml: str) -> None:
        self.kill()
        self.service.configure(toml)
        self.start()

    def described(self) -> str:
        """Return whether it and its server run, its open work, and the end of the server's log."""
        lines = [f"{self.name}: service {self.service.running}, server {self.server.running}"]
        with closing(sqlite3.connect(self.service.directory / "data" / "agent.db")) as database:
            database.row_factory = sqlite3.Row
            for table, columns in _OPEN.items():
                found = database.execute(f"SELECT {columns} FROM {table}")
                lines += [f"{table}: {dict(row)}" for row in found]
        return "\n".join([*lines, self.server.log_tail()])

    def effects(self, label: str) -> list[str]:
        """What its skills have done outside."""
        file = self.service.directory / "effects"
        file.touch()
        return [line for line in file.read_text().splitlines() if label in line]


class Federation:
    """The three agents, `a`, `b` and `c`."""

    def __init__(self, directory: Path) -> None:
        self._agents = {
            name: Agent(
                kind(
                    directory / f"server-{name}",
                    host=f"{name}.test",
                    address=ADDRESSES[f"{name}.test"],
                    s2s_port=S2S_PORT,
                ),
                directory / name,
                name,
            )
            for name, kind in KINDS.items()
        }
        self.a, self.b, self.c = self._agents.values()
        self.a.server.accounts[BOT] = "password of the bot"
        where = {"_xmpp-client._tcp.a.test": ("a.test", self.a.server.c2s_port)}
        self._names = Names(ADDRESSES, where)
        self._stack = ExitStack()
        self._is_cut = False

    def __getitem__(self, name: str) -> Agent:
        return self._agents[name]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._names)
            agents = self._agents.values()
            for agent in agents:
                stack.callback(agent.server.close)
                stack.callback(agent.service.close)
            with ThreadPoolExecutor() as threads:
                list(threads.map(lambda agent: agent.server.start(), agents))
            # Each finds the skills of the one that it uses when it starts.
            for agent in reversed(agents):
                agent.start()
            for agent in (self.b, self.a):
                agent.service.wait_log("a peer offers skills")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.join()
        self._stack.close()

    def restore(self) -> None:
        """Start what a test has left killed, and join what it has left cut."""
        self.join()
        for agent in self._agents.values():
            if not agent.server.running:
                agent.server.start()
            if not agent.service.running:
                agent.start()

    def described(self) -> str:
        """Return what is known of each agent, for a person who reads about a failure."""
        return "\n\n".join(agent.described() for agent in self._agents.values())

    def cut(self) -> None:
        """Cut the links between all servers, as when a cable is unplugged: no packet arrives."""
        assert not self._is_cut
        self._is_cut = True
        self._rules("add")

    def join(self) -> None:
        """End a cut."""
        if self._is_cut:
            self._is_cut = False
            self._rules("del")

    @staticmethod
    def _rules(change: str) -> None:
        for end in ("sport", "dport"):
            rule = f"pref 1 ipproto tcp {end} {S2S_PORT} unreachable"
            subprocess.run(["ip", "rule", change, *rule.split()], check=True)


def block(name: str) -> str:
    """Return a block of the guide, with the domains of the tests."""
    text = guides.block(GUIDE, name)
    for host, used in HOSTS.items():
        text = text.replace(host, used)
    return text


class Gate:
    """Where the skill `collect` waits: a test sees that it waits, and lets it go on."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", GATE_PORT))
        self._listener.settimeout(TIMEOUT)

    def close(self) -> None:
        """Close it."""
        self._listener.close()

    def arrival(self, label: str) -> socket.socket:
        """Wait until the skill is at the gate; return the connection. It goes on when it gets
        something, and the connection ends when the skill ends.
        """
        while True:
            connection, _ = self._listener.accept()
            connection.settimeout(TIMEOUT)
            if connection.recv(1000) == f"{label}\n".encode():
                return connection
            connection.close()
