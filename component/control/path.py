"""The name of the control socket, also where it is longer than a socket's address may be."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "control.sock"
LONGEST = 107
"""Bytes that fit into `sun_path` with the zero after them (unix(7))."""


class ControlError(Exception):
    """The control socket cannot be used: one sentence that says why and how to mend it."""


@contextmanager
def socket_path(directory: Path) -> Iterator[str]:
    """A name for the socket in the directory, short enough for bind and connect, in the context.

    Raises ControlError if there is none, OSError if the directory cannot be opened.
    """
    whole = directory / NAME
    if len(os.fsencode(whole)) <= LONGEST:
        yield str(whole)
        return
    # By its descriptor any directory has a short name, and no other process sees a change.
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
