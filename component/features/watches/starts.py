"""Starts the work of recorded events: for each watch one after another, in the order of the events.

The work of the next event of a watch is started when that of the previous one has ended or waits
for a person. Several instances may do this at the same time: the starter records each event's work
once, and an event is removed only after that.
"""

from collections.abc import Callable, Sequence
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from component.features.watches import events as watch_events
from component.features.watches.events import Pending
from component.features.watches.filters import FilterError
from component.features.watches.provenance import note_chain, noted_chain
from component.features.watches.rows import RetryingStorage
from component.features.watches.watch import Watch
from component.kernel.goals import turn_of
from component.kernel.started_work import task_of
from component.kernel.task_starter import TaskStarter
from component.kernel.triggers import Trigger
from component.policy.taint import Taint
from component.store.database import Database
from component.store.errors import StorageError
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.watches")

_LOOK_S: Final = 2.0
"""Seconds between two looks for events that another instance has recorded."""
_POLL_S: Final = 0.5
"""Seconds between two looks at a task that may run on another instance."""
_FIRST_RETRY_S: Final = 0.5
_LONGEST_RETRY_S: Final = 30.0
_BUSY: Final = frozenset(("accepted", "running", "cancelling"))


class WatchStarts:
    """Starts the work of events."""

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
                await self._look(group)
                with anyio.move_on_after(_LOOK_S):
                    await self._wake.wait()

    async def _look(self, group: TaskGroup) -> None:
        for event in await self._storage.read(watch_events.first_pending):
            if event.watch not in self._handled:
                self._handled.add(event.watch)
                group.start_soon(self._handle_all, event)

    async def _handle_all(self, event: Pending | None) -> None:
        """Handle the events of one watch until none is left."""
        assert event is not None
        id_ = event.watch
        try:
            while event is not None:
                if event.due:
                    await anyio.sleep(event.due / 1000)
                    event = await self._storage.read(lambda db: watch_events.next_pending(db, id_))
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
        """Start the work, trying again while the database cannot be used."""
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
                _log.error("work cannot be started; trying again", reason=str(error))
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
        return await self._storage.write(lambda db: watch_events.finish(db, event, started=started))

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
                state = await self._storage.read(lambda db: watch_events.task_state(db, task))
                if state not in _BUSY:
                    return
                with anyio.move_on_after(_POLL_S):
                    await ended.wait()
            finally:
                del self._awaited[task]


def taint_of(watch: Watch) -> Taint:
    """The taint of a watch's events: `person` in the principal's own account, `web` elsewhere."""
    return "person" if watch.service.bare == watch.principal.bare else "web"
