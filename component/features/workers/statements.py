"""What a service does with its queue, as transactions on one connection. Not for an event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

import msgspec
import procrastinate
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from psycopg import Connection, Error, ProgrammingError
from psycopg.rows import TupleRow

from component.features.workers.messages import Offered, Stopped, encode
from component.features.workers.queue import (
    ENDED,
    FORGET,
    KEEP,
    KEEP_OUTCOME,
    MOST_ATTEMPTS,
    TASK,
    conninfo,
    create_tables,
)
from component.skills.errors import SkillLoadError

_CONNECT_S: Final = 10
_UNBEGUN: Final = encode(Stopped(begun=False))
_NO_WORKER: Final = encode(Stopped(begun=False, lost=True))
_GONE: Final = encode(Stopped(begun=True))


class NewCall(msgspec.Struct, frozen=True):
    """A call to send.

    `id` is the same whenever the call is sent again. `message` is an encoded `CallMessage`;
    `seconds` are left for waiting and running.
    """

    id: str
    lane: str
    message: bytes
    repeatable: bool
    seconds: float


class Statements:
    """The transactions.

    Args:
        connection: a connection with autocommit, which sees only the tables of queues.
        channel: the channel on which the service is notified.
    """

    def __init__(
        self, connection: Connection[TupleRow], queue: str, priority: int, channel: str
    ) -> None:
        self.connection = connection
        self._queue = queue
        self._priority = priority
        self._channel = channel
        connector = procrastinate.SyncPsycopgConnector()  # never opened: it gets our connection
        self._jobs = procrastinate.App(connector=connector).job_manager

    @classmethod
    def open(cls, database: str, queue: str, priority: int, channel: str) -> Self:
        """Connect, and create the tables if they do not exist. Raises SkillLoadError."""
        connection = connect(database)
        try:
            create_tables(connection)
        except Error as error:
            connection.close()
            raise SkillLoadError(f"the tables of the queue cannot be created: {error}") from error
        return cls(connection, queue, priority, channel)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Error):
            self.connection.close()

    def send(self, calls: Sequence[NewCall]) -> list[str]:
        """Send calls; return the ids of those that have ended already.

        A call that was sent before is followed, not sent again. One that nobody has begun, or that
        has failed and is repeatable, begins again.
        """
        connection, ids = self.connection, [each.id for each in calls]
        with connection.transaction():
            connection.execute(
                "DELETE FROM calls WHERE id = ANY(%s)"
                " AND (state = 'waiting' OR (state = 'ended' AND failed AND repeatable))",
                (ids,),
            )
            found = connection.execute(
                "INSERT INTO calls"
                " (id, queue, lane, message, repeatable, priority, channel, expires)"
                " SELECT id, %s, lane, message, repeatable, %s, %s, now() + seconds * interval '1s'"
                " FROM unnest(%s::text[], %s::text[], %s::bytea[], %s::boolean[], %s::float8[])"
                " AS new (id, lane, message, repeatable, seconds) ORDER BY id"
                " ON CONFLICT (id) DO UPDATE SET channel = excluded.channel"
                " RETURNING id, lane, priority, state",
                (
                    self._queue,
                    self._priority,
                    self._channel,
                    ids,
                    [each.lane for each in calls],
                    [each.message for each in calls],
                    [each.repeatable for each in calls],
                    [each.seconds for each in calls],
                ),
            ).fetchall()
            self._defer([row[:3] for row in found if row[3] == "waiting"])
        return [call for call, _, _, state in found if state == "ended"]

    def _defer(self, calls: Sequence[tuple[Any, ...]]) -> None:
        """Make jobs for calls: ids, lanes and priorities."""
        if not calls:
            return
        jobs = [
            Job(
                id=None,
                task_name=TASK,
                queue=lane,
                priority=priority,
                lock=None,
                queueing_lock=None,
                task_kwargs={"call": call},
            )
            for call, lane, priority in calls
        ]
        with _driver_errors():
            made = self._jobs.batch_defer_jobs(jobs, connection=self.connection)
        self.connection.execute(
            "UPDATE calls SET job = new.job"
            " FROM unnest(%s::text[], %s::bigint[]) AS new (id, job) WHERE calls.id = new.id",
            ([each[0] for each in calls], [each.id for each in made]),
        )

    def take(self, ids: Sequence[str], most_bytes: int) -> dict[str, bytes]:
        """Return the outcomes of those calls that have ended."""
        found = self.connection.execute(
            "UPDATE calls SET taken = coalesce(taken, now())"
            " WHERE id = ANY(%s) AND state = 'ended'"
            " RETURNING id, CASE WHEN octet_length(outcome) <= %s THEN outcome END",
            (list(ids), most_bytes),
        ).fetchall()
        return {call: _GONE if outcome is None else bytes(outcome) for call, outcome in found}

    def stop(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Stop calls; return the outcomes of those that nobody has begun. Workers abort others."""
        with self.connection.transaction():
            unbegun = self._withdraw(ids, _UNBEGUN)
            running = self.connection.execute(
                "SELECT job FROM calls WHERE id = ANY(%s) AND state = 'running'", (list(ids),)
            ).fetchall()
            for (job,) in running:
                with _driver_errors():
                    self._jobs.cancel_job_by_id(job, abort=True, connection=self.connection)
        return dict.fromkeys(unbegun, _UNBEGUN)

    def follow(self, ids: Sequence[str]) -> tuple[list[str], dict[str, bytes]]:
        """Follow calls that were sent before, while no worker could begin them.

        Return the ids of those that have ended already, and the outcomes of those that nobody has
        begun.
        """
        with self.connection.transaction():
            self._withdraw(ids, _NO_WORKER)
            begun: dict[str, str] = dict(
                self.connection.execute(
                    "UPDATE calls SET channel = %s WHERE id = ANY(%s) AND outcome IS DISTINCT FROM"
                    " %s RETURNING id, state",
                    (self._channel, list(ids), _NO_WORKER),
                ).fetchall()
            )
        unbegun = {call: _NO_WORKER for call in ids if call not in begun}
        return [call for call, state in begun.items() if state == "ended"], unbegun

    def _withdraw(self, ids: Sequence[str], outcome: bytes) -> list[str]:
        """End the calls that nobody has begun; return their ids."""
        found = self.connection.execute(
            "UPDATE calls SET state = 'ended', failed = true, ended = now(), outcome = %s"
            " WHERE id = ANY(%s) AND state = 'waiting' RETURNING id, job",
            (outcome, list(ids)),
        ).fetchall()
        for _, job in found:
            with _driver_errors():
                self._jobs.cancel_job_by_id(job, delete_job=True, connection=self.connection)
        return [call for call, _ in found]

    def settle_lost(self, connected_s: float) -> list[str]:
        """Take back the running calls of lost workers; return the names of these workers.

        Repeatable ones wait again, the outcome of others is unknown. The service has been connected
        for `connected_s` seconds: after an outage of the database, workers have their time to show
        that they are alive.
        """
        connection = self.connection
        with connection.transaction():
            lost = connection.execute(
                "DELETE FROM workers WHERE id IN (SELECT id FROM workers"
                " WHERE seen < now() - lost_after AND lost_after < %s * interval '1s'"
                " FOR UPDATE SKIP LOCKED) RETURNING id, name",
                (connected_s,),
            ).fetchall()
            names: dict[str, str] = dict(lost)
            orphans = connection.execute(
                "SELECT id, lane, priority, repeatable AND attempts < %s, worker FROM calls"
                " WHERE state = 'running'"
                " AND NOT EXISTS (SELECT FROM workers WHERE workers.id = calls.worker)"
                " ORDER BY id FOR UPDATE SKIP LOCKED",
                (MOST_ATTEMPTS,),
            ).fetchall()
            again = [each[:3] for each in orphans if each[3]]
            connection.execute(
                "UPDATE calls SET state = 'waiting', worker = NULL, fence = NULL"
                " WHERE id = ANY(%s)",
                ([each[0] for each in again],),
            )
            self._defer(again)
            unknown = [each for each in orphans if not each[3]]
            outcomes = [
                encode(Stopped(begun=True, lost=True, worker=names.get(each[4], "")))
                for each in unknown
            ]
            connection.execute(
                "UPDATE calls SET state = 'ended', fence = NULL, failed = true, ended = now(),"
                " outcome = new.outcome"
                " FROM unnest(%s::text[], %s::bytea[]) AS new (id, outcome)"
                " WHERE calls.id = new.id RETURNING pg_notify(channel, %s || calls.id)",
                ([each[0] for each in unknown], outcomes, ENDED),
            )
        return sorted(names.values())

    def defer_stranded(self, before: Collection[str]) -> set[str]:
        """Make new jobs for calls that wait although their job is gone, and were so `before`.

        Return those that are so now. Their worker was lost, or stopped, just before it began them;
        usually one is about to begin, so nothing is done at the first sight.
        """
        with self.connection.transaction():
            found = self.connection.execute(
                "SELECT id, lane, priority FROM calls WHERE queue = %s AND state = 'waiting'"
                " AND expires > now() AND NOT EXISTS"
                " (SELECT FROM procrastinate_jobs j WHERE j.id = calls.job AND j.status = 'todo')"
                " ORDER BY id FOR UPDATE SKIP LOCKED",
                (self._queue,),
            ).fetchall()
            self._defer([each for each in found if each[0] in before])
        return {each[0] for each in found} - set(before)

    def purge(self) -> None:
        """Delete what is not needed any more."""
        old_outcomes = (
            "UPDATE calls SET outcome = NULL WHERE state = 'ended' AND outcome IS NOT NULL"
            " AND NOT asked AND taken < now() - %s::interval"
        )
        ended = "DELETE FROM calls WHERE state = 'ended' AND ended < now() - %s::interval"
        expired = "DELETE FROM calls WHERE state = 'waiting' AND expires < now() - %s::interval"
        unknown = "DELETE FROM offers WHERE seen < now() - %s::interval"
        for statement, interval in (
            (old_outcomes, KEEP_OUTCOME),
            (ended, KEEP),
            (expired, KEEP),
            (unknown, FORGET),
        ):
            self.connection.execute(statement, (interval,))

    def offered(self, known: Mapping[str, Offered]) -> list[Offered]:
        """Return the skills of the queue, the version announced last first.

        `known` are those returned before, by lane: their descriptions are not read again.
        """
        rows = self.connection.execute(
            "SELECT o.lane, array_agg(w.name ORDER BY w.name) FILTER (WHERE w.id IS NOT NULL)"
            " FROM offers o LEFT JOIN workers w ON w.queue = o.queue AND o.lane = ANY(w.lanes)"
            " AND w.seen >= now() - w.lost_after"
            " WHERE o.queue = %s AND o.seen >= now() - %s::interval"
            " GROUP BY o.lane, o.seen ORDER BY o.seen DESC, o.lane",
            (self._queue, FORGET),
        ).fetchall()
        described = self._described([lane for lane, _ in rows if lane not in known])
        found = []
        for lane, workers in rows:
            one = known.get(lane) or described.get(lane)
            if one is not None:  # it can have been deleted in between
                found.append(msgspec.structs.replace(one, workers=tuple(workers or ())))
        return found

    def _described(self, lanes: Sequence[str]) -> dict[str, Offered]:
        if not lanes:
            return {}
        rows: Iterable[tuple[str, str, str]] = self.connection.execute(
            "SELECT lane, skill, description FROM offers WHERE queue = %s AND lane = ANY(%s)",
            (self._queue, list(lanes)),
        ).fetchall()
        return {lane: Offered(skill, lane, description) for lane, skill, description in rows}


@contextlib.contextmanager
def _driver_errors() -> Iterator[None]:
    """Raise the errors of psycopg that procrastinate wraps, as all other statements do."""
    try:
        yield
    except ConnectorException as error:
        if isinstance(error.__cause__, Error):
            raise error.__cause__ from error
        raise


def connect(database: str) -> Connection[TupleRow]:
    """Connect to the database of a queue. Raises SkillLoadError."""
    try:
        return Connection.connect(
            conninfo(database),
            autocommit=True,
            connect_timeout=_CONNECT_S,
            application_name="xmpp-agent",
        )
    except ProgrammingError as error:
        raise SkillLoadError(f"the connection string of the queue is not valid: {error}") from error
    except Error as error:
        raise SkillLoadError(
            "the database of the queue cannot be reached: " + " ".join(str(error).split())
        ) from error
