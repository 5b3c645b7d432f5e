"""What admins have approved: which content of which skill, with which capabilities.

An approval also has the description of the skill, so that a start reads rows and no directories.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from component.store.database import Database
from component.store.schema import Table
from component.store.storage import Storage
from component.store.tables import tells

if TYPE_CHECKING:
    from component.skills.capabilities import Capabilities
    from component.skills.manifest import Manifest

TABLES: Final = (
    Table(
        name="skill_approvals",
        columns="""
            name TEXT {C} NOT NULL PRIMARY KEY,
            digest TEXT {C} NOT NULL,
            directory TEXT NOT NULL,
            manifest TEXT NOT NULL,
            description TEXT NOT NULL,
            trusted INTEGER NOT NULL,
            approved_by TEXT NOT NULL,
            approved_at BIGINT NOT NULL,
            revoked_by TEXT,
            revoked_at BIGINT
        """,
        postgres=(tells("skill_approvals", "INSERT OR UPDATE", "skills", "name"),),
        kept="about skills, not about people",
    ),
    Table(
        name="skill_memories",
        columns="""
            skill TEXT {C} NOT NULL,
            principal TEXT {C} NOT NULL,
            name TEXT {C} NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (skill, principal, name)
        """,
        indexes={
            "skill_memories_principal": "(principal)",
        },
    ),
)

_SELECT: Final = """
    SELECT name, digest, directory, manifest, description, trusted, approved_by, approved_at,
        revoked_by, revoked_at
    FROM skill_approvals ORDER BY name
"""
_INSERT: Final = """
    INSERT INTO skill_approvals
        (name, digest, directory, manifest, description, trusted, approved_by, approved_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET
        digest = excluded.digest, directory = excluded.directory, manifest = excluded.manifest,
        description = excluded.description, trusted = excluded.trusted,
        approved_by = excluded.approved_by, approved_at = excluded.approved_at,
        revoked_by = NULL, revoked_at = NULL
"""


class Approval(msgspec.Struct, frozen=True, dict=True):
    """The latest approval of a skill.

    Attributes:
        directory: where it was installed then.
        trusted: whether it runs inside the service.
        approved_by, approved_at: the admin, and milliseconds since 1970.
        revoked_by, revoked_at: likewise, if the approval was revoked.
    """

    name: str
    digest: str
    directory: str
    text: str
    description: str
    trusted: bool
    approved_by: str = ""
    approved_at: int = 0
    revoked_by: str | None = None
    revoked_at: int | None = None

    @property
    def counts(self) -> bool:
        """Whether it was not revoked."""
        return self.revoked_at is None

    @cached_property
    def manifest(self) -> Manifest:
        """The approved manifest. Raises ManifestError if another release wrote it."""
        # Imported here, because the table of the approvals is made without it.
        from component.skills.manifest import read_manifest  # noqa: PLC0415

        return read_manifest(self.text)

    @property
    def capabilities(self) -> Capabilities:
        """The approved capabilities."""
        return self.manifest.skill.capabilities


class Approvals:
    """The approvals in the database. Methods raise StorageError."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def all(self) -> Sequence[Approval]:
        """Return the latest approval of each skill."""

        def op(database: Database) -> Sequence[Approval]:
            rows: Sequence[Sequence[Any]] = database.execute(_SELECT).fetchall()
            return [Approval(*(*row[:5], bool(row[5]), *row[6:])) for row in rows]

        return await self._storage.read(op)

    async def put(self, approval: Approval) -> None:
        """Record an approval, in place of an earlier one of the same skill."""

        *texts, trusted, by = msgspec.structs.astuple(approval)[:7]

        def op(database: Database) -> None:
            database.execute(_INSERT, (*texts, int(trusted), by, database.now))

        await self._storage.write(op)

    async def revoke(self, name: str, by: str) -> bool:
        """Revoke an approval; return False if no valid one exists."""

        def op(database: Database) -> bool:
            done = database.execute(
                "UPDATE skill_approvals SET revoked_by = ?, revoked_at = ?"
                " WHERE name = ? AND revoked_at IS NULL",
                (by, database.now, name),
            )
            return done.rowcount > 0

        return await self._storage.write(op)
