"""The path of the control socket, shortened if it is too long for a socket address."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "control.sock"
LONGEST = 107
"""Bytes that fit into `sun_path` with the terminating zero (unix(7))."""


class ControlError(Exception):
    """The control socket cannot be used; the message says why and how to correct it."""


@contextmanager
def socket_path(directory: Path) -> Iterator[str]:
    """Yield a path of the socket in the directory that is short enough for bind and connect.

    Raises ControlError if there is none, OSError if the directory cannot be opened.
    """
    whole = directory / NAME
    if len(os.fsencode(whole)) <= LONGEST:
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
        yield str(through / NAME)
    finally:
        os.close(descriptor)
