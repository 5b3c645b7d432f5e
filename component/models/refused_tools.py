"""Tells operators which tools models refuse: in a file of the data directory, for `xmpp-agent
doctor`, and as warnings.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from component.models.offered_tools import RefusedTool
from component.private import open_private

_log = structlog.get_logger("component.models")

_NAME: Final = "refused-tools.json"
_MOST: Final = 1000


class RefusedTools:
    """The tools that models have refused since the service has started.

    Args:
        directory: the data directory, for one file; that of an earlier run is replaced.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _NAME
        self._found: dict[tuple[str, str, str], RefusedTool] = {}
        if self._path.exists():
            self._write()

    def add(self, refused: RefusedTool) -> None:
        """Add a tool. A file that cannot be written is reported in the log."""
        if len(self._found) < _MOST:
            self._found[refused.tool, refused.model, refused.url] = refused
            self._write()

    def warnings(self) -> Sequence[str]:
        """One sentence for each tool."""
        return tuple(map(sentence, self._found.values()))

    def _write(self) -> None:
        try:
            with open_private(self._path.with_suffix(".new"), "wb") as file:
                file.write(msgspec.json.encode(list(self._found.values())))
            self._path.with_suffix(".new").replace(self._path)
        except OSError as error:
            _log.warning("the refused tools cannot be stored", reason=str(error))


def read_refused(directory: Path) -> Sequence[RefusedTool]:
    """Return the tools that models have refused in the latest run of the service. Blocks."""
    try:
        data = (directory / _NAME).read_bytes()
        return msgspec.json.decode(data, type=list[RefusedTool])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ()


def sentence(refused: RefusedTool) -> str:
    """Say which tool is not offered, why, and how to correct it."""
    return (
        f"{refused.model} at {refused.url} refuses the tool {refused.tool}, so it is not offered to"
        f" it: correct its schema, or remove it. The provider says: {refused.reason}"
    )
