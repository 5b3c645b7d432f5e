"""A worker for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.component.features.workers.support import WorkerProgram, workers
from tests.component.sandbox.unreported import no_confinement_report
from tests.servers.postgres import Postgres

__all__ = ["no_confinement_report"]


@pytest.fixture(scope="module")
def queue_url(postgres_server: Postgres) -> str:
    """The database of a queue."""
    return postgres_server.new_database()


@pytest.fixture(scope="module")
def worker(queue_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProgram]:
    """A worker that runs as long as the module's tests, on `queue_url`."""
    with workers(tmp_path_factory.mktemp("worker"), queue_url) as (running,):
        yield running
