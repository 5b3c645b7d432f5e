"""A way to a server that can be watched, cut, and made as silent as a network that swallows all."""

import contextlib
import re
import socket
import threading
import time
from typing import Self

TIMEOUT = 120.0  # seconds; a bound for a busy machine, not an expectation


class Proxy:
    """Passes TCP connections on to `address`:`port`, byte for byte, and keeps what passed.

    Use it as a context manager; `port` of the proxy is open on 127.0.0.1 meanwhile. A subclass may
    look at what passes, in `passing`, and do without the copy, by `keeps`.
    """

    keeps = True

    def __init__(self, address: str, port: int) -> None:
        self._target = (address, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self._pairs: list[Pair] = []
        self._passed = {True: b"", False: b""}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_exc: object) -> None:
        # Closing alone does not wake a thread that waits in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(TIMEOUT)
        self._listener.close()

    def cut(self) -> None:
        """Close every connection on both sides. New ones pass."""
        with self._changed:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.close()

    def cut_frozen(self) -> None:
        """Close the connections that `freeze` has stopped, and leave the others."""
        with self._changed:
            frozen = [pair for pair in self._pairs if pair.frozen]
            self._pairs = [pair for pair in self._pairs if not pair.frozen]
        for pair in frozen:
            pair.close()

    def freeze(self) -> None:
        """Let nothing pass on the connections there are, not even their ends. New ones pass."""
        with self._changed:
            for pair in self._pairs:
                pair.frozen = True

    def wait_for(self, pattern: str, *, to_server: bool) -> None:
        """Wait until bytes that `pattern` matches have passed in this direction.

        Raises TimeoutError, with the end of what has passed.
        """
        give_up = time.monotonic() + TIMEOUT
        with self._changed:
            while re.search(pattern.encode(), self._passed[to_server]) is None:
                if not self._changed.wait(give_up - time.monotonic()):
                    raise TimeoutError(f"no {pattern} in {self._passed[to_server][-2000:]!r}")

    def passed(self, *, to_server: bool) -> bytes:
        """Return all that has passed in this direction."""
        with self._changed:
            return self._passed[to_server]

    def passing(self, pair: "Pair", data: bytes, *, to_server: bool) -> None:
        """Called with all that comes from one side, before the other has it; empty at its end."""

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, TIMEOUT)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            pair = Pair(client, server)
            with self._changed:
                self._pairs.append(pair)
            for to_server in (True, False):
                self._start(self._pump, pair, to_server)

    def _pump(self, pair: "Pair", to_server: bool) -> None:
        source, target = (pair.client, pair.server) if to_server else (pair.server, pair.client)
        while True:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            with self._changed:
                if pair.frozen:
                    if data:
                        continue
                    return
            self.passing(pair, data, to_server=to_server)
            with contextlib.suppress(OSError):
                if data:
                    target.sendall(data)
                else:
                    target.shutdown(socket.SHUT_WR)
            with self._changed:
                if self.keeps:
                    self._passed[to_server] += data
                self._changed.notify_all()
            if not data:
                return

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()


class Pair:
    """One connection: from the component, and on to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.frozen = False

    def close(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
