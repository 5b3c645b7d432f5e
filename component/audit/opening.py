"""Continue the audit log of the previous run: check it, repair its end, and report both."""

import hashlib
import itertools
import os
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from component import system
from component.audit.files import (
    DIRECTORY,
    LogWriter,
    end_of,
    failing,
    files_in,
    lines_backwards,
)
from component.audit.heads import Head, own_head
from component.audit.lines import ChainLink, Line, Sealed, read_line
from component.audit.protocol import AuditEvent
from component.private import make_directory, open_private
from component.store.directory import sync_directory

CHAIN_FILE: Final = "chain"
"""The file with the name of the audit log under which the database knows it."""
_CHAIN: Final = r"[0-9a-f]{16}"
_LOOKED_AT: Final = 20_000
"""Maximum number of lines read backwards to find the one that the database knows."""
_LAG: Final = timedelta(minutes=1)
"""The database counts as current if it lags behind the log by less than this: the number of the
last line is stored in it once a second.
"""


class OpenedLog(msgspec.Struct, frozen=True):
    """An audit log that can be continued: its name, its last link, and events to record."""

    chain: str
    link: ChainLink
    journal: LogWriter
    news: tuple[AuditEvent, ...]


def open_record(
    data: Path, heads: tuple[bool, Sequence[Head]], max_bytes: int, version: str
) -> OpenedLog:
    """Open the audit log in the data directory `data`; `heads` are those in the database.

    Bytes left by an interrupted write are moved to a file beside the log.
    Nothing else is changed. Raises StorageError.
    """
    directory = data / DIRECTORY
    with failing(directory):
        make_directory(directory)
        chain = read_chain(directory)
        head = own_head(heads, chain, directory)
        if chain is None:
            chain = system.token_hex(8) if head is None else head.chain
            _write_chain(directory, chain)
        path, last, size, repairs = _mend(directory)
        link = ChainLink() if last is None else ChainLink(last.line.seq, last.hash)
        known = None if head is None else _known(directory, head.link.seq)
        broken = None if head is None else _broken(link, head.link, known)
        newer = None if last is None else _newer(last.line, head, known)
    news = [*repairs]
    if broken is not None:
        news.append(AuditEvent(kind="record", outcome="broken", detail=broken))
    if newer is not None:
        news.append(AuditEvent(kind="record", outcome="newer", detail=newer))
    if head is not None and head.link.seq > link.seq:
        # Numbers are not reused, so the gap remains visible.
        link, path = head.link, None
    news.append(AuditEvent(kind="record", outcome="opened", detail=_said(version, last, head)))
    day = "" if last is None else last.line.time[:10]
    return OpenedLog(chain, link, LogWriter(directory, path, size, day, max_bytes), tuple(news))


def check_writable(data: Path) -> None:
    """Check that an audit log can be written in `data`, without recording anything.

    Raises StorageError if it cannot be written.
    """
    import tempfile  # noqa: PLC0415 - only `doctor` needs it

    directory = data / DIRECTORY
    with failing(directory):
        make_directory(directory)
        with tempfile.TemporaryFile(dir=directory):
            pass


def read_chain(directory: Path) -> str | None:
    """The name of the audit log; None if there is no valid one. Raises OSError."""
    try:
        text = (directory / CHAIN_FILE).read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    return text if re.fullmatch(_CHAIN, text) else None


def _write_chain(directory: Path, chain: str) -> None:
    with open_private(directory / CHAIN_FILE, "w") as file:
        file.write(f"{chain}\n")
        file.flush()
        os.fsync(file.fileno())
    sync_directory(directory)


def _mend(directory: Path) -> tuple[Path | None, Sealed | None, int, list[AuditEvent]]:
    """The last file, its last line, its valid size, and events about removed bytes."""
    repairs: list[AuditEvent] = []
    for path in reversed(files_in(directory)):
        end = end_of(path)
        if end.rest:
            repairs.append(_set_aside(path, end.rest, end.size, end.last))
        if end.last is not None:
            return path, end.last, end.size, repairs
        path.unlink()  # started, but no line was completed
        sync_directory(directory)
    return None, None, 0, repairs


def _set_aside(path: Path, rest: bytes, size: int, last: Sealed | None) -> AuditEvent:
    """Move the bytes after the last valid line to a file beside it."""
    digest = hashlib.sha256(rest).hexdigest()
    kept = path.with_name(f"torn-{digest[:12]}.bin")
    with open_private(kept, "wb") as file:
        file.write(rest)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)
    with path.open("rb+") as file:
        file.truncate(size)
        os.fsync(file.fileno())
    after = f"line {last.line.seq}" if last is not None else "nothing"
    why = "the end of an interrupted write"
    if b"\n" in rest:
        why = "they include complete lines, left by a power failure or changed by somebody"
    return AuditEvent(
        kind="record",
        outcome="repaired",
        subject=path.name,
        detail=f"{len(rest)} bytes after {after} were not valid: {why}. They are in {kept.name},"
        f" SHA-256 {digest}.",
    )


def _known(directory: Path, seq: int) -> Sealed | None:
    """The line with this number, or one before it; the first line if there is none."""
    first: Sealed | None = None
    for path in reversed(files_in(directory)):
        with path.open("rb") as file:
            first = read_line(file.readline().rstrip(b"\n")) or first
        if first is None or first.line.seq > seq:
            continue
        for raw in itertools.islice(lines_backwards(path), _LOOKED_AT):
            sealed = read_line(raw)
            if sealed is not None and sealed.line.seq <= seq:
                return sealed
        break
    return first


def _broken(link: ChainLink, head: ChainLink, known: Sealed | None) -> str | None:
    """What is wrong with the end of the log, if it differs from what the database knows."""
    if head.seq > link.seq:
        return (
            f"Lines {link.seq + 1} to {head.seq} were on disk and are missing. The chain continues"
            f" after line {head.seq}."
        )
    if known is not None and known.line.seq == head.seq and known.hash != head.hash:
        return f"Line {head.seq} differs from the one that was on disk."
    return None


def _newer(last: Line, head: Head | None, known: Sealed | None) -> str | None:
    """What to do if the log records decisions that the database does not have."""
    if head is None or known is None:
        return (
            f"The last line is of {last.time}, but the database does not know the audit log: it is"
            " a new one, or another one. Approvals, consents and subscriptions that the log"
            " records are not in it."
        )
    since = known.line.time
    if datetime.fromisoformat(last.time) - datetime.fromisoformat(since) < _LAG:
        return None
    return (
        f"The last line is of {last.time}, but the database is of {since}: it may be from a"
        " backup. What was approved, revoked, allowed or stopped since then is not in it. See"
        f" `xmpp-agent audit query --since {since}`, and repeat what is still to hold."
    )


def _said(version: str, last: Sealed | None, head: Head | None) -> str:
    said = [f"release {version}"]
    if last is None:
        said.append("nothing was recorded before" if head is None else "no file was found")
    elif (last.line.kind, last.line.outcome) != ("record", "closed"):
        said.append("the previous run did not shut down cleanly")
    return "; ".join(said)
