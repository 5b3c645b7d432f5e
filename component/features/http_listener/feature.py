"""The HTTP listener of the service."""

import ipaddress
from collections.abc import Sequence
from typing import ClassVar

import anyio
import structlog
from anyio.abc import TaskStatus

from component import system
from component.features.feature import Feature, Opened
from component.features.http_listener.listener import (
    HttpListener,
    ListenError,
    check_extra,
    listening_socket,
)
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.skills import Registry

_log = structlog.get_logger("component.http")


class HttpListenerFeature(Feature):
    """Listens for HTTP requests, and passes them to the features that serve them."""

    reloads: ClassVar = ("http",)

    def open(self, kernel: Kernel) -> Opened:
        """Make the listener."""
        host, port = self.settings.http.host, self.settings.http.port

        async def listen(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            """Listen until cancelled. If the address cannot be used, or the extra is missing, that
            is logged and the service runs without it.
            """
            assert port is not None, "the feature is used"
            try:
                await HttpListener(kernel.http, host, port).run(task_status=task_status)
            except ListenError as error:
                _log.error("HTTP requests cannot be received", reason=str(error))
                task_status.started()

        return Opened(loops=(listen,))

    async def checks(self, registry: Registry) -> Sequence[Check]:
        """Check whether the address can be listened on."""
        del registry
        return [await system.in_thread(self._check)]

    def _check(self) -> Check:
        host, port = self.settings.http.host, self.settings.http.port
        assert port is not None, "the feature is used"
        try:
            check_extra()
            listening_socket(host, port).close()
        except ListenError as error:
            return Check("http", "failed", str(error))
        where = f"{host} port {port}"
        if not ipaddress.ip_address(host).is_loopback:
            text = (
                f"{where} can be reached by other machines, and there is no TLS: set http.host to"
                " 127.0.0.1 behind a reverse proxy, or let only the proxy reach it"
            )
            return Check("http", "warning", text)
        return Check("http", "ok", f"requests can be received on {where}")


FEATURE = HttpListenerFeature
