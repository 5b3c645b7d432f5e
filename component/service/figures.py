"""What the rooms are asked for when somebody reads the metrics, and whether all is ready."""

from collections.abc import Iterator
from importlib.metadata import version

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.metrics.exposition import Exposition, Gauge
from component.metrics.http import ListenError, Server
from component.metrics.pages import Pages
from component.service.options import SOFTWARE
from component.service.rooms import Rooms
from component.service.watching import Watching
from component.settings.audit import Metrics
from component.storage import Storage, StorageError
from component.storage.database import Database
from component.tasks.ledger import Counts

_log = structlog.get_logger("component.service")


class Figures:
    """The figures of the moment.

    Args:
        rooms: who is asked.
        watching: what was counted, and the record.
        storage: what has to be writable.
    """

    def __init__(self, rooms: Rooms, watching: Watching, storage: Storage) -> None:
        self._rooms = rooms
        self._watching = watching
        self._storage = storage
        self._counts = Counts()

    async def refresh(self) -> None:
        """Ask the database, too; if it refuses, the figures of before stay."""
        try:
            self._counts = await self._rooms.ledger.counts()
        except StorageError:
            return

    async def faults(self) -> list[str]:
        """Why no work can be done now, a sentence each."""
        found: list[str] = []
        if self._rooms.connected_since is None:
            found.append("There is no stream to the XMPP server.")
        full = self._watching.full()
        if full is not None:
            found.append("The record cannot be written, and nothing new is taken on.")
        try:
            await self._storage.write(_touch)
        except StorageError as error:
            found.append(str(error))
        return found

    def gauges(self) -> Iterator[Gauge]:
        """All figures but those that are counted as things happen."""
        rooms = self._rooms
        yield _one("info", "Always 1.", 1, ("version",), (version(SOFTWARE),))
        connected = rooms.connected_since is not None
        yield _one("connected", "Whether there is a stream to the XMPP server.", connected)
        yield _one("paused", "Whether an admin holds up new work.", rooms.intake.paused)
        yield Gauge(
            "iq_answered",
            "IQs that were answered, by the condition of the error or `result`.",
            {(how,): count for how, count in rooms.router.answered.items()},
            ("outcome",),
            total=True,
        )
        outbox = rooms.outbox
        yield _one("stanzas_sent", "Stanzas given to the outbox.", outbox.taken, total=True)
        yield _one("stanzas_dropped", "Stanzas lost: too much.", outbox.dropped, total=True)
        yield _one("outbox_bytes", "Bytes that wait to be sent.", outbox.waiting_bytes)
        yield _one("requests", "Requests under way.", rooms.router.under_way)
        yield _one("stanzas_waiting", "Stanzas that wait for their turn.", rooms.router.waiting)
        counts = msgspec.structs.asdict(self._counts)
        queued, owned = counts.pop("queued"), counts.pop("owned")
        states: dict[tuple[str, ...], float] = {
            (state.replace("_", "-"),): count for state, count in counts.items()
        }
        yield Gauge("tasks", "Tasks that are kept, by state.", states, ("state",))
        yield _one("tasks_queued", "Tasks that wait for their turn.", queued)
        yield _one("tasks_owned", "Tasks that an instance runs.", owned)
        if self._watching.audit is not None:
            audit = self._watching.audit.figures
            yield _one("audit_lines", "Lines on disk.", audit.written, total=True)
            yield _one("audit_lost", "Events that were not recorded.", audit.lost, total=True)
            yield _one("audit_waiting", "Events that wait for the disk.", audit.waiting)
            yield _one("audit_lag_seconds", "Age of the oldest that waits.", audit.lag_s)
            yield _one("audit_failing", "Whether the disk refuses.", audit.failing)


def _one(
    name: str,
    about: str,
    value: float,
    labels: tuple[str, ...] = (),
    label_values: tuple[str, ...] = (),
    *,
    total: bool = False,
) -> Gauge:
    return Gauge(name, about, {label_values: float(value)}, labels, total=total)


def _touch(database: Database) -> None:
    """Write something, so that a full disk is noticed."""
    database.execute("UPDATE audit_heads SET changed = changed")


async def serve_figures(
    metrics: Metrics,
    rooms: Rooms,
    watching: Watching,
    storage: Storage,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the figures until cancelled; the service lives without them too."""
    address = metrics.address
    assert address is not None, "somebody wants them"
    figures = Figures(rooms, watching, storage)
    exposition = Exposition(watching.counters, figures.gauges)
    pages = Pages(exposition, figures.refresh, figures.faults).by_path()
    try:
        server = Server(*address, pages, local=not metrics.anywhere)
        await server.run(task_status=task_status)
    except ListenError as error:
        _log.error("the figures cannot be read", reason=str(error))
        task_status.started()
