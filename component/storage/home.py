"""The id of a data directory, which is the same in every run."""

import os
import re
from pathlib import Path

from component import system
from component.private import open_private
from component.storage.errors import StorageError, explained

_NAME = "home"
_ID = re.compile(rb"[0-9a-f]{32}")


def home_of(directory: Path) -> str:
    """Return the id of the data directory; create it at the first call.

    Rows that belong to this directory, and not to other processes that share the database, have
    this id. Blocks. Raises StorageError, also if the file is damaged: with another id, nobody would
    continue what this directory has begun.
    """
    path = directory / _NAME
    with explained(path):
        try:
            found = path.read_bytes().strip()
        except FileNotFoundError:
            found = system.token_hex(16).encode()
            fresh = path.with_suffix(".new")
            with open_private(fresh, "wb") as file:
                file.write(found + b"\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
    if _ID.fullmatch(found) is None:
        raise StorageError(
            f"The file {path} is damaged: it should have 32 hexadecimal digits, the id of the data"
            " directory. Put it back from a backup. If there is none, delete the file: a new id is"
            " made, and conversations and notifications that have not ended are not continued."
        )
    return found.decode()


def is_used(directory: Path) -> bool:
    """Whether a service has used the data directory before. Blocks."""
    return (directory / _NAME).exists()
