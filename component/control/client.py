"""The command line's end of the control socket. It waits for one answer and needs no event loop."""

import contextlib
import socket
from pathlib import Path

import msgspec

from component.control.messages import MAX_ANSWER_BYTES, ControlAnswer, ControlRequest
from component.control.path import NAME, ControlError, socket_path

_CHUNK = 65_536


def ask(directory: Path, request: ControlRequest, timeout_s: float = 70.0) -> ControlAnswer | None:
    """The answer of the service that runs on this data directory; None if there is none.

    `timeout_s` are seconds without a byte. Raises ControlError if there is a service that does not
    answer, or not this user.
    """
    where = directory / NAME
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        try:
            with socket_path(directory) as path:
                client.connect(path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return None  # never started, or ended without the time to tidy up
        except OSError as error:
            raise ControlError(
                f"The service cannot be reached by {where}: {error.strerror or error}. Run this as"
                " the user of the service."
            ) from error
        try:
            # One that turns us away may have closed already; what it said is there to be read.
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
