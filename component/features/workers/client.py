"""The service's side of a queue, on the event loop: calls in flight, and what is known of workers.

All statements run in a thread, on one connection, and several calls share a transaction. A second
connection receives the notifications of workers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import msgspec
import structlog
from psycopg import Connection, Error, InterfaceError, OperationalError, sql

from component import system
from component.features.workers.messages import Offered, Outcome, Progress, Stopped, read_outcome
from component.features.workers.queue import ENDED
from component.features.workers.statements import NewCall, Statements, connect
from component.skills.errors import SkillLoadError, SkillUnavailable

if TYPE_CHECKING:
    from component.features.workers.settings import WorkersEntry

_log = structlog.get_logger("component.features.workers")

_MOST_AT_ONCE: Final = 100
_MOST_TAKEN: Final = 16  # results can be large
TICK_S: Final = 1.0
"""Seconds between two looks at the workers."""
_PURGE_TICKS: Final = 600
_LOOK_TICKS: Final = 5
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0

Report: TypeAlias = Callable[[float, str], Awaitable[None]]
_progress: Final = msgspec.json.Decoder(Progress)


class _Pending:
    def __init__(self, call: NewCall) -> None:
        self.call = call
        self.changed = anyio.Event()
        self.outcome: bytes | SkillUnavailable | None = None
        self.progress: Progress | None = None

    def end(self, outcome: bytes | SkillUnavailable) -> None:
        self.outcome = outcome
        self.changed.set()


class Client:
    """Sends calls to the workers of a queue.

    Attributes:
        reason: why the queue cannot be used now; empty if it can.
        offered: the skills of the queue.
        changed: set when `offered` has changed.
    """

    def __init__(self, entry: WorkersEntry) -> None:
        self.reason = "it has not connected yet"
        self.offered: list[Offered] = []
        self.changed = anyio.Event()
        self._entry = entry
        self._channel = f"xmpp_agent_{system.token_hex(16)}"
        self._pending: dict[str, _Pending] = {}
        self._unsent: dict[str, _Pending] = {}
        self._ended: set[str] = set()
        self._stops: set[str] = set()
        self._work = anyio.Event()
        self._stranded: set[str] = set()
        self._connected = 0.0
        self._ticks = 0
        self._tick = True

    async def run(self) -> None:
        """Serve calls until cancelled. Connections that break are made again."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._keep_ticking)
            group.start_soon(self._listen)
            await self._serve()

    def has_workers(self, lane: str) -> bool:
        """Return whether a worker that is alive has this version of a skill."""
        return any(one.lane == lane and one.workers for one in self.offered)

    async def call(self, call: NewCall, report: Report) -> Outcome:
        """Send a call, or follow one that was sent, and return its outcome.

        A call is not stopped when this is cancelled: see `stop`. Raises SkillUnavailable.
        """
        pending = self._pending.get(call.id)
        if pending is None:
            pending = self._pending[call.id] = self._unsent[call.id] = _Pending(call)
            self._work.set()
        try:
            return await self._follow(pending, report)
        finally:
            if pending.outcome is not None:
                self.forget(call.id)

    async def stop(self, id: str) -> Outcome:  # noqa: A002 - it is one
        """Stop a call whose `call` was cancelled, and return its outcome."""
        pending = self._pending.get(id)
        if pending is None:
            return Stopped(begun=True)
        if self._unsent.pop(id, None) is not None:
            return Stopped(begun=False)
        self._stops.add(id)
        self._work.set()
        return await self._follow(pending, _no_report)

    def forget(self, id: str) -> None:  # noqa: A002 - it is one
        """Stop following a call. It is sent all the same if it was about to be."""
        self._pending.pop(id, None)
        self._ended.discard(id)

    async def _follow(self, pending: _Pending, report: Report) -> Outcome:
        while pending.outcome is None:
            await pending.changed.wait()
            pending.changed = anyio.Event()
            if pending.outcome is None and pending.progress is not None:
                progress, pending.progress = pending.progress, None
                await report(min(max(progress.fraction, 0.0), 1.0), progress.text)
        if isinstance(pending.outcome, SkillUnavailable):
            raise pending.outcome
        return read_outcome(pending.outcome)

    # The connection for statements.

    async def _serve(self) -> None:
        wait = _FIRST_WAIT_S
        while True:
            statements = None
            try:
                statements = await system.in_thread(self._open)
                self._connected, wait = anyio.current_time(), _FIRST_WAIT_S
                while True:
                    await self._work.wait()
                    self._work = anyio.Event()
                    await self._do(statements)
            except (SkillLoadError, OperationalError, InterfaceError) as error:
                reason = " ".join(str(error).split())
                if self.reason != reason:
                    _log.warning(
                        "a queue of workers is not available",
                        queue=self._entry.queue,
                        reason=reason,
                        again_in_s=wait,
                    )
                self.reason = reason
                self.changed.set()
            finally:
                if statements is not None:
                    statements.close()
            await anyio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_S)
            self._tick = True
            self._work.set()

    def _open(self) -> Statements:
        entry = self._entry
        database = entry.database.get_secret_value()
        return Statements.open(database, entry.queue, entry.priority, self._channel)

    async def _do(self, statements: Statements) -> None:
        """Do everything that is waiting. What fails with the connection is done again."""
        if self._tick:
            await self._look(statements)
            self._tick = False
        while self._unsent:
            batch = dict(list(self._unsent.items())[:_MOST_AT_ONCE])
            for id in batch:  # noqa: A001 - it is one
                del self._unsent[id]
            try:
                self._ended.update(await self._send(statements, batch))
            except BaseException:
                self._unsent = {**batch, **self._unsent}
                raise
        while self._stops:
            ids = list(self._stops)[:_MOST_AT_ONCE]
            self._land(await system.in_thread(statements.stop, ids))
            self._stops.difference_update(ids)
        while self._ended:
            ids = list(self._ended)[:_MOST_TAKEN]
            most = 2 * self._entry.max_result_bytes
            self._land(await system.in_thread(statements.take, ids, most))
            self._ended.difference_update(ids)

    async def _send(self, statements: Statements, batch: Mapping[str, _Pending]) -> list[str]:
        """Send calls; return the ids of those that have ended already."""
        calls = [each.call for each in batch.values()]
        alone = [each.id for each in calls if not self.has_workers(each.lane)]
        ended: list[str] = []
        try:
            if alone:
                ended, unbegun = await system.in_thread(statements.follow, alone)
                self._land(unbegun)
                calls = [each for each in calls if each.id not in alone]
            if calls:
                ended += await system.in_thread(statements.send, calls)
        except (OperationalError, InterfaceError):
            raise
        except Error as error:
            reason = f"The queue of the workers refuses the call: {error}"
            for each in batch.values():
                each.end(SkillUnavailable(reason, begun=False))
            return []
        return ended

    def _land(self, outcomes: Mapping[str, bytes]) -> None:
        for id, outcome in outcomes.items():  # noqa: A001 - it is one
            if id in self._pending:
                self._pending[id].end(outcome)

    async def _keep_ticking(self) -> None:
        while True:
            await anyio.sleep(TICK_S)
            self._tick = True
            self._work.set()

    async def _look(self, statements: Statements) -> None:
        """Look for lost workers, ended calls, and changes of what is offered."""
        self._ticks += 1
        connected_s = anyio.current_time() - self._connected
        for name in await system.in_thread(statements.settle_lost, connected_s):
            _log.warning("a worker is lost", queue=self._entry.queue, worker=name)
        if self._pending and self._ticks % _LOOK_TICKS == 0:
            self._look_at_all()
        self._stranded = await system.in_thread(statements.defer_stranded, self._stranded)
        if self._ticks % _PURGE_TICKS == 1:
            await system.in_thread(statements.purge)
        known = {one.lane: one for one in self.offered}
        found = await system.in_thread(statements.offered, known)
        if self.reason or found != self.offered:
            self.reason, self.offered = "", found
            self.changed.set()

    def _look_at_all(self) -> None:
        """Look whether calls have ended whose notification was missed."""
        self._ended.update(self._pending.keys() - self._unsent.keys())
        self._work.set()

    # The connection for notifications.

    async def _listen(self) -> None:
        wait = _FIRST_WAIT_S
        while True:
            connection = None
            try:
                connection = await system.in_thread(self._connect)
                wait = _FIRST_WAIT_S
                self._look_at_all()
                while True:
                    await anyio.wait_readable(connection.fileno())
                    connection.pgconn.consume_input()
                    while (notified := connection.pgconn.notifies()) is not None:
                        self._notified(notified.extra.decode())
            except (SkillLoadError, Error):
                await anyio.sleep(wait)  # `_serve` logs why
                wait = min(wait * 2, _LONGEST_WAIT_S)
            finally:
                if connection is not None:
                    connection.close()

    def _connect(self) -> Connection[Any]:
        connection = connect(self._entry.database.get_secret_value())
        try:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        except BaseException:
            connection.close()
            raise
        return connection

    def _notified(self, payload: str) -> None:
        kind, rest = payload[:1], payload[1:]
        if kind == ENDED:
            if rest in self._pending:
                self._ended.add(rest)
                self._work.set()
            return
        try:
            progress = _progress.decode(rest)
        except ValueError:
            return
        if progress.call in self._pending:
            pending = self._pending[progress.call]
            pending.progress = progress
            pending.changed.set()


async def _no_report(_fraction: float, _text: str) -> None:
    pass
