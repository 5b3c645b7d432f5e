"""A way to a server that does not read what is sent to it."""

import socket
import threading

from tests.servers.proxy import Pair, Proxy


class Dam(Proxy):
    """A way to a server that can stop reading what is sent to it."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(address, port)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self._open = threading.Event()
        self._open.set()

    def hold(self) -> None:
        """Read nothing more of what is sent to the server."""
        self._open.clear()

    def cut(self) -> None:
        super().cut()
        self._open.set()

    def passing(self, pair: Pair, data: bytes, *, to_server: bool) -> None:
        if to_server:
            self._open.wait()
