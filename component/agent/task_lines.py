"""The lines of a sub-agent's conversation, in the record of its task.

A sub-agent continues wherever its task does, which may be on an instance with another data
directory. So it does not depend on the file of its conversation.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from component import system
from component.conversations.lines import (
    Correction,
    Line,
    StoredLine,
    Summary,
    encode_lines,
)
from component.skills.context import Context

_decode: Final = msgspec.json.Decoder(list[Line]).decode


class TaskLines:
    """The lines of the one turn of a sub-agent, which runs in `context`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def read(self) -> tuple[list[Line], Summary | None, list[Line]]:
        """Return the lines of before the latest summary, the summary, and those that follow it."""
        above: list[Line] = []
        summary: Summary | None = None
        lines: list[Line] = []
        for entry in await self._context.recorded():
            for line in _decode(entry):
                if isinstance(line, Summary):
                    at = len(lines) - line.kept
                    above, lines, summary = [*above, *lines[:at]], lines[at:], line
                else:
                    lines.append(line)
        return above, summary, lines

    async def add(self, lines: Sequence[StoredLine], *, acts: bool) -> None:
        """Store lines; `acts` says that one of them is the result of a call with effects."""
        assert not any(isinstance(one, Correction) for one in lines), "nobody corrects its task"
        _, data = encode_lines(lines, system.time())
        entry = b"[%s]" % data.rstrip(b"\n").replace(b"\n", b",")
        await self._context.record(entry, acts=acts)
