"""The descriptions in the database: which an admin has approved, and which wait for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from component.store.database import Database
from component.store.schema import Table
from component.store.storage import Storage
from component.store.tables import tells

TABLES: Final = (
    Table(
        name="skill_descriptions",
        columns="""
            source TEXT {C} NOT NULL,
            skill TEXT {C} NOT NULL,
            approved TEXT NOT NULL,
            approved_by TEXT NOT NULL,
            approved_at BIGINT NOT NULL,
            held TEXT NOT NULL,
            PRIMARY KEY (source, skill)
        """,
        postgres=(
            tells(
                "skill_descriptions",
                "UPDATE",
                "descriptions",
                "source",
                when="OLD.approved <> NEW.approved",
            ),
        ),
        kept="about skills, not about people",
        is_work=False,
    ),
)

_SELECT = "SELECT source, skill, approved, approved_by, approved_at, held FROM skill_descriptions"
_ALL: Final = f"{_SELECT} WHERE skill <> '' ORDER BY source, skill"
_OF_SOURCE: Final = f"{_SELECT} WHERE source = ? ORDER BY skill"
_INSERT: Final = """
    INSERT INTO skill_descriptions (source, skill, approved, approved_by, approved_at, held)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (source, skill) DO NOTHING
"""
_HOLD: Final = "UPDATE skill_descriptions SET held = ? WHERE source = ? AND skill = ?"
_DELETE: Final = """
    DELETE FROM skill_descriptions
    WHERE source = ? AND skill <> '' AND approved = '' AND held = ''
"""
_APPROVE: Final = """
    UPDATE skill_descriptions
    SET approved = held, approved_by = ?, approved_at = ?, held = ''
    WHERE source = ? AND skill = ? AND held = ?
"""
_REVOKE: Final = """
    UPDATE skill_descriptions
    SET approved = '', approved_by = '', approved_at = 0,
        held = CASE WHEN held = '' THEN approved ELSE held END
    WHERE source = ? AND skill = ?
"""
FIRST: Final = "first offer"
"""Who approves the first offer of a source."""
_SEEN: Final = ""
"""The name of a row that says that a source has made its first offer."""


class DescriptionRow(msgspec.Struct, frozen=True):
    """A skill of a source.

    Attributes:
        approved: the content that was approved; empty if none was.
        approved_by, approved_at: by whom, and milliseconds since 1970.
        held: the content that the source offers, if it waits for an approval.
    """

    source: str
    skill: str
    approved: str = ""
    approved_by: str = ""
    approved_at: int = 0
    held: str = ""


def all_rows(database: Database) -> Sequence[DescriptionRow]:
    """Return the rows of all sources."""
    return [DescriptionRow(*found) for found in database.execute(_ALL).fetchall()]


async def offered(
    storage: Storage, source: str, contents: Mapping[str, str], *, hold_first: bool
) -> Mapping[str, DescriptionRow]:
    """Store what a source offers now: contents by the names of skills. Return its rows.

    The first offer is approved unless `hold_first`. Later, what differs from what was approved is
    held. Raises StorageError.
    """

    def op(database: Database) -> Mapping[str, DescriptionRow]:
        rows = _of_source(database, source)
        first = not rows and not hold_first
        for row in _changed(source, rows, contents, first=first):
            if row.skill in rows:
                database.execute(_HOLD, (row.held, source, row.skill))
            else:
                at = database.now if row.approved else 0
                database.execute(
                    _INSERT, (source, row.skill, row.approved, row.approved_by, at, row.held)
                )
        database.execute(_DELETE, (source,))
        return _of_source(database, source)

    rows = await storage.read(lambda database: _of_source(database, source))
    if _changed(source, rows, contents, first=False):
        rows = await storage.write(op)
    return {name: row for name, row in rows.items() if name != _SEEN}


def approve(database: Database, row: DescriptionRow, by: str) -> bool:
    """Approve what is held in a row; False if it has changed meanwhile."""
    values = (by, database.now, row.source, row.skill, row.held)
    return database.execute(_APPROVE, values).rowcount > 0


def revoke(database: Database, row: DescriptionRow) -> None:
    """Revoke the approval of a skill: it is held until it is approved again."""
    database.execute(_REVOKE, (row.source, row.skill))


def _of_source(database: Database, source: str) -> Mapping[str, DescriptionRow]:
    found = database.execute(_OF_SOURCE, (source,)).fetchall()
    return {row.skill: row for row in (DescriptionRow(*values) for values in found)}


def _changed(
    source: str, rows: Mapping[str, DescriptionRow], contents: Mapping[str, str], *, first: bool
) -> list[DescriptionRow]:
    """Return the rows that change with an offer. What is not offered any more is not held."""
    found = [DescriptionRow(source=source, skill=_SEEN)] if contents and _SEEN not in rows else []
    for skill, content in contents.items():
        row = rows.get(skill, DescriptionRow(source=source, skill=skill))
        if first:
            row = msgspec.structs.replace(row, approved=content, approved_by=FIRST)
        found.append(msgspec.structs.replace(row, held="" if row.approved == content else content))
    found += [
        msgspec.structs.replace(row, held="") for name, row in rows.items() if name not in contents
    ]
    return [row for row in found if rows.get(row.skill) != row]
