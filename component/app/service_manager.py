"""Reports the state of the service to the service manager of this machine, such as systemd, by the
protocol of sd_notify(3).
"""

import os
import socket
from collections.abc import MutableMapping
from typing import Final

import anyio
import structlog

from component import system

_log = structlog.get_logger("component.app")

_SEND_TIMEOUT_S: Final = 0.5
"""Seconds for which the event loop waits if the queue of the service manager is full."""
_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceManager:
    """Sends the state of this process to the socket that the environment names.

    Without one, or if nobody listens there, nothing is sent. The variables are removed from the
    environment, because they are not for the processes that this one starts.

    Attributes:
        watchdog_s: seconds after which the manager ends a process that has not reported; None if
            it does not watch this one.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        where, microseconds, process = (environ.pop(name, "") for name in _VARIABLES)
        # A name in the abstract namespace begins with a zero byte (unix(7)).
        self._address = f"\0{where[1:]}" if where.startswith("@") else where
        self.watchdog_s: float | None = None
        is_watched = self._address and process in ("", str(os.getpid()))
        if is_watched and microseconds.isdecimal() and int(microseconds):
            self.watchdog_s = int(microseconds) / 1e6

    def status(self, sentence: str) -> None:
        """Say in one line what the service does."""
        self._send(f"STATUS={sentence}")

    def ready(self) -> None:
        """Report that the service has started, or has reloaded its settings."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Report that the settings are reloaded; `ready` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(system.monotonic() * 1e6)}")

    def stopping(self) -> None:
        """Report that the service stops."""
        self._send("STOPPING=1")

    async def run(self) -> None:
        """Report that the event loop is alive until cancelled, if the manager watches it."""
        if self.watchdog_s is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await anyio.sleep(self.watchdog_s / 2)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_SEND_TIMEOUT_S)
            try:
                sender.sendto("\n".join(lines).encode(), self._address)
            except OSError as error:
                _log.warning("the state was not sent to the service manager", reason=str(error))
