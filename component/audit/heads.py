"""How far the record has come, kept in the database: so a record that is shorter is noticed."""

import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from component.audit.lines import Link
from component.storage.database import Database


class Head(msgspec.Struct, frozen=True):
    """What the database knows of a record.

    `chain` is its name, drawn at random; `place` is the machine and the directory where it was
    written; `link` its last line then. Several records share a PostgreSQL database.
    """

    chain: str
    place: str
    link: Link


def place_of(directory: Path) -> str:
    """Where a record is written."""
    return f"{platform.node()}:{directory.resolve()}"


def put_head(database: Database, head: Head) -> None:
    """Keep how far a record has come; never less than before."""
    database.execute(
        "INSERT INTO audit_heads (chain, place, seq, hash, changed) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (chain) DO UPDATE SET place = excluded.place, seq = excluded.seq,"
        " hash = excluded.hash, changed = excluded.changed WHERE excluded.seq >= audit_heads.seq",
        (head.chain, head.place, head.link.seq, head.link.hash, database.now),
    )


def heads_in(database: Database) -> tuple[bool, Sequence[Head]]:
    """Whether other instances share the database, and what it knows of all records."""
    found = database.execute(
        "SELECT chain, place, seq, hash FROM audit_heads ORDER BY changed DESC, chain"
    ).fetchall()
    heads = [Head(chain, place, Link(seq, hash_)) for chain, place, seq, hash_ in found]
    return database.dialect == "postgresql", heads


def own_head(found: tuple[bool, Sequence[Head]], chain: str | None, directory: Path) -> Head | None:
    """What is known of the record in `directory`, which calls itself `chain` if it says so."""
    shared, heads = found
    for head in heads:
        if head.chain == chain:
            return head
    place = place_of(directory)
    for head in heads:
        if head.place == place or not shared:
            return head
    return None
