"""The tables of agents and their turns."""

from typing import Final

from component.storage.schema import Table
from component.storage.tables import tells

TABLES: Final = (
    Table(
        name="agents",
        columns="""
            id TEXT PRIMARY KEY,
            name TEXT {C} NOT NULL UNIQUE,
            state TEXT NOT NULL CHECK (state IN ('created', 'active', 'idle', 'paused', 'killed')),
            created BIGINT NOT NULL,
            changed BIGINT NOT NULL
        """,
        postgres=(tells("agents", "UPDATE", "agents", "name", when="OLD.state <> NEW.state"),),
        kept="about agents, not about people",
    ),
    Table(
        name="turns",
        columns="""
            id TEXT PRIMARY KEY,
            home TEXT NOT NULL,
            session TEXT {C} NOT NULL,
            message TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'parked')),
            waiting TEXT,
            created BIGINT NOT NULL
        """,
        indexes={
            "turns_home": "(home, created, id)",
        },
        kept="deleted when the conversation is stopped",
    ),
    Table(
        name="turn_outcomes",
        columns="""
            turn TEXT {C} PRIMARY KEY,
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            at BIGINT NOT NULL
        """,
        kept="deleted when the person has got the outcome",
    ),
)
