"""The commands of the operator, over a socket on this machine."""

import anyio
import structlog
from anyio.abc import TaskStatus

from component.control.client import ControlError
from component.control.server import ControlServer
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel

_log = structlog.get_logger("component.app")


class CommandLineFeature(Feature):
    """Serves the command line."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the server."""
        server = ControlServer(
            kernel.storage.directory,
            kernel.commands,
            digest=lambda: kernel.environment.settings.digest,
        )

        async def serve(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            try:
                await server.run(task_status=task_status)
            except ControlError as error:
                _log.error("the command line cannot reach this service", reason=str(error))
                task_status.started()

        return Opened(loops=(serve,))


FEATURE = CommandLineFeature
