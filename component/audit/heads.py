"""The last line of the audit log, stored in the database so that a truncated log is detected."""

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from component.audit.lines import ChainLink
from component.store.database import Database
from component.store.schema import Table

TABLES: Final = (
    Table(
        name="audit_heads",
        columns="""
            chain TEXT PRIMARY KEY,
            place TEXT NOT NULL,
            seq BIGINT NOT NULL,
            hash TEXT NOT NULL,
            changed BIGINT NOT NULL
        """,
        kept="the state of the audit log, which is kept",
        is_work=False,
    ),
)


class Head(msgspec.Struct, frozen=True):
    """The state of an audit log as stored in the database.

    `chain` is its random name, `place` the machine and directory where it was written, `link` its
    last line at that time. A PostgreSQL database can be shared by several audit logs.
    """

    chain: str
    place: str
    link: ChainLink


def place_of(directory: Path) -> str:
    """The machine and directory where an audit log is written."""
    return f"{platform.node()}:{directory.resolve()}"


def put_head(database: Database, head: Head) -> None:
    """Store the last line of an audit log, unless a later one is stored."""
    database.execute(
        "INSERT INTO audit_heads (chain, place, seq, hash, changed) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (chain) DO UPDATE SET place = excluded.place, seq = excluded.seq,"
        " hash = excluded.hash, changed = excluded.changed WHERE excluded.seq >= audit_heads.seq",
        (head.chain, head.place, head.link.seq, head.link.hash, database.now),
    )


def heads_in(database: Database) -> tuple[bool, Sequence[Head]]:
    """Whether other instances can share the database, and the heads of all audit logs in it."""
    found = database.execute(
        "SELECT chain, place, seq, hash FROM audit_heads ORDER BY changed DESC, chain"
    ).fetchall()
    heads = [Head(chain, place, ChainLink(seq, hash_)) for chain, place, seq, hash_ in found]
    return database.dialect == "postgresql", heads


def own_head(found: tuple[bool, Sequence[Head]], chain: str | None, directory: Path) -> Head | None:
    """The head of the audit log in `directory`, whose name is `chain` if that is known."""
    shared, heads = found
    for head in heads:
        if head.chain == chain:
            return head
    place = place_of(directory)
    for head in heads:
        if head.place == place or not shared:
            return head
    return None
