"""The tables of durable tasks, empty, on both databases."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress

import pytest

from component.app.schema import SCHEMA
from component.store.database import Database
from component.store.postgres import PostgreSQL
from tests.component.tasks.ledger import Ledger
from tests.servers.postgres import Postgres


class EnoughError(Exception):
    """Nothing of a test stays."""


class Fresh:
    """Makes ledgers on PostgreSQL; each undoes what was done in the one before."""

    def __init__(self, engine: PostgreSQL) -> None:
        self._engine = engine
        self._open: AbstractContextManager[Database] | None = None

    def __call__(self) -> Ledger:
        self.undo()
        self._open = self._engine.transaction()
        return Ledger(self._open.__enter__())

    def undo(self) -> None:
        if self._open is not None:
            error = EnoughError()
            with suppress(EnoughError):
                self._open.__exit__(EnoughError, error, None)
            self._open = None


@pytest.fixture(scope="module")
def new_ledger(
    request: pytest.FixtureRequest, database_kind: str
) -> Iterator[Callable[[], Ledger]]:
    """Makes an empty ledger, one at a time."""
    if database_kind == "sqlite":
        yield Ledger
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    with server.migrated_database() as url:
        engine = PostgreSQL.open(url, SCHEMA)
        fresh = Fresh(engine)
        yield fresh
        fresh.undo()
        engine.close()
