"""Real servers as pytest fixtures; tests/conftest.py brings them to every test.

`prosody_server` and `ejabberd_server` are shared by the whole run: do not stop them. They have many
hosts, so that several services can be connected at once: `server.on("other.test")`. A test that
stops, kills or configures a server takes `make_prosody` or `make_ejabberd` and gets one of its own.
`xmpp_server` and `make_server` are those of Prosody, and with the marker `both_servers` also those
of ejabberd.
"""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.base import Server
from tests.servers.ejabberd import Ejabberd
from tests.servers.prosody import Prosody

SITE, CHAT, DESK, PUBSUB = "example.com", "chat.test", "desk.test", "pubsub.test"
"""Hosts of the shared servers, beside `localhost`: on each is a service that the whole run shares.
Services of a module or a test are on `localhost`."""
OTHER = "other.test"
"""A host for a second service of a test."""
GRANTED = "granted.test"
"""A host of Prosody that lets its component act on behalf of people (docs/reference/memory.md)."""
PAIR = "pair.test"
"""A host of ejabberd whose component has two instances (docs/how-to/ejabberd.md)."""
SNOWMAN = "\u2603"  # a localpart of the servers' older rules, and none of RFC 7622
ACCOUNTS = {
    "mallory": "password of mallory",
    "helper": "the agent's own password",
    SNOWMAN: "password of the snowman",
}
"""Accounts of the shared servers, beside juliet and romeo."""

SERVERS: dict[str, type[Server]] = {"prosody": Prosody, "ejabberd": Ejabberd}


class ServerFactory:
    """Makes started servers of one kind and closes them when the test is over.

    Called with the keyword arguments of `Server`; `start=False` leaves the start to the test.
    """

    def __init__(self, kind: type[Server], new_directory: Callable[[], Path]) -> None:
        self.kind = kind
        self.servers: list[Server] = []
        self._new_directory = new_directory

    def __call__(self, *, start: bool = True, **options: Any) -> Server:
        server = self.kind(self._new_directory(), **options)
        self.servers.append(server)
        if start:
            server.start()
        return server

    def close(self) -> None:
        for server in self.servers:
            server.close()


def _shared(
    kind: type[Server], directories: pytest.TempPathFactory, further: str, addition: tuple[str, str]
) -> Iterator[Server]:
    # Every process of a run imports this module, and few need what clients are made of.
    from tests.servers.watching import with_pubsub, with_rooms

    server = kind(
        directories.mktemp(kind.name),
        hosts=(SITE, CHAT, DESK, PUBSUB, OTHER, further),
        additions=[addition],
        additions_host=further,
    )
    server.accounts.update(ACCOUNTS)
    with_pubsub(server)
    with_rooms(server)
    with server:
        yield server


def _factory(kind: type[Server], directories: pytest.TempPathFactory) -> Iterator[ServerFactory]:
    factory = ServerFactory(kind, lambda: directories.mktemp(kind.name))
    yield factory
    factory.close()


@pytest.fixture(scope="session")
def prosody_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One Prosody for the whole run."""
    yield from _shared(Prosody, tmp_path_factory, GRANTED, ("how-to/memory-nodes.md", "privilege"))


@pytest.fixture(scope="session")
def ejabberd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One ejabberd for the whole run."""
    yield from _shared(Ejabberd, tmp_path_factory, PAIR, ("how-to/ejabberd.md", "balancing"))


@pytest.fixture(scope="session")
def server_kind(request: pytest.FixtureRequest) -> str:
    """`prosody` or `ejabberd`: which one depends on the ring of the test (`tests/rings.py`)."""
    return str(getattr(request, "param", "prosody"))


@pytest.fixture(scope="session")
def xmpp_server(request: pytest.FixtureRequest, server_kind: str) -> Server:
    """The shared server of a kind."""
    server: Server = request.getfixturevalue(f"{server_kind}_server")
    return server


@pytest.fixture
def make_prosody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerFactory]:
    """Make Prosody servers of the test's own."""
    yield from _factory(Prosody, tmp_path_factory)


@pytest.fixture
def make_ejabberd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerFactory]:
    """Make ejabberd servers of the test's own."""
    yield from _factory(Ejabberd, tmp_path_factory)


@pytest.fixture
def make_server(
    server_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerFactory]:
    """Make servers of the test's own, of a kind."""
    yield from _factory(SERVERS[server_kind], tmp_path_factory)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the log of each server that a failed test used."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            servers = value.servers if isinstance(value, ServerFactory) else [value]
            for server in servers:
                if isinstance(server, Server):
                    report.sections.append((f"log of {server.name}", server.log_tail()))
    return report
