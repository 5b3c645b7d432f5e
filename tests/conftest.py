"""What every test shares: its ring, its seed, the budgets of hypothesis, the real servers."""

import gc
import random
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from trio._core._run import _r as trio_random
from xdist.scheduler import LoadScopeScheduling

from component.app.schema import SCHEMA
from component.link.messages.outbox import Outbox
from component.store import sqlite
from component.store.schema import Schema, make_sqlite
from tests import hanging, rings, scheduling, schemas
from tests.component.link.router.wire import ListOutput
from tests.logs import plain_logs
from tests.memory_database import memory_database
from tests.profiles import SEED, THOROUGH
from tests.servers.fixtures import (
    ejabberd_server,
    make_ejabberd,
    make_prosody,
    make_server,
    prosody_server,
    pytest_runtest_makereport,
    server_kind,
    xmpp_server,
)
from tests.servers.postgres import (
    database_kind,
    make_postgres,
    migrated_url,
    open_storage,
    postgres_server,
    postgres_url,
    storage,
)
from tests.simulation import report

# pytest finds fixtures and hooks by their names in here.
__all__ = [
    "anyio_backend",
    "database_kind",
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
    "server_kind",
    "storage",
    "xmpp_server",
]

_BEFORE_FULL_COLLECTION: Final = 100
"""Collections of the middle generation between two full ones; Python has 10."""

plain_logs()
# No deadlines: on a busy machine they only measure the machine.
settings.register_profile(
    "gate",
    max_examples=20,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough",
    max_examples=2000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("thorough" if THOROUGH else "gate")


def pytest_configure(config: pytest.Config) -> None:
    """Collect no garbage while tests are collected: there is none, and looking takes a third."""
    gc.disable()
    hanging.watch(config)


def pytest_collection_finish() -> None:
    """Do not examine objects that exist for the whole run, and seldom those of many tests: full
    collections took a tenth of the time of all tests.
    """
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _BEFORE_FULL_COLLECTION)
    gc.enable()


def pytest_report_header() -> str:
    """Show the seed of the run, and how to repeat it."""
    how = f"TEST_SEED={SEED} make thorough" if THOROUGH else "make test"
    return f"seed: {SEED} (repeat with: {how})"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how much was simulated, and how to run each failed test alone."""
    report.summarize(terminalreporter)
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    if failed:
        terminalreporter.section("run one of these again with")
        for nodeid in dict.fromkeys(report.nodeid for report in failed):
            terminalreporter.line(f"make test T={shlex.quote(nodeid)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat the test as its ring says."""
    rings.repeat(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its ring, and leave thorough ones to `make thorough`. The tests of the
    shared servers take longest, so they come first.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(scheduling.SHARED))
    rings.mark(items)
    rings.without_thorough(config, items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadScopeScheduling":
    """Run the tests of a file one after the other, and those of the shared servers in two
    processes.
    """
    return scheduling.ByFile(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let each test draw the same numbers, alone and after others: trio shuffles its tasks."""
    random.seed(SEED)
    trio_random.seed(SEED)


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop: which one depends on the ring of the test (`tests/rings.py`)."""
    return str(getattr(request, "param", "trio"))


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

    Making them takes longer than most tests.
    """

    def make(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
        is_new = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        if is_new and schema is SCHEMA:
            with closing(memory_database()) as made:
                made.backup(connection)
        make_sqlite(connection, path, schema)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "make_sqlite", make)
        yield
