"""Removal of old files of the audit log, and the line that records it."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from component.audit.files import end_of, files_in
from component.audit.journal import failing, sync_directory
from component.audit.lines import Line, Link, read_line, timestamp
from component.audit.protocol import AuditEvent

_DAY_MS: Final = 86_400_000
_REMOVED: Final = re.compile(r"lines up to (\d+) ([0-9a-f]{64})")


def old_files(directory: Path, keep_days: int, now_ms: int) -> tuple[list[Path], Link | None]:
    """The files whose lines are all older than `keep_days` days, and their last line.

    The last file is never included. Raises StorageError.
    """
    before = timestamp(now_ms - keep_days * _DAY_MS)
    with failing(directory):
        files = files_in(directory)
        old: list[Path] = []
        for path, following in itertools.pairwise(files):
            since = began(following)
            if since is None or since >= before:
                break
            old.append(path)
        return old, end_of(old[-1]).link if old else None


def began(path: Path) -> str | None:
    """The time of the first line of a file; None if it has no line. Raises OSError."""
    with path.open("rb") as file:
        sealed = read_line(file.readline().rstrip(b"\n"))
    return None if sealed is None else sealed.line.time


def removal_of(files: Sequence[Path], last: Link) -> AuditEvent:
    """The event to record before the files, whose last line is `last`, are removed."""
    return AuditEvent(
        kind="record",
        outcome="removed",
        subject=f"{files[0].name} to {files[-1].name}" if len(files) > 1 else files[0].name,
        detail=f"lines up to {last.seq} {last.hash}",
    )


def removed_by(line: Line) -> Link | None:
    """The last removed line, if `line` records a removal."""
    if (line.kind, line.outcome) != ("record", "removed"):
        return None
    found = _REMOVED.fullmatch(line.detail)
    return None if found is None else Link(int(found[1]), found[2])


def remove(files: Sequence[Path]) -> None:
    """Remove files, the oldest first. Raises StorageError."""
    with failing(files[0].parent):
        for path in files:
            path.unlink(missing_ok=True)
        sync_directory(files[0].parent)
