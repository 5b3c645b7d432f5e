"""The tables of skills in directories that admins approve, and of what skills remember."""

from typing import Final

from component.store.schema import Table
from component.store.tables import tells

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
