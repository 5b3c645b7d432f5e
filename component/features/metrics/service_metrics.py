"""The values of metrics that are read on request, and whether the service is ready."""

from collections.abc import Iterator

import msgspec

from component import VERSION
from component.kernel.kernel import Kernel
from component.metrics.counters import Gauge
from component.store import StorageError
from component.tasks.admin import Counts


class ServiceMetrics:
    """Reads the kernel when metrics are requested."""

    def __init__(self, kernel: Kernel) -> None:
        self._stream = kernel.stream
        self._tasks = kernel.tasks
        self._monitoring = kernel.environment.monitoring
        self._storage = kernel.storage
        self._more = kernel.gauges
        self._counts = Counts()

    async def refresh(self) -> None:
        """Read the counts of tasks from the database; if that fails, the last ones are shown."""
        try:
            self._counts = await self._tasks.task_admin.counts()
        except StorageError:
            return

    async def faults(self) -> list[str]:
        """Return the reasons why the service cannot work now, a sentence each."""
        found: list[str] = []
        if not self._stream.is_connected():
            found.append("There is no stream to the XMPP server.")
        full = self._monitoring.full()
        if full is not None:
            found.append("The audit log cannot be written, so new requests are rejected.")
        outage = await self._storage.find_outage()
        if outage is not None:
            found.append(outage.reason)
        return found

    def gauges(self) -> Iterator[Gauge]:
        """Yield the metrics that are not counted when something happens, but read."""
        for gauges in self._more:
            yield from gauges()
        router, outbox = self._stream.router, self._stream.outbox
        yield Gauge("info", "Always 1.", {(VERSION,): 1.0}, ("version",))
        connected = self._stream.is_connected()
        yield _one("connected", "Whether there is a stream to the XMPP server.", connected)
        failing = self._storage.outage is not None
        yield _one("database_failing", "Whether the database cannot be used.", failing)
        yield _one("paused", "Whether an admin has paused new work.", self._tasks.pause_gate.paused)
        yield Gauge(
            "iq_answered",
            "IQs that were answered, by the condition of the error or `result`.",
            {(how,): count for how, count in router.answered.items()},
            ("outcome",),
            total=True,
        )
        yield _one("stanzas_sent", "Stanzas given to the outbox.", outbox.taken, total=True)
        yield _one(
            "stanzas_dropped",
            "Stanzas dropped because too many waited.",
            outbox.dropped,
            total=True,
        )
        yield _one("outbox_bytes", "Bytes that wait to be sent.", outbox.waiting_bytes)
        yield _one("requests", "Requests under way.", router.under_way)
        yield _one("stanzas_waiting", "Stanzas received and not yet handled.", router.waiting)
        counts = msgspec.structs.asdict(self._counts)
        queued, owned = counts.pop("queued"), counts.pop("owned")
        states: dict[tuple[str, ...], float] = {
            (state.replace("_", "-"),): count for state, count in counts.items()
        }
        yield Gauge("tasks", "Tasks that are kept, by state.", states, ("state",))
        yield _one("tasks_queued", "Tasks that wait for an instance to run them.", queued)
        yield _one("tasks_owned", "Tasks that an instance runs now.", owned)
        if self._monitoring.audit is not None:
            audit = self._monitoring.audit.figures
            yield _one("audit_lines", "Lines written to the audit log.", audit.written, total=True)
            yield _one("audit_lost", "Events that were not recorded.", audit.lost, total=True)
            yield _one("audit_waiting", "Events that wait to be written.", audit.waiting)
            yield _one(
                "audit_lag_seconds",
                "Age of the oldest event that waits to be written.",
                audit.lag_s,
            )
            yield _one("audit_failing", "Whether the audit log cannot be written.", audit.failing)


def _one(name: str, about: str, value: float, *, total: bool = False) -> Gauge:
    return Gauge(name, about, {(): float(value)}, total=total)
