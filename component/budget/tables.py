"""The tables of spending."""

from typing import Final

from component.storage.schema import Table

TABLES: Final = (
    Table(
        name="spending",
        columns="""
            day TEXT NOT NULL,
            scope TEXT NOT NULL,
            subject TEXT {C} NOT NULL,
            tokens BIGINT NOT NULL,
            usd DOUBLE PRECISION NOT NULL,
            calls BIGINT NOT NULL,
            alerted INTEGER NOT NULL DEFAULT 0,
            cached BIGINT NOT NULL DEFAULT 0,
            reasoning BIGINT NOT NULL DEFAULT 0,
            PRIMARY KEY (day, scope, subject)
        """,
        kept="sums",
    ),
    Table(
        name="budget_allotments",
        columns="""
            day TEXT NOT NULL,
            scope TEXT NOT NULL,
            subject TEXT {C} NOT NULL,
            holder TEXT NOT NULL,
            instance TEXT NOT NULL,
            tokens BIGINT NOT NULL,
            nanos BIGINT NOT NULL,
            PRIMARY KEY (day, scope, subject, holder)
        """,
        kept="sums",
    ),
)
