"""What a service does with its queue, on a real database, without a worker."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from procrastinate.exceptions import ConnectorException
from psycopg import OperationalError
from psycopg_pool import AsyncConnectionPool

from component.features.workers.messages import Stopped, read_outcome
from component.features.workers.program.rows import WorkerRows
from component.features.workers.queue import MOST_ATTEMPTS, conninfo
from component.features.workers.statements import NewCall, Statements
from component.skills.errors import SkillLoadError
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def url(postgres_server: Postgres) -> str:
    return postgres_server.new_database()


@pytest.fixture
def queue(url: str) -> Iterator[Statements]:
    statements = Statements.open(url, "q", 0, "channel")
    statements.connection.execute("TRUNCATE calls, offers, workers, procrastinate_jobs CASCADE")
    yield statements
    statements.close()


def new(id: str, **how: Any) -> NewCall:  # noqa: A002 - it is one
    call = {"lane": "lane", "message": b"m", "repeatable": False, "seconds": 60.0}
    return NewCall(id=id, **(call | how))


def one(queue: Statements, statement: str) -> Any:
    row = queue.connection.execute(statement).fetchone()
    assert row is not None
    return row[0]


jobs = partial(one, statement="SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_version_is_never_announced_without_its_worker(queue: Statements, url: str) -> None:
    async with AsyncConnectionPool(conninfo(url), min_size=1, max_size=1) as pool:
        rows = WorkerRows(pool, "w", "q", "one", 60.0)
        await rows.announce({"lane": ("greet", "{}"), "another": ("part", "{}")})
    assert {one.name: one.workers for one in queue.offered({})} == {
        "greet": ("one",),
        "part": ("one",),
    }


def test_a_call_that_is_sent_again_waits_once(queue: Statements) -> None:
    assert queue.send([new("a"), new("b")]) == []
    assert queue.send([new("a", message=b"again")]) == []
    assert one(queue, "SELECT count(*) FROM calls") == 2
    assert one(queue, "SELECT message FROM calls WHERE id = 'a'") == b"again"


@pytest.mark.parametrize(("repeatable", "state"), [(False, "ended"), (True, "waiting")])
def test_only_a_repeatable_call_begins_again_after_a_failure(
    queue: Statements, repeatable: bool, state: str
) -> None:
    queue.send([new("a", repeatable=repeatable)])
    queue.stop(["a"])
    assert queue.send([new("a", repeatable=repeatable)]) == ([] if repeatable else ["a"])
    assert one(queue, "SELECT state FROM calls") == state


def test_a_call_that_nobody_has_begun_is_withdrawn_with_its_job(queue: Statements) -> None:
    queue.send([new("a")])
    assert jobs(queue) == 1
    found = queue.stop(["a", "unknown"])
    assert read_outcome(found["a"]) == Stopped(begun=False)
    assert jobs(queue) == 0
    assert queue.stop(["a"]) == {}


def test_without_a_worker_only_calls_that_have_begun_are_followed(queue: Statements) -> None:
    queue.send([new("waiting"), new("running")])
    queue.connection.execute("UPDATE calls SET state = 'running' WHERE id = 'running'")
    ended, unbegun = queue.follow(["waiting", "running", "never-sent"])
    assert ended == []
    assert unbegun.keys() == {"waiting", "never-sent"}
    assert read_outcome(unbegun["waiting"]) == Stopped(begun=False, lost=True)


def test_the_calls_of_a_lost_worker_are_settled_by_their_effects(queue: Statements) -> None:
    queue.send([new("once"), new("again", repeatable=True)])
    execute = queue.connection.execute
    execute(
        "INSERT INTO workers (id, queue, name, lanes, lost_after, seen)"
        " VALUES ('w', 'q', 'one', '{lane}', interval '5s', now() - interval '6s')"
    )
    execute("UPDATE calls SET state = 'running', worker = 'w', fence = 1")
    # Just connected: the worker may not have been able to show that it is alive.
    assert queue.settle_lost(connected_s=4.0) == []
    assert queue.settle_lost(connected_s=6.0) == ["one"]
    assert one(queue, "SELECT state FROM calls WHERE id = 'again'") == "waiting"
    (outcome,) = queue.take(["once", "again"], 1000).values()
    assert read_outcome(outcome) == Stopped(begun=True, lost=True, worker="one")


def test_a_repeatable_call_begins_again_only_so_often(queue: Statements) -> None:
    queue.send([new("again", repeatable=True), new("given up", repeatable=True)])
    execute = queue.connection.execute
    for attempts, id in ((MOST_ATTEMPTS - 1, "again"), (MOST_ATTEMPTS, "given up")):  # noqa: A001 - it is one
        execute(
            "UPDATE calls SET state = 'running', worker = 'gone', fence = 1, attempts = %s"
            " WHERE id = %s",
            (attempts, id),
        )
    queue.settle_lost(connected_s=0.0)
    assert one(queue, "SELECT state FROM calls WHERE id = 'again'") == "waiting"
    (outcome,) = queue.take(["again", "given up"], 1000).values()
    assert read_outcome(outcome) == Stopped(begun=True, lost=True)


def test_a_call_whose_job_is_gone_gets_another_one_at_the_second_sight(queue: Statements) -> None:
    queue.send([new("a")])
    queue.connection.execute("DELETE FROM procrastinate_jobs")
    seen = queue.defer_stranded(set())
    assert (seen, jobs(queue)) == ({"a"}, 0)
    assert queue.defer_stranded(seen) == set()
    assert jobs(queue) == 1
    assert queue.defer_stranded(set()) == set()


def test_an_outcome_that_is_too_large_or_deleted_is_unknown(queue: Statements) -> None:
    queue.send([new("a")])
    queue.connection.execute("UPDATE calls SET state = 'ended', outcome = 'long', ended = now()")
    assert queue.take(["a"], 4)["a"] == b"long"
    assert read_outcome(queue.take(["a"], 3)["a"]) == Stopped(begun=True)
    queue.connection.execute("UPDATE calls SET taken = now() - interval '2 hours'")
    queue.purge()
    assert read_outcome(queue.take(["a"], 1000)["a"]) == Stopped(begun=True)
    queue.connection.execute("UPDATE calls SET ended = now() - interval '8 days'")
    queue.purge()
    assert queue.take(["a"], 1000) == {}


def test_a_lost_connection_is_an_error_of_the_driver(
    queue: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConnectorException from OperationalError("the connection is lost")

    monkeypatch.setattr(queue._jobs, "batch_defer_jobs", fail)
    with pytest.raises(OperationalError, match="is lost"):
        queue.send([new("a")])
    assert one(queue, "SELECT count(*) FROM calls") == 0


@pytest.mark.parametrize(
    ("database", "what"),
    [("postgresql://a@127.0.0.1:1/a", "cannot be reached"), ("port=x y", "is not valid")],
)
def test_a_database_that_cannot_be_used_is_said(database: str, what: str) -> None:
    with pytest.raises(SkillLoadError, match=what):
        Statements.open(database, "q", 0, "channel")
