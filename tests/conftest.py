"""What every test shares: both event loops, the hypothesis budgets, the real servers."""

import sqlite3
from asyncio import InvalidStateError
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from anyio._backends import _asyncio
from hypothesis import HealthCheck, settings

from component.connection.outbox import Outbox
from component.storage import migrations, sqlite
from tests import schemas
from tests.component.router.wire import ListOutput
from tests.memory_database import memory_database
from tests.profiles import PROFILE, THOROUGH
from tests.servers.fixtures import (
    ejabberd_server,
    make_ejabberd,
    make_prosody,
    make_server,
    prosody_server,
    pytest_runtest_makereport,
    xmpp_server,
)
from tests.servers.postgres import (
    make_postgres,
    migrated_url,
    open_storage,
    postgres_server,
    postgres_url,
    storage,
)

# pytest finds fixtures and hooks by their names in here.
__all__ = [
    "anyio_backend",
    "ejabberd_server",
    "make_ejabberd",
    "make_postgres",
    "make_prosody",
    "make_server",
    "migrated_url",
    "open_storage",
    "postgres_server",
    "postgres_url",
    "prosody_server",
    "pytest_runtest_makereport",
    "storage",
    "xmpp_server",
]

# No deadlines: on a busy machine they only measure the machine.
_SLOW_IS_FINE = (HealthCheck.too_slow,)
settings.register_profile(
    "quick", max_examples=30, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.load_profile(PROFILE)
_ALL_COMBINATIONS = "tests/component/storage/"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a test of both event loops and both databases twice instead of four times: once on each.

    Half of the tests have PostgreSQL on trio, the others on asyncio. `thorough` runs all four
    combinations, and so does a run that names a test.
    """
    if THOROUGH or any("::" in each for each in config.args):
        return
    kept, dropped = [], []
    for item in items:
        (kept if _is_combined(item) else dropped).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=dropped)


def _is_combined(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    loop, database = params.get("anyio_backend"), params.get("open_storage")
    if loop is None or database is None or item.nodeid.startswith(_ALL_COMBINATIONS):
        return True
    is_odd = crc32(item.nodeid.partition("[")[0].encode()) % 2 == 1
    return (loop == "trio") == ((database == "postgresql") == is_odd)


@pytest.fixture(scope="module", params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run every `pytest.mark.anyio` test on both event loops."""
    return str(request.param)


@pytest.fixture(autouse=True, scope="session")
def _a_race_of_anyio_is_no_failure() -> Iterator[None]:
    """On asyncio, anyio lets the readiness of a Unix socket set the result of a future directly. If
    the future is cancelled in the same pass of the loop, the callback raises, and nothing else
    happens.
    """
    handle = _asyncio.TestRunner._exception_handler

    def handle_others(self: Any, loop: Any, context: dict[str, Any]) -> None:
        callback = getattr(context.get("handle"), "_callback", None)
        sets_result = getattr(callback, "__name__", "") == "set_result"
        if not (sets_result and isinstance(context.get("exception"), InvalidStateError)):
            handle(self, loop, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_asyncio.TestRunner, "_exception_handler", handle_others)
        yield


@pytest.fixture(autouse=True, scope="session")
def _what_is_sent_is_valid() -> Iterator[None]:
    """Every element of urn:fluux:agent:0 that any test makes the component send fits its schema."""

    def checked(put: Callable[..., Any]) -> Callable[..., Any]:
        def put_checked(self: Any, stanza: str, *args: Any, **kwargs: Any) -> Any:
            schemas.check(stanza)
            return put(self, stanza, *args, **kwargs)

        return put_checked

    with pytest.MonkeyPatch.context() as patch:
        for output in (Outbox, ListOutput):
            patch.setattr(output, "put", checked(output.put))
        yield


@pytest.fixture(autouse=True, scope="session")
def _new_databases_are_copies() -> Iterator[None]:
    """A new SQLite database has the tables of this release from the start: it is a copy of one.

    Making them takes longer than most tests. Databases of earlier releases are migrated.
    """

    def migrate(connection: sqlite3.Connection, path: Path) -> None:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            with closing(memory_database()) as migrated:
                migrated.backup(connection)
        migrations.migrate(connection, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "migrate", migrate)
        yield
