"""The control socket: its path, its messages (one JSON object per line, requests and answers
alternate), and the client for the command line, which needs no event loop.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from component.config import Settings

SOCKET_NAME = "control.sock"
LONGEST_PATH = 107
"""Bytes that fit into `sun_path` with the terminating zero (unix(7))."""
MAX_REQUEST_BYTES = 65_536
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_CHUNK = 65_536


class ControlRequest(msgspec.Struct, frozen=True):
    """Run a command, with its parameters as a JSON object."""

    command: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class ControlAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result: a text for people and a value in JSON, or the sentence of an error.

    `param` is the parameter that the error is about. `unknown` says that the command does not
    exist. `settings` is the digest of the settings of the service.
    """

    text: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    param: str | None = None
    unknown: bool = False
    settings: str = ""


OLDER_SETTINGS = (
    "The running service has other settings than the configuration file: the file was changed, or"
    " the service was started with another one. `xmpp-agent reload` applies what can change while"
    " it runs, and says what needs a restart."
)


def has_other_settings(answer: ControlAnswer, settings: "Settings") -> bool:
    """Return whether the service that has answered uses other files than these settings
    are read from.
    """
    return bool(answer.settings and settings.digest) and answer.settings != settings.digest


class ControlError(Exception):
    """The control socket cannot be used; the message says why and how to correct it."""


@contextlib.contextmanager
def socket_path(directory: Path) -> Iterator[str]:
    """Yield a path of the socket in the directory that is short enough for bind and connect.

    Raises ControlError if there is none, OSError if the directory cannot be opened.
    """
    whole = directory / SOCKET_NAME
    if len(os.fsencode(whole)) <= LONGEST_PATH:
        yield str(whole)
        return
    # Through its descriptor any directory has a short name, and no other process sees a change.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        through = Path(f"/proc/self/fd/{descriptor}")
        if not through.exists():
            raise ControlError(
                f"The path {whole} is too long for a socket, and there is no /proc to shorten it:"
                " set path in [storage] to a shorter one."
            )
        yield str(through / SOCKET_NAME)
    finally:
        os.close(descriptor)


def ask(directory: Path, request: ControlRequest, timeout_s: float = 70.0) -> ControlAnswer | None:
    """Return the answer of the service that runs on this data directory; None if none runs.

    `timeout_s` is the number of seconds without any input. Raises ControlError if the service does
    not answer, or does not serve this user.
    """
    where = directory / SOCKET_NAME
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
