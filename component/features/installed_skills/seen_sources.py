"""The names of the sources that have made an offer, in a file of the data directory.

The database has their descriptions. It may be replaced by a new one or an older copy. Then the file
shows that a source has made an offer before, so that its skills wait for an approval instead of
being approved as a first offer.
"""

import os
from pathlib import Path
from typing import Final

from component.private import FILE_MODE
from component.storage.errors import explained

FILE_NAME: Final = "described-sources"


class SeenSources:
    """The file, with one name in each line. Methods block, and raise StorageError.

    Args:
        directory: the data directory.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def has(self, source: str) -> bool:
        """Return whether a source has made an offer."""
        return source in self._names()

    def add(self, source: str) -> None:
        """Note that a source has made an offer."""
        if self.has(source):
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with explained(self._path):
            descriptor = os.open(self._path, flags, FILE_MODE)
            try:
                os.write(descriptor, f"{source}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _names(self) -> list[str]:
        with explained(self._path):
            try:
                return self._path.read_text("utf-8", "replace").splitlines()
            except FileNotFoundError:
                return []
