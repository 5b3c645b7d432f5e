"""The id of a data directory, which is the same in every run."""

import secrets
from pathlib import Path

from component.private import open_private
from component.storage.errors import explained

_NAME = "home"


def home_of(directory: Path) -> str:
    """Return the id of the data directory; create it at the first call.

    Rows that belong to this directory, and not to other processes that share the database, have
    this id. Blocks. Raises StorageError.
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
