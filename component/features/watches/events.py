"""The events of watches, from their record to the start of their work.

An event is recorded in the same transaction as the item it comes from, so that a kill at any moment
neither loses nor doubles it. Its work is started afterwards, by a key that is the same however
often that is tried. Functions take the `Database` of one operation.

A rate counts starts in windows. The first event opens a window. When a window is full, an event
above the rate makes one start that is due when the window ends, which is the first start of the
next window; until then further events join it (`digest`), replace what it has (`latest`), or, by
the policy `drop`, there is no such start. A watch that starts work too often in an hour is stopped
by the breaker, because two programs that trigger each other would never stop.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import anyio
import msgspec
import structlog

from component.features.watches.filters import FilterError
from component.features.watches.rows import (
    RetryingStorage,
    SourceRows,
    item_key,
    note_chain,
    noted_chain,
)
from component.features.watches.watch import Observed, Watch
from component.kernel.goals import turn_of
from component.kernel.started_work import task_of
from component.kernel.task_starter import TaskStarter
from component.kernel.triggers import Trigger
from component.policy.taint import Taint
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from xep.stanza_error import StanzaError

MOST_PENDING: Final = 5_000
"""Events of one watch that wait to be started; the rate policy applies to more."""
MOST_IN_DIGEST: Final = 50
"""Events whose content a digest has, the latest ones; it counts all."""

HOUR_MS: Final = 3_600_000

Verdict: TypeAlias = Literal["start", "join", "drop", "trip"]
"""Start work, join the start `RateCounters.waiting`, drop the event, or stop the watch."""


class OfferedEvent(msgspec.Struct, frozen=True):
    """An event of a source, and the ids of the watches that are interested in it. `data` is the
    JSON of its `component.features.watches.watch.EventData`.
    """

    observed: Observed
    watches: tuple[str, ...]
    data: bytes


class Accepted(msgspec.Struct):
    """The outcome of recording the events of one transaction. `new` says how many of them were not
    seen before. `cut` has the ids of watches with events that were cut, because too many agents led
    to them.
    """

    new: int = 0
    starts: int = 0
    thinned: int = 0
    cut: list[str] = msgspec.field(default_factory=list)
    tripped: list[str] = msgspec.field(default_factory=list)


class Pending(msgspec.Struct, frozen=True):
    """An event whose work is to be started; `due` says in how many milliseconds."""

    watch: str
    number: int
    key: str
    due: int
    data: bytes
    chain: tuple[str, ...]


class RateCounters(msgspec.Struct):
    """The counters on which the decisions for one watch depend; stored in its row.

    Attributes:
        waiting: the number of the start that events above the rate join; 0 if there is none.
        window_at: when the current window begins, in milliseconds; in the future while a start
            waits for it.
        hour_at: when the hour of the breaker began, in milliseconds.
    """

    last_number: int = 0
    waiting: int = 0
    window_at: int = 0
    window_starts: int = 0
    hour_at: int = 0
    hour_starts: int = 0


def decide_start(
    counters: RateCounters, watch: Watch, now: int, *, has_room: bool
) -> tuple[Verdict, int]:
    """Decide on one event and change the counters. `now` is the time in milliseconds on the
    steady clock. `has_room` says whether another start may wait now; if not, the event is
    above the rate. Returns the verdict, and for a start when it is due.
    """
    window_ms = int(watch.rate.seconds * 1000)
    if now < counters.window_at:
        if counters.waiting:  # a start waits for the window
            return ("drop", 0) if watch.thinning == "drop" else ("join", counters.window_at)
        # The clock has gone back by less than counts as a jump, or the watch was emptied.
        now = counters.window_at
    if now >= counters.window_at + window_ms:
        counters.window_at, counters.window_starts, counters.waiting = now, 0, 0
    if counters.window_starts < watch.rate.events and has_room:
        counters.waiting = 0
        return _start(counters, watch, now, now)
    if watch.thinning == "drop":
        return "drop", 0
    due = counters.window_at + window_ms
    verdict = _start(counters, watch, now, due)
    if verdict[0] == "start":
        counters.window_at, counters.window_starts = due, 1
        counters.waiting = counters.last_number
    return verdict


def _start(counters: RateCounters, watch: Watch, now: int, due: int) -> tuple[Verdict, int]:
    if now >= counters.hour_at + HOUR_MS:
        counters.hour_at, counters.hour_starts = now, 0
    if counters.hour_starts >= watch.starts_per_hour:
        return "trip", 0
    counters.hour_starts += 1
    counters.window_starts += 1
    counters.last_number += 1
    return "start", due


def accept(
    rows: SourceRows, offered: Sequence[OfferedEvent], watches: Mapping[str, Watch], max_hops: int
) -> Accepted:
    """Record events in their order: those that are new, for the watches interested in them. An
    event is new if its item was not seen, or has another version now. Of several instances that
    record the same event, one finds it new.
    """
    accepted = Accepted()
    of_watch: dict[str, list[OfferedEvent]] = {}
    for each in offered:
        if each.observed.item and not rows.mark_seen(each.observed):
            continue
        accepted.new += 1
        for watch in each.watches:
            of_watch.setdefault(watch, []).append(each)
    for id_ in sorted(of_watch):  # in one order, so that two instances do not deadlock
        if id_ in watches:
            _accept_for(rows.database, watches[id_], of_watch[id_], max_hops, accepted)
    return accepted


def _accept_for(
    database: Database,
    watch: Watch,
    events: Sequence[OfferedEvent],
    max_hops: int,
    accepted: Accepted,
) -> None:
    within = [each for each in events if len(each.observed.chain) < max_hops]
    cut = len(events) - len(within)
    # The update locks the row, so that instances take numbers and shares of the rate in turn.
    found = database.execute(
        "UPDATE watches SET received = received + ?, cut = cut + ? WHERE id = ?"
        " RETURNING state, created, last_number, waiting, window_at, window_starts, hour_at,"
        " hour_starts",
        (len(events), cut, watch.id),
    ).fetchone()
    if found is None or found[0] != "active":
        return
    if cut:
        accepted.cut.append(watch.id)
    created, counters = int(found[1]), RateCounters(*map(int, found[2:]))
    pending, waiting = database.execute(
        "SELECT count(*), count(CASE WHEN number = ? THEN 1 END) FROM watch_events WHERE watch = ?",
        (counters.waiting, watch.id),
    ).fetchone() or (0, 0)
    room = MOST_PENDING - int(pending)
    if not waiting:
        counters.waiting = 0  # it was started, or the watch was emptied
    joined: list[OfferedEvent] = []
    thinned = 0
    tripped = ""
    for each in within:
        verdict, due = decide_start(counters, watch, database.steady, has_room=room > 0)
        if verdict == "start":
            observed = each.observed
            database.execute(
                "INSERT INTO watch_events (watch, number, key, due, events, data, chain)"
                " VALUES (?, ?, ?, ?, 1, ?, ?)",
                (
                    watch.id,
                    counters.last_number,
                    f"{created}.{counters.last_number} {item_key(observed.item)}",
                    due,
                    f"[{each.data.decode()}]",
                    " ".join(observed.chain),
                ),
            )
            room -= 1
            accepted.starts += 1
        elif verdict == "join":
            joined.append(each)
            thinned += 1
        elif verdict == "drop":
            thinned += 1
        else:
            tripped = (
                f"It has started work {watch.starts_per_hour} times within an hour, which looks"
                " like a loop."
            )
            accepted.tripped.append(watch.id)
            break
    # The time is the same for all of them, so no start comes after one that others join.
    _join(database, watch, counters.waiting, joined)
    accepted.thinned += thinned
    database.execute(
        "UPDATE watches SET last_number = ?, waiting = ?, window_at = ?, window_starts = ?,"
        " hour_at = ?, hour_starts = ?, thinned = thinned + ?, state = ?, reason = ? WHERE id = ?",
        (
            *msgspec.structs.astuple(counters),
            thinned,
            "tripped" if tripped else "active",
            tripped,
            watch.id,
        ),
    )


def _join(database: Database, watch: Watch, number: int, events: Sequence[OfferedEvent]) -> None:
    """Let events join the start with this number, or with `latest` the last one replace it."""
    if not events:
        return
    found = database.execute(
        "SELECT data, chain FROM watch_events WHERE watch = ? AND number = ?", (watch.id, number)
    ).fetchone()
    if found is None:  # the watch was emptied in between
        return
    data, chain = found
    longest = max((chain.split(), *(each.observed.chain for each in events)), key=len)
    if watch.thinning == "latest":
        raws = [msgspec.Raw(events[-1].data)]
    else:
        before = msgspec.json.decode(data, type=list[msgspec.Raw])
        raws = (before + [msgspec.Raw(each.data) for each in events])[-MOST_IN_DIGEST:]
    database.execute(
        "UPDATE watch_events SET data = ?, events = events + ?, chain = ?"
        " WHERE watch = ? AND number = ?",
        (msgspec.json.encode(raws).decode(), len(events), " ".join(longest), watch.id, number),
    )


def first_pending(database: Database) -> list[Pending]:
    """Return the first event of each watch that waits to be started, due or not."""
    first = "(watch, number) IN (SELECT watch, min(number) FROM watch_events GROUP BY watch)"
    return _select(database, first)


def next_pending(database: Database, watch: str) -> Pending | None:
    """Return the first event of a watch that waits to be started, if there is one."""
    return next(iter(_select(database, "watch = ? ORDER BY number LIMIT 1", watch)), None)


def _select(database: Database, where: str, *values: str) -> list[Pending]:
    found = database.execute(
        "SELECT watch, number, key, due, events, data, chain FROM watch_events"  # noqa: S608 - constants
        f" WHERE {where}",
        values,
    )
    return [_pending(database, row) for row in found.fetchall()]


def finish(database: Database, event: Pending, *, started: bool) -> Pending | None:
    """An event has been handled, or its work was refused. Returns the next one of its watch."""
    deleted = database.execute(
        "DELETE FROM watch_events WHERE watch = ? AND number = ?", (event.watch, event.number)
    )
    if deleted.rowcount:  # another instance may have counted it
        column = "started" if started else "refused"
        database.execute(
            f"UPDATE watches SET {column} = {column} + 1 WHERE id = ?",  # noqa: S608 - one of two
            (event.watch,),
        )
    return next_pending(database, event.watch)


def is_busy(database: Database, task: str) -> bool:
    """Whether a task has not ended, and waits neither for a person nor for an operator."""
    found = database.execute("SELECT state, set_aside FROM tasks WHERE id = ?", (task,)).fetchone()
    return found is not None and found[0] in _BUSY and found[1] is None


def _pending(database: Database, row: tuple[Any, ...]) -> Pending:
    watch, number, key, due, events, data, chain = row
    raws = msgspec.json.decode(data, type=list[msgspec.Raw])
    text = bytes(raws[-1])
    if events > 1:
        # The latest event, with all of them: parameters are filled alike from one and from many.
        more = msgspec.json.encode({"events": raws, "total": events})
        text = text[:-1] + b"," + more[1:]
    wait = max(0, int(due) - database.steady)
    return Pending(watch, number, key, wait, text, tuple(str(chain).split()))


_log = structlog.get_logger("component.watches")

_LOOK_S: Final = 2.0
"""Seconds between two looks for events that another instance has recorded."""
_POLL_S: Final = 0.5
"""Seconds between two looks at a task that may run on another instance."""
_FIRST_RETRY_S: Final = 0.5
_LONGEST_RETRY_S: Final = 30.0
_BUSY: Final = frozenset(("accepted", "running", "cancelling"))


class WatchStarts:
    """Starts the work of recorded events: for each watch one after another, in their order.

    The work of the next event of a watch is started when that of the previous one has ended, waits
    for a person, or is set aside until an operator decides. Several instances may do this at the
    same time: the starter records each event's work once, and an event is removed only after that.
    """

    def __init__(
        self, starter: TaskStarter, storage: RetryingStorage, find: Callable[[str], Watch | None]
    ) -> None:
        self._starter = starter
        self._storage = storage
        self._find = find
        self._wake = anyio.Event()
        self._handled: set[str] = set()
        self._awaited: dict[str, anyio.Event] = {}

    def wake(self) -> None:
        """Look for events soon. Never waits."""
        self._wake.set()

    def task_ended(self, task: str) -> None:
        """Note that a task has ended on this instance. Never waits."""
        if task in self._awaited:
            self._awaited[task].set()

    async def run(self) -> None:
        """Start work until cancelled."""
        async with anyio.create_task_group() as group:
            while True:
                self._wake = anyio.Event()
                for event in await self._storage.read(first_pending):
                    if event.watch not in self._handled:
                        self._handled.add(event.watch)
                        group.start_soon(self._handle_all, event)
                with anyio.move_on_after(self._storage.poll_s(_LOOK_S)):
                    await self._wake.wait()

    async def _handle_all(self, event: Pending | None) -> None:
        assert event is not None
        id_ = event.watch
        try:
            while event is not None:
                if event.due:
                    await anyio.sleep(event.due / 1000)
                    event = await self._storage.read(lambda db: next_pending(db, id_))
                    if event is None or event.due:
                        continue
                event = await self._handle(event)
        finally:
            self._handled.discard(id_)
            self._wake.set()  # an event may have come since the last look

    async def _handle(self, event: Pending) -> Pending | None:
        watch = self._find(event.watch)
        if watch is None:
            _log.warning("an event of a watch that was removed is dropped", watch=event.watch)
            return await self._done(event, started=False)
        try:
            task = await self._start(watch, event)
        except (StanzaError, FilterError) as error:
            reason = error.text if isinstance(error, StanzaError) else str(error)
            _log.warning("the work of a watch was refused", watch=watch.id, reason=reason)
            return await self._done(event, started=False)
        if task is not None:
            await self._ended(task)
        return await self._done(event, started=True)

    async def _start(self, watch: Watch, event: Pending) -> str | None:
        trigger = Trigger(
            source="watch",
            name=watch.id,
            key=event.key,
            data=msgspec.Raw(event.data),
            taint=taint_of(watch),
        )
        work = watch.work_for(event.data)
        # A skill of this watch has the one trace, the calls of a model in its turn have the other.
        traces = (f"{trigger.source} {trigger.name}", turn_of(trigger))
        await self._note_chain(traces, event.chain)
        wait = _FIRST_RETRY_S
        while True:
            try:
                task = await self._starter.start(trigger, work)
            except StorageError as error:
                log_failure(_log, "work cannot be started; trying again", error)
            except StanzaError as error:
                if error.type != "wait":
                    raise
                _log.warning("work has to wait", watch=watch.id, reason=error.text)
            else:
                if task is not None:
                    return task
                return await self._storage.read(lambda db: task_of(db, trigger))
            await anyio.sleep(wait)
            wait = min(wait * 2, _LONGEST_RETRY_S)

    async def _done(self, event: Pending, *, started: bool) -> Pending | None:
        return await self._storage.write(lambda db: finish(db, event, started=started))

    async def _note_chain(self, traces: Sequence[str], chain: Sequence[str]) -> None:
        """Store the chain for the items that the work publishes; usually it is empty."""

        def is_noted(database: Database) -> bool:
            return any(noted_chain(database, trace) for trace in traces)

        def note(database: Database) -> None:
            for trace in traces:
                note_chain(database, trace, chain)

        noted = await self._storage.read(is_noted)
        if chain or noted:
            await self._storage.write(note)

    async def _ended(self, task: str) -> None:
        """Wait until a task has ended or waits for a person, on whichever instance it runs."""
        while True:
            ended = self._awaited[task] = anyio.Event()
            try:
                if not await self._storage.read(lambda db: is_busy(db, task)):
                    return
                with anyio.move_on_after(_POLL_S):
                    await ended.wait()
            finally:
                del self._awaited[task]


def taint_of(watch: Watch) -> Taint:
    """The taint of a watch's events: `person` in the principal's own account, `web` elsewhere."""
    return "person" if watch.service.bare == watch.principal.bare else "web"
