"""Going on with the record of the life before: what is there, and what is mended and told."""

import hashlib
import itertools
import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from component.audit.files import DIRECTORY, end_of, files_in, lines_backwards
from component.audit.heads import Head, own_head
from component.audit.journal import Journal, failing, sync_directory
from component.audit.lines import Link, Sealed, read_line
from component.audit.protocol import Event
from component.private import make_directory, open_private

CHAIN_FILE: Final = "chain"
"""Holds the name of the record, by which the database knows it."""
_CHAIN: Final = re.compile(r"[0-9a-f]{16}")
_LOOKED_AT: Final = 20_000
"""Lines that are read back to find the one that the database knows."""


class Opened(msgspec.Struct, frozen=True):
    """A record that can be gone on with: its name, where the chain goes on, and what to tell."""

    chain: str
    link: Link
    journal: Journal
    news: tuple[Event, ...]


def open_record(
    data: Path, heads: tuple[bool, Sequence[Head]], max_bytes: int, version: str
) -> Opened:
    """Open the record in the data directory `data`, of which the database knows `heads`.

    What a write left that did not come to its end is taken out of the record, and kept beside it.
    Nothing else is changed. Raises StorageError.
    """
    directory = data / DIRECTORY
    with failing(directory):
        make_directory(directory)
        chain = read_chain(directory)
        head = own_head(heads, chain, directory)
        if chain is None:
            chain = secrets.token_hex(8) if head is None else head.chain
            _write_chain(directory, chain)
        path, last, size, repairs = _mend(directory)
        link = Link() if last is None else Link(last.line.seq, last.hash)
        broken = None if head is None else _broken(path, link, head.link)
    news = [*repairs]
    if broken is not None:
        news.append(Event(kind="record", outcome="broken", detail=broken))
    if head is not None and head.link.seq > link.seq:
        # Numbers that were given are not given again: the hole stays to be seen.
        link, path = head.link, None
    news.append(Event(kind="record", outcome="opened", detail=_said(version, last, head)))
    day = "" if last is None else last.line.time[:10]
    return Opened(chain, link, Journal(directory, path, size, day, max_bytes), tuple(news))


def check_writable(data: Path) -> None:
    """Find out, without recording anything, whether there could be a record in `data`.

    Raises StorageError: it could not be written.
    """
    directory = data / DIRECTORY
    with failing(directory):
        make_directory(directory)
        with tempfile.TemporaryFile(dir=directory):
            pass


def read_chain(directory: Path) -> str | None:
    """The name of the record; None if there is none that can be read. Raises OSError."""
    try:
        text = (directory / CHAIN_FILE).read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    return text if _CHAIN.fullmatch(text) else None


def _write_chain(directory: Path, chain: str) -> None:
    with open_private(directory / CHAIN_FILE, "w") as file:
        file.write(f"{chain}\n")
        file.flush()
        os.fsync(file.fileno())
    sync_directory(directory)


def _mend(directory: Path) -> tuple[Path | None, Sealed | None, int, list[Event]]:
    """The last file and its last line, how much of it counts, and what was taken out."""
    repairs: list[Event] = []
    for path in reversed(files_in(directory)):
        end = end_of(path)
        if end.rest:
            repairs.append(_set_aside(path, end.rest, end.size, end.last))
        if end.last is not None:
            return path, end.last, end.size, repairs
        path.unlink()  # begun, and nothing of it ever got whole
        sync_directory(directory)
    return None, None, 0, repairs


def _set_aside(path: Path, rest: bytes, size: int, last: Sealed | None) -> Event:
    """Take what is no line out of a file, and keep it beside it."""
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
    why = "the end of a write that was cut short"
    if b"\n" in rest:
        why = "whole lines among them, as a power failure leaves them, or somebody who changes them"
    return Event(
        kind="record",
        outcome="repaired",
        subject=path.name,
        detail=f"{len(rest)} bytes after {after} were not right: {why}. They are in {kept.name},"
        f" SHA-256 {digest}.",
    )


def _broken(path: Path | None, link: Link, known: Link) -> str | None:
    """What is wrong with the end of the record, if it is not what the database knows."""
    if known.seq > link.seq:
        return (
            f"Lines {link.seq + 1} to {known.seq} were on disk and are gone. The chain goes on"
            f" after line {known.seq}."
        )
    if path is None or not known.seq:
        return None
    for raw in itertools.islice(lines_backwards(path), _LOOKED_AT):
        sealed = read_line(raw)
        if sealed is not None and sealed.line.seq <= known.seq:
            if sealed.line.seq == known.seq and sealed.hash != known.hash:
                return f"Line {known.seq} is another than the one that was on disk."
            return None
    return None


def _said(version: str, last: Sealed | None, head: Head | None) -> str:
    said = [f"release {version}"]
    if last is None:
        said.append("nothing was recorded before" if head is None else "no file was there")
    else:
        if (last.line.kind, last.line.outcome) != ("record", "closed"):
            said.append("the life before did not come to its end in order")
        if head is None:
            said.append("the database knew nothing of the record")
    return "; ".join(said)
