"""The page with metrics and health checks."""

from collections.abc import Sequence
from typing import ClassVar

import anyio
import structlog
from anyio.abc import TaskStatus

from component.features.feature import Feature, Opened
from component.features.metrics import TURNED_ON_BY
from component.features.metrics.exposition import Exposition, Pages
from component.features.metrics.http import MetricsListenError, PageServer
from component.features.metrics.service_metrics import ServiceMetrics
from component.features.metrics.settings import METRICS
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.skills import Registry

_log = structlog.get_logger("component.features.metrics")


class MetricsFeature(Feature):
    """Serves metrics and health checks over HTTP."""

    reloads: ClassVar = TURNED_ON_BY

    def open(self, kernel: Kernel) -> Opened:
        """Make the pages."""
        section = self.settings[METRICS]
        metrics = ServiceMetrics(kernel)
        exposition = Exposition(kernel.environment.monitoring.counters, metrics.gauges)
        pages = Pages(exposition, metrics).by_path()

        async def serve(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            """Serve until cancelled. The service runs without metrics if the address is taken."""
            try:
                server = PageServer(*self._address(), pages, local=not section.anywhere)
                await server.run(task_status=task_status)
            except MetricsListenError as error:
                _log.error("metrics cannot be served", reason=str(error))
                task_status.started()

        return Opened(loops=(serve,))

    async def checks(self, registry: Registry) -> Sequence[Check]:
        """Check whether the address can be listened on."""
        host, port = self._address()
        found = Check("metrics", "ok", f"{host} port {port} can be listened on")
        try:
            async with anyio.create_task_group() as group:
                await group.start(PageServer(host, port, {}).run)
                group.cancel_scope.cancel()
        except* MetricsListenError as errors:
            found = Check("metrics", "failed", str(errors.exceptions[0]))
        return (found,)

    def _address(self) -> tuple[str, int]:
        address = self.settings[METRICS].address
        assert address is not None, "the feature is used"
        return address


FEATURE = MetricsFeature
