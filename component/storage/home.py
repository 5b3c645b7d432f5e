"""The name of a data directory, which is the same in every life of the process that uses it."""

import secrets
from pathlib import Path

from component.private import open_private
from component.storage.errors import explained

_NAME = "home"


def home_of(directory: Path) -> str:
    """The name of the data directory, given to it when it is first asked for.

    What belongs to a directory, and not to whoever shares its database, is kept under this name.
    It waits for the disk. Raises StorageError.
    """
    path = directory / _NAME
    with explained(path):
        try:
            found = path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            found = ""
        if not found:
            found = secrets.token_hex(16)
            fresh = path.with_suffix(".new")
            with open_private(fresh, "w") as file:
                file.write(f"{found}\n")
            fresh.replace(path)
    return found
