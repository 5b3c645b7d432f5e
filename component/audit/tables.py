"""The table of the audit log."""

from typing import Final

from component.storage.schema import Table

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
    ),
)
