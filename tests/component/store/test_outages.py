"""An outage of the database: one line a minute for all features, and one at its end."""

import threading
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import structlog
from structlog.testing import capture_logs

from component.app.schema import SCHEMA
from component.store import Storage
from component.store.database import Database
from component.store.errors import ConflictError, DiskFullError, StorageError
from component.store.outages import Outages, log_failure

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
FULL = "The database agent.db cannot grow."


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outages(clock: Clock) -> Outages:
    return Outages(clock, lambda: NOW)


def test_an_outage_is_one_line_a_minute_and_one_at_its_end(outages: Outages, clock: Clock) -> None:
    with capture_logs() as logs:
        for _ in range(121):
            for what in ("reads", "writes"):
                outages.failed(what, StorageError(FULL))
            clock.seconds += 1
        outages.succeeded("reads")
        assert outages.present is not None
        outages.succeeded("writes")
    assert outages.present is None
    assert [(line["event"], line["seconds"]) for line in logs] == [
        ("the database cannot be used", 0),
        ("the database cannot be used", 60),
        ("the database cannot be used", 120),
        ("the database can be used again", 121),
    ]
    assert logs[0]["reason"] == FULL


def test_an_outage_has_its_beginning_and_the_last_reason(outages: Outages) -> None:
    outages.failed("writes", StorageError("first"))
    outages.failed("writes", StorageError("second"))
    assert outages.present is not None
    assert (outages.present.since, outages.present.reason) == (NOW, "second")


def test_a_database_that_comes_and_goes_is_one_pair_of_lines_a_minute(
    outages: Outages, clock: Clock
) -> None:
    with capture_logs() as logs:
        for _ in range(30):
            outages.failed("writes", StorageError(FULL))
            outages.succeeded("writes")
            clock.seconds += 1
    assert len(logs) == 2


def test_a_full_disk_is_an_outage_until_there_is_space(clock: Clock) -> None:
    free = [False]
    outages = Outages(clock, lambda: NOW, has_room=lambda: free[0])
    with capture_logs() as logs:
        outages.failed("writes", DiskFullError(FULL))
        outages.succeeded("writes")  # a small one, in what a large one has left
        assert outages.present is not None
        free[0] = True
        outages.succeeded("writes")
        assert outages.present is None
    assert [line["event"] for line in logs] == [
        "the database cannot be used",
        "the database can be used again",
    ]


def test_a_deadlock_is_no_outage(outages: Outages) -> None:
    with capture_logs() as logs:
        outages.failed("writes", ConflictError("a deadlock"))
    assert (outages.present, logs) == (None, [])


def test_lines_of_features_are_left_to_the_outage(outages: Outages) -> None:
    log = structlog.get_logger()
    known = StorageError(FULL)
    outages.failed("reads", known)
    with capture_logs() as logs:
        log_failure(log, "schedules have to wait", known, seconds=5)
        log_failure(log, "schedules have to wait", StorageError("a file is missing"))
    assert [(line["log_level"], line["reason"]) for line in logs] == [
        ("debug", FULL),
        ("warning", "a file is missing"),
    ]


@pytest.mark.anyio
async def test_the_present_outage_is_known_although_other_writes_wait_for_the_database(
    tmp_path: Path,
) -> None:
    go_on = threading.Event()
    async with Storage.open(SCHEMA, tmp_path) as storage, anyio.create_task_group() as group:
        storage._outages.failed("writes", StorageError("The server is away."))
        begun = threading.Event()

        def write(_: Database) -> None:
            begun.set()
            go_on.wait()

        group.start_soon(storage.write, write)
        await anyio.to_thread.run_sync(begun.wait)
        found = await storage.find_outage(within_s=0.01)
        go_on.set()
    assert found is not None
    assert found.reason == "The server is away."
