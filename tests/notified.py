"""A service manager of the tests: the socket that a service tells its state (sd_notify(3))."""

import queue
import socket
import threading
from pathlib import Path
from typing import Final, Self

_TIMEOUT_S: Final = 120.0


class Notified:
    """A datagram socket that is read at all times, because it holds ten messages only.

    Args:
        path: the path of the socket; the name without the `@` for one in the abstract namespace.

    Attributes:
        name: what `NOTIFY_SOCKET` has to be.
    """

    def __init__(self, path: Path | str) -> None:
        is_abstract = isinstance(path, str)
        self._address = f"\0{path}" if is_abstract else str(path)
        self.name = f"@{path}" if is_abstract else str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._address)
        self._messages: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)

    def take(self) -> dict[str, str]:
        """Return the next message, by variables. Raises queue.Empty if none comes."""
        text = self._messages.get(timeout=_TIMEOUT_S)
        return dict(line.split("=", 1) for line in text.split("\n"))

    def wait(self, **wanted: str) -> dict[str, str]:
        """Return the next message with these variables; others are dropped."""
        while True:
            found = self.take()
            if wanted.items() <= found.items():
                return found

    def _read(self) -> None:
        while data := self._socket.recv(65_536):
            self._messages.put(data.decode())

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._address)
        self._reader.join()
        self._socket.close()
