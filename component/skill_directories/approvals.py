"""What is stored of skills in directories: what admins have approved, and what skills remember.

An approval is of one content, with its capabilities. It also has the description of the skill, so
that a start reads rows and no directories. That of a persona has its whole text. Memories are texts
by keys, of each skill and each of its callers by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from component.skills.errors import CapabilityMissing
from component.skills.host import (
    DeleteMemory,
    Handlers,
    HostError,
    ListMemory,
    ReadMemory,
    WriteMemory,
)
from component.store.database import Database
from component.store.errors import StorageError
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
            kind TEXT {C} NOT NULL,
            name TEXT {C} NOT NULL,
            digest TEXT {C} NOT NULL,
            directory TEXT NOT NULL,
            manifest TEXT NOT NULL,
            description TEXT NOT NULL,
            trusted INTEGER NOT NULL,
            approved_by TEXT NOT NULL,
            approved_at BIGINT NOT NULL,
            revoked_by TEXT,
            revoked_at BIGINT,
            PRIMARY KEY (kind, name)
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
        indexes={"skill_memories_principal": "(principal)"},
    ),
)

_SELECT: Final = """
    SELECT name, digest, directory, manifest, description, trusted, approved_by, approved_at,
        revoked_by, revoked_at
    FROM skill_approvals WHERE kind = ? ORDER BY name
"""
_INSERT: Final = """
    INSERT INTO skill_approvals
        (kind, name, digest, directory, manifest, description, trusted, approved_by, approved_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (kind, name) DO UPDATE SET
        digest = excluded.digest, directory = excluded.directory, manifest = excluded.manifest,
        description = excluded.description, trusted = excluded.trusted,
        approved_by = excluded.approved_by, approved_at = excluded.approved_at,
        revoked_by = NULL, revoked_at = NULL
"""


class Approval(msgspec.Struct, frozen=True, dict=True):
    """The latest approval of a skill or a persona.

    Attributes:
        directory: where it was installed or proposed then.
        text: the manifest of a skill; all of a persona.
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
    """The approvals in the database, of skills or of personas. Methods raise StorageError."""

    def __init__(self, storage: Storage, kind: Literal["skill", "persona"] = "skill") -> None:
        self._storage = storage
        self._kind = kind

    async def all(self) -> Sequence[Approval]:
        """Return the latest approval of each name."""

        def op(database: Database) -> Sequence[Approval]:
            rows: Sequence[Sequence[Any]] = database.execute(_SELECT, (self._kind,)).fetchall()
            return [Approval(*(*row[:5], bool(row[5]), *row[6:])) for row in rows]

        return await self._storage.read(op)

    async def put(self, approval: Approval) -> None:
        """Record an approval, in place of an earlier one of the same name."""

        *texts, trusted, by = msgspec.structs.astuple(approval)[:7]

        def op(database: Database) -> None:
            database.execute(_INSERT, (self._kind, *texts, int(trusted), by, database.now))

        await self._storage.write(op)

    async def revoke(self, name: str, by: str) -> bool:
        """Revoke an approval; return False if no valid one exists."""

        def op(database: Database) -> bool:
            done = database.execute(
                "UPDATE skill_approvals SET revoked_by = ?, revoked_at = ?"
                " WHERE kind = ? AND name = ? AND revoked_at IS NULL",
                (by, database.now, self._kind, name),
            )
            return done.rowcount > 0

        return await self._storage.write(op)


MOST_KEYS: Final = 1_000
LONGEST_KEY: Final = 200
LONGEST_VALUE: Final = 65_536


class SkillMemory:
    """Performs the host functions of memory for one skill and one caller.

    Args:
        storage: has the table; None where nothing is kept, and nothing can be remembered.
        principal: the bare JID of its caller.
    """

    def __init__(
        self, storage: Storage | None, skill: str, principal: str, capabilities: Capabilities
    ) -> None:
        self._storage = storage
        self._skill = skill
        self._principal = principal
        self._reads = bool(capabilities.memory_read or capabilities.memory_write)
        self._writes = bool(capabilities.memory_write)
        self.handlers: Handlers = {
            ReadMemory: self._get,
            WriteMemory: self._put,
            DeleteMemory: self._delete,
            ListMemory: self._keys,
        }

    async def _get(self, wanted: ReadMemory) -> str | None:
        key = wanted.key
        self._check("read", self._reads)
        _check_text(key)

        def op(database: Database) -> str | None:
            found = database.execute(
                "SELECT value FROM skill_memories WHERE skill = ? AND principal = ? AND name = ?",
                (self._skill, self._principal, key),
            ).fetchone()
            return None if found is None else str(found[0])

        with _explained():
            return await self._stored().read(op)

    async def _put(self, wanted: WriteMemory) -> None:
        key, value = wanted.key, wanted.value
        self._check("write", self._writes)
        if not 1 <= len(key) <= LONGEST_KEY:
            raise HostError(f"A key has 1 to {LONGEST_KEY} characters.")
        _check_text(key)
        if _check_text(value) > LONGEST_VALUE:
            raise HostError(f"A value has at most {LONGEST_VALUE} bytes.")

        def op(database: Database) -> bool:
            (number,) = database.execute(
                "SELECT count(*) FROM skill_memories"
                " WHERE skill = ? AND principal = ? AND name <> ?",
                (self._skill, self._principal, key),
            ).fetchone() or (0,)
            if number >= MOST_KEYS:
                return False
            database.execute(
                "INSERT INTO skill_memories (skill, principal, name, value) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (skill, principal, name) DO UPDATE SET value = excluded.value",
                (self._skill, self._principal, key, value),
            )
            return True

        with _explained():
            if not await self._stored().write(op):
                raise HostError(f"The skill has {MOST_KEYS} keys for this caller: delete some.")

    async def _delete(self, wanted: DeleteMemory) -> None:
        key = wanted.key
        self._check("write", self._writes)
        _check_text(key)

        def op(database: Database) -> None:
            database.execute(
                "DELETE FROM skill_memories WHERE skill = ? AND principal = ? AND name = ?",
                (self._skill, self._principal, key),
            )

        with _explained():
            await self._stored().write(op)

    async def _keys(self, wanted: ListMemory) -> list[str]:
        self._check("read", self._reads)

        def op(database: Database) -> list[str]:
            found = database.execute(
                "SELECT name FROM skill_memories WHERE skill = ? AND principal = ? ORDER BY name",
                (self._skill, self._principal),
            )
            return [str(name) for (name,) in found.fetchall()]

        with _explained():
            names = await self._stored().read(op)
        return [name for name in names if name.startswith(wanted.prefix)]

    def _stored(self) -> Storage:
        if self._storage is None:
            raise HostError("Nothing is remembered here: no service runs.")
        return self._storage

    def _check(self, what: str, allowed: bool) -> None:
        if not allowed:
            raise CapabilityMissing(self._skill, f"memory:{what}:skill")


def _check_text(text: str) -> int:
    """Return the length of a text in bytes. Raises HostError for one that no database can store."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise HostError("Keys and values have no halves of surrogate pairs.") from None
    if b"\0" in data:
        raise HostError("Keys and values have no character of code 0.")
    return len(data)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise HostError("The memory is not available now.") from error
