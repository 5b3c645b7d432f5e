"""Serves the requests of others to the PubSub nodes of our addresses."""

import anyio
import structlog
from anyio.abc import TaskStatus

from component.features.feature import Feature, Opened
from component.features.pubsub.handlers import Allowances, NodeDiscovery, PubSubHandler
from component.features.pubsub.owners import OwnerHandler
from component.kernel.kernel import Kernel
from component.kernel.options import page_bytes
from component.store import StorageError
from component.store.outages import log_failure
from xep.pubsub import SUBSCRIBE_AUTHORIZATION

_log = structlog.get_logger("component.pubsub")


class PubSubFeature(Feature):
    """Serves PubSub, and notifies subscribers."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the handlers."""
        room, allowances = page_bytes(self.settings), Allowances()
        owners = OwnerHandler(kernel.pubsub, allowances)
        views = _Views(kernel)
        # The nodes of an account are those of its server.
        has_nodes = kernel.disco.has_pubsub
        return Opened(
            handlers=(PubSubHandler(kernel.pubsub, allowances, room), owners),
            forms={SUBSCRIBE_AUTHORIZATION: owners.decide},
            offers=(owners,) if has_nodes else (),
            disco_nodes=(NodeDiscovery(kernel.pubsub, room),) if has_nodes else (),
            loops=(kernel.pubsub.run, views.run),
            connected=views.changed,
        )


class _Views:
    """Notifies subscribers of what has changed in the computed nodes: with a new release or other
    settings, which is noticed when a session begins, and with the skills that are offered.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._pubsub = kernel.pubsub
        self._addresses = kernel.stream.addresses
        self._changed = anyio.Event()
        kernel.environment.catalog.registry.listen(self.changed)

    def changed(self) -> None:
        """Notify subscribers soon. Never waits."""
        self._changed.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Notify subscribers of changes until cancelled."""
        task_status.started()
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            try:
                for address in self._addresses.all():
                    await self._pubsub.refresh(address)
            except StorageError as error:
                log_failure(_log, "cannot notify subscribers of what has changed", error)


FEATURE = PubSubFeature
