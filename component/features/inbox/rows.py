"""The tables `displayed_messages` and `archived_entries`, and the statements on them.

They have what is in no other table: up to which message a client of a person has displayed, and
what the person has put away. Times are those of the steady clock, in milliseconds.
"""

from collections.abc import Collection
from typing import Final

from component.agent_addresses import canonical_address
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.notifications import mark_displayed
from component.store.schema import Table
from component.tasks.attention import told_at
from component.tasks.rows import steady
from xep.jid import JID

TABLES: Final = (
    Table(
        name="displayed_messages",
        columns="""
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            until BIGINT NOT NULL,
            PRIMARY KEY (agent, person)
        """,
    ),
    Table(
        name="archived_entries",
        columns="""
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            entry TEXT {C} NOT NULL,
            retain_until BIGINT NOT NULL,
            PRIMARY KEY (agent, person, entry)
        """,
    ),
)

_WHO: Final = "agent = ? AND person = ?"


def note_displayed(
    database: Database, agent: JID, person: JID, message: str, queued: int | None
) -> bool:
    """Record that a client of a person has displayed a message of an agent, and all before it.

    `queued` is when the message was queued, in milliseconds since 1970, if that is known. Return
    False if the message is unknown.
    """
    until = mark_displayed(database, person, message)
    if until is None and queued is not None:
        until = steady(database, queued)
    if until is None:
        until = told_at(database, person, message)
    if until is None:
        return False
    database.execute(
        "INSERT INTO displayed_messages AS known (agent, person, until) VALUES (?, ?, ?)"
        " ON CONFLICT (agent, person) DO UPDATE SET until = excluded.until"
        " WHERE known.until < excluded.until",
        (*_key(agent, person), until),
    )
    return True


def displayed_until(database: Database, agent: JID, person: JID) -> int:
    """Return the time of the last message that a client of a person has displayed; 0 for none."""
    found = database.execute(
        f"SELECT until FROM displayed_messages WHERE {_WHO}",  # noqa: S608 - constants
        _key(agent, person),
    ).fetchone()
    return 0 if found is None else int(found[0])


def archive(
    database: Database, agent: JID, person: JID, entries: Collection[str], keep_ms: int
) -> None:
    """Record that a person has put entries away, for as long as what they show may be stored."""
    database.execute(
        f"DELETE FROM archived_entries WHERE {_WHO} AND retain_until <= ?",  # noqa: S608 - constants
        (*_key(agent, person), database.steady),
    )
    for entry in entries:
        database.execute(
            "INSERT INTO archived_entries (agent, person, entry, retain_until) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (agent, person, entry) DO NOTHING",
            (*_key(agent, person), entry, database.steady + keep_ms),
        )


def archived(database: Database, agent: JID, person: JID) -> Collection[str]:
    """Return the entries that a person has put away."""
    found = database.execute(
        f"SELECT entry FROM archived_entries WHERE {_WHO}",  # noqa: S608 - constants
        _key(agent, person),
    ).fetchall()
    return {entry for (entry,) in found}


def forget(database: Database, who: Forgotten) -> None:
    """Delete the rows of a person."""
    for table in ("displayed_messages", "archived_entries"):
        database.execute(
            f"DELETE FROM {table} WHERE {_WHO}",  # noqa: S608 - constants
            _key(who.address, who.person),
        )


def _key(agent: JID, person: JID) -> tuple[str, str]:
    return str(canonical_address(agent)), str(person.bare)
