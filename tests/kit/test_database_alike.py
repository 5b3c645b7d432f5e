"""The faults of a simulated database are like real ones: the same script has the same results."""

import threading
from collections.abc import Callable
from typing import Literal, cast

import psycopg
import pytest

from component import system
from component.store.postgres import PostgreSQL
from tests.kit import anyio_backend
from tests.kit.database import Database, shared_database
from tests.kit.database_script import (
    CANCELLED,
    LOST,
    SCHEMA,
    STOPPED,
    UNANSWERED,
    Outcome,
    Work,
    play,
)
from tests.kit.system import SimulatedSystem
from tests.servers.postgres import Databases, Postgres
from tests.servers.proxy import Pair, Proxy

__all__ = ["anyio_backend"]
pytestmark = [pytest.mark.anyio, pytest.mark.servers]
Scene = Callable[[Work], Outcome]


class Simulated:
    """The faults of the kit."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.stop, self.start = database.stop, database.start
        self.cancel, self.lose_commit = database.cancel, database.lose_commit

    def end(self) -> None:
        for session in [*self._database.sessions]:
            self._database.end(session)


class Real:
    """What an admin of a real server does."""

    def __init__(self, url: str) -> None:
        self._url = url

    def end(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'xmpp-agent'"
            )

    def stop(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def cancel(self) -> None:
        threading.Thread(target=self._cancel).start()

    def _cancel(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as admin:
            while not admin.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event = 'PgSleep'"
            ).fetchall():
                pass

    def lose_commit(self) -> None:
        raise NotImplementedError


class Stopped(Real):
    """The same, and the server stops in one way or the other."""

    def __init__(self, url: str, server: Postgres, how: Literal["immediate", "fast"]) -> None:
        super().__init__(url)
        self._server, self._how = server, how

    def stop(self) -> None:
        self._server.stop(self._how)

    def start(self) -> None:
        self._server.start()


class Way(Proxy):
    """A way to a server that breaks in the middle, also between a commit and its answer."""

    loses_commit = False

    def passing(self, pair: Pair, data: bytes, *, to_server: bool) -> None:
        if self.loses_commit and not to_server and b"COMMIT\0" in data:
            self.loses_commit = False
            pair.frozen = True
            self.cut_frozen()


class Cut(Real):
    """Those of the way to a server."""

    def __init__(self, url: str, way: Way) -> None:
        super().__init__(url)
        self._way = way

    def end(self) -> None:
        self._way.cut()

    def lose_commit(self) -> None:
        self._way.loses_commit = True


@pytest.fixture(scope="module")
def url(postgres_server: Databases) -> str:
    """A database with the tables of the script, on the server of the run."""
    return migrated(postgres_server)


@pytest.fixture
def own(make_postgres: Callable[[], Postgres]) -> tuple[Postgres, str]:
    """A server that the test stops, and the same on it."""
    server = make_postgres()
    return server, migrated(server)


def migrated(server: Databases) -> str:
    """Make the tables of the script."""
    url = server.new_database()
    PostgreSQL.open(url, SCHEMA).close()
    return url


async def simulated(scene: Scene, url: str) -> Outcome:
    """Play with the simulated faults, on the event loop, as the services of the kit do."""
    before = system.current()
    system.use(SimulatedSystem(0))
    try:
        with shared_database(url, lambda: cast("SimulatedSystem", system.current())) as database:
            return play(scene, url, Simulated(database))
    finally:
        system.use(before)


@pytest.mark.parametrize("scene", LOST + CANCELLED)
async def test_sessions_end_and_statements_are_cancelled_as_by_an_admin(
    scene: Scene, url: str
) -> None:
    assert play(scene, url, Real(url)) == await simulated(scene, url)


@pytest.mark.parametrize("scene", LOST + UNANSWERED)
async def test_connections_are_lost_as_those_that_a_network_cuts(
    scene: Scene, postgres_server: Databases, url: str
) -> None:
    with Way("127.0.0.1", postgres_server.port) as way:
        through = url.replace(f":{postgres_server.port}/", f":{way.port}/")
        real = play(scene, through, Cut(url, way))
    assert real == await simulated(scene, url)


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_the_server_stops_like_a_real_one(
    how: Literal["immediate", "fast"], own: tuple[Postgres, str]
) -> None:
    server, url = own
    for scene in STOPPED:
        real = play(scene, url, Stopped(url, server, how))
        assert real == await simulated(scene, url), scene.__name__
