"""Stanzas that an instance has received and another one waits for."""

from collections.abc import Iterable, Sequence
from typing import Final

from component.store.database import Database
from component.store.schema import Table

TABLES: Final = (
    Table(
        name="passed_stanzas",
        columns="""
            number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            tag TEXT NOT NULL,
            at BIGINT NOT NULL,
            stanza TEXT NOT NULL
        """,
        indexes={"passed_stanzas_tag": "(tag, number)"},
        only="postgresql",
        kept="answers to this service, for a minute",
    ),
)
_KEPT_MS: Final = 60_000
_MOST: Final = 1_000
"""The number of stanzas that may wait for one instance. More are dropped: it does not read them."""


def channel_of(tag: str) -> str:
    """Return the channel on which an instance is notified of stanzas for it."""
    return f"stanzas_{tag}"


def put(database: Database, stanzas: Iterable[tuple[str, str]]) -> None:
    """Store stanzas, each with the tag of the instance that waits for it, and notify these."""
    database.execute("DELETE FROM passed_stanzas WHERE at < ?", (database.steady - _KEPT_MS,))
    tags = set[str]()
    for tag, stanza in stanzas:
        done = database.execute(
            "INSERT INTO passed_stanzas (tag, at, stanza) SELECT ?, ?, ?"
            " WHERE (SELECT count(*) FROM passed_stanzas WHERE tag = ?) < ?",
            (tag, database.steady, stanza, tag, _MOST),
        )
        if done.rowcount:
            tags.add(tag)
    for tag in sorted(tags):
        database.notify(channel_of(tag))


def take(database: Database, tag: str) -> Sequence[str]:
    """Remove and return the stanzas for an instance, in the order in which they were stored."""
    found = database.execute(
        "DELETE FROM passed_stanzas WHERE tag = ? RETURNING number, stanza", (tag,)
    )
    return [stanza for _, stanza in sorted(found.fetchall())]
