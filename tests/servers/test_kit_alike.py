"""The kit's server in memory behaves as the real servers do: scripts have the same histories."""

from collections.abc import Iterator

import anyio
import pytest
import trio
from trio.testing import MockClock

from tests.kit.offline import OfflineStorage
from tests.servers.base import Server
from tests.servers.fixtures import SERVERS
from tests.servers.kit_in_memory import InMemory
from tests.servers.kit_on_server import ADMIN, OnServer
from tests.servers.kit_scripts import SCRIPTS, Script
from tests.servers.kit_stage import OTHER_HOST, PEOPLE
from tests.servers.raw_client import TlsSocket, log_in
from tests.servers.watching import with_pubsub, with_rooms

pytestmark = [pytest.mark.servers, pytest.mark.both_servers]


@pytest.fixture(scope="module")
def real(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with accounts for each script."""
    server = SERVERS[server_kind](
        tmp_path_factory.mktemp(server_kind),
        hosts=(OTHER_HOST,),
        unlimited="one account owns the nodes of all scripts, and waits for each of them",
    )
    for number in range(len(SCRIPTS)):
        server.accounts.update({f"{name}-{number}": "password" for name in PEOPLE})
    with_pubsub(server)
    with_rooms(server)
    with server:
        yield server


@pytest.fixture(scope="module")
def admin(real: Server) -> Iterator[TlsSocket]:
    """The connection of the account that owns all nodes."""
    connection = log_in(real, ADMIN)
    yield connection
    connection.close()


@pytest.mark.parametrize("number", range(len(SCRIPTS)), ids=[one.__name__ for one in SCRIPTS])
def test_the_kit_behaves_as_the_server_does(real: Server, admin: TlsSocket, number: int) -> None:
    kind: OfflineStorage = "prosody" if real.name == "prosody" else "ejabberd"
    stage = OnServer(real, kind, number, admin)
    assert in_memory(SCRIPTS[number], kind, number) == on_server(SCRIPTS[number], stage)


def in_memory(script: Script, kind: OfflineStorage, number: int) -> list[str]:
    """Return the history of a script on the kit."""

    async def play() -> list[str]:
        async with anyio.create_task_group() as group:
            stage = InMemory(kind, number, group)
            await script(stage)
            await stage.settle()
            group.cancel_scope.cancel()
        return stage.history()

    return trio.run(play, clock=MockClock(autojump_threshold=0))


def on_server(script: Script, stage: OnServer) -> list[str]:
    """Return the history of a script on a real server."""

    async def play() -> list[str]:
        try:
            await script(stage)
            await stage.settle()
        finally:
            stage.close()
        return stage.history()

    return trio.run(play)
