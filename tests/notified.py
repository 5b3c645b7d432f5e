"""A service manager of the tests: the socket that a service tells its state (sd_notify(3))."""

import socket
from pathlib import Path
from typing import Final, Self

_PATIENCE_S: Final = 60.0


class Notified:
    """A datagram socket. `name` is for `NOTIFY_SOCKET`; one with `@` is in the abstract namespace.

    Args:
        path: the path of the socket; the name without the `@` for one in the abstract namespace.
    """

    def __init__(self, path: Path | str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_PATIENCE_S)
        abstract = isinstance(path, str)
        self._socket.bind(f"\0{path}" if abstract else str(path))
        self.name = f"@{path}" if abstract else str(path)

    def take(self) -> dict[str, str]:
        """Return the next message, by variables; raise TimeoutError if none comes."""
        text = self._socket.recv(65_536).decode()
        return dict(line.split("=", 1) for line in text.split("\n"))

    def wait(self, **wanted: str) -> dict[str, str]:
        """Return the next message with these variables; others are dropped."""
        while True:
            found = self.take()
            if wanted.items() <= found.items():
                return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
