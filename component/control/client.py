"""The client of the control socket, for the command line. It waits for one answer and needs no
event loop.
"""

import contextlib
import socket
from pathlib import Path

import msgspec

from component.control.messages import MAX_ANSWER_BYTES, ControlAnswer, ControlRequest
from component.control.path import NAME, ControlError, socket_path

_CHUNK = 65_536


def ask(directory: Path, request: ControlRequest, timeout_s: float = 70.0) -> ControlAnswer | None:
    """Return the answer of the service that runs on this data directory; None if none runs.

    `timeout_s` is the number of seconds without any input. Raises ControlError if the service does
    not answer, or does not serve this user.
    """
    where = directory / NAME
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        try:
            with socket_path(directory) as path:
                client.connect(path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return None  # never started, or ended without cleaning up
        except OSError as error:
            raise ControlError(
                f"The service cannot be reached by {where}: {error.strerror or error}. Run this"
                " command as the user that runs the service."
            ) from error
        try:
            # A service that rejects us may have closed already; its answer can still be read.
            with contextlib.suppress(ConnectionError):
                client.sendall(msgspec.json.encode(request) + b"\n")
            line = _line(client)
        except TimeoutError:
            raise ControlError(f"The service at {where} does not answer.") from None
    if not line.endswith(b"\n"):
        raise ControlError(
            f"The service at {where} closed the connection without an answer. It serves only the"
            " user it runs as, and root."
        )
    try:
        return msgspec.json.decode(line, type=ControlAnswer)
    except msgspec.MsgspecError as error:
        raise ControlError(f"What answers at {where} is not this service: {error}.") from None


def _line(client: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n") and len(received) < MAX_ANSWER_BYTES:
        try:
            chunk = client.recv(_CHUNK)
        except ConnectionError:
            break
        if not chunk:
            break
        received += chunk
    return bytes(received)
