"""Search for lines of the audit log, in files of any size."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from component import system
from component.audit.files import began, files_in, lines_backwards
from component.audit.lines import Line, read_line

_TEXTS: Final = ("kind", "outcome", "principal", "agent", "trace", "subject", "task")
_POLL_S: Final = 0.25
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the lines that match all given members.

    `since` and `until` are times in the format of lines; `until` is exclusive.
    """

    kind: str | None = None
    outcome: str | None = None
    principal: str | None = None
    agent: str | None = None
    trace: str | None = None
    subject: str | None = None
    task: str | None = None
    since: str | None = None
    until: str | None = None


class _Matcher:
    def __init__(self, query: AuditQuery) -> None:
        self._query = query
        self._wanted = [(name, text) for name in _TEXTS if (text := getattr(query, name))]
        # A line without these bytes need not be parsed as JSON.
        self._needles = [
            f'"{name}":'.encode() + msgspec.json.encode(text) for name, text in self._wanted
        ]

    def __call__(self, raw: bytes) -> Line | None:
        if not all(needle in raw for needle in self._needles):
            return None
        sealed = read_line(raw)
        if sealed is None:
            return None
        line, query = sealed.line, self._query
        if query.since is not None and line.time < query.since:
            return None
        if query.until is not None and line.time >= query.until:
            return None
        if any(getattr(line, name) != text for name, text in self._wanted):
            return None
        return line


def latest(directory: Path, query: AuditQuery) -> Iterator[Line]:
    """Yield the lines that match, the latest first. Raises OSError."""
    matches = _Matcher(query)
    for path in reversed(files_in(directory)):
        begun = began(path)
        if begun is None or (query.until is not None and begun >= query.until):
            continue
        for raw in lines_backwards(path):
            line = matches(raw)
            if line is not None:
                yield line
        if query.since is not None and begun < query.since:
            return


def earliest(directory: Path, query: AuditQuery) -> Iterator[Line]:
    """Yield the lines that match, the earliest first. Raises OSError."""
    matches = _Matcher(query)
    files = files_in(directory)
    starts = [began(path) for path in files]
    for index, path in enumerate(files):
        if query.until is not None and (starts[index] or "") >= query.until:
            return
        following = starts[index + 1] if index + 1 < len(files) else None
        if query.since is not None and following is not None and following < query.since:
            continue
        with path.open("rb") as file:
            for raw in file:
                line = matches(raw.rstrip(b"\n"))
                if line is not None:
                    yield line


def follow(
    directory: Path, query: AuditQuery, wait: Callable[[float], None] = time.sleep
) -> Iterator[Line]:
    """Yield matching lines as they are written from now on, indefinitely. Raises OSError."""
    matches = _Matcher(query)
    files = files_in(directory)
    path = files[-1] if files else None
    at = 0 if path is None else path.stat().st_size
    while True:
        if path is not None:
            at, found = _grown(path, at)
            yield from (line for raw in found if (line := matches(raw)) is not None)
        newer = [each for each in files_in(directory) if path is None or each.name > path.name]
        if newer:
            if path is not None:
                _, found = _grown(path, at)
                yield from (line for raw in found if (line := matches(raw)) is not None)
            path, at = newer[0], 0
        else:
            wait(_POLL_S)


def parse_moment(text: str, now: datetime | None = None) -> str:
    """Convert a time such as `2026-03-01` or `2026-03-01T12:00:00+01:00`, or a time before now such
    as `30m` (s, m, h and d), to the format of lines.

    Raises ValueError, whose text is a sentence.
    """
    unit, amount = _UNITS.get(text[-1:]), text[:-1]
    try:
        if unit is not None and amount.isascii() and amount.isdecimal():
            found = (now or system.now()) - timedelta(**{unit: int(amount)})
        else:
            found = datetime.fromisoformat(text)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a valid time: write 2026-03-01, 2026-03-01T12:00:00Z, or 30m, 12h, 7d"
            " for a time before now."
        ) from None
    return f"{found:%Y-%m-%dT%H:%M:%S}.{found.microsecond // 1000:03}Z"


def _grown(path: Path, at: int) -> tuple[int, list[bytes]]:
    """The whole lines that were added to a file after byte `at`, and where they end."""
    with path.open("rb") as file:
        file.seek(at)
        added = file.read()
    whole, line_break, _ = added.rpartition(b"\n")
    return at + len(whole) + len(line_break), whole.split(b"\n") if line_break else []
