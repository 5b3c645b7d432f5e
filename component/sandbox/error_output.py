"""The standard error of a confined child: a pipe, of which the service keeps the end.

A file would be one that the child can write to: `fallocate` takes space of the disk that no limit
of the kernel counts.
"""

from __future__ import annotations

import os
from typing import Final

from component.skills.errors import printable

MOST_BYTES: Final = 16 << 20
"""What a child may print in one call."""
_KEPT: Final = 4000
_LINE: Final = 1000
_PIECE: Final = 1 << 20  # all that a pipe can hold


class ErrorOutput:
    """What a child prints.

    Attributes:
        writer: the end of the pipe for the child. It is closed once the child has it.
        reader: the other end. It is not blocking.
        size: the number of bytes that have been read since `take`.
    """

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self.size = 0
        self._end = b""

    def read(self) -> bool:
        """Read what is there; return whether more can follow."""
        try:
            data = os.read(self.reader, _PIECE)
        except BlockingIOError:
            return True
        self.size += len(data)
        self._end = (self._end + data[-_KEPT:])[-_KEPT:]
        return bool(data)

    def take(self) -> str:
        """Return the last lines that were printed since this was called before."""
        self.read()
        lines = self._end.decode(errors="replace").strip().splitlines()
        self._end, self.size = b"", 0
        return "\n".join(printable(line, _LINE) for line in lines)

    def close(self) -> None:
        """Close the reader. What the child prints after that fails."""
        os.close(self.reader)
