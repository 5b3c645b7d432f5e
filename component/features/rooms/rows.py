"""The rows of rooms: those that an agent has entered or left because somebody said so, and what was
changed about them by commands.

Functions take the `Database` of one operation.
"""

from typing import Final

import msgspec

from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.schema import Table
from component.store.tables import tells

TOPIC: Final = "rooms"
"""The topic of the notifications to other instances about changed rows."""

TABLES: Final = (
    Table(
        name="agent_rooms",
        columns="""
            agent TEXT {C} NOT NULL,
            room TEXT {C} NOT NULL,
            nick TEXT NOT NULL DEFAULT '',
            answer TEXT NOT NULL DEFAULT '',
            persona TEXT NOT NULL DEFAULT '',
            password TEXT NOT NULL DEFAULT '',
            inviter TEXT {C} NOT NULL DEFAULT '',
            is_left INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (agent, room)
        """,
        postgres=(tells("agent_rooms", "INSERT OR UPDATE OR DELETE", TOPIC, "room"),),
    ),
)


class RoomRow(msgspec.Struct, frozen=True, kw_only=True):
    """A room of an agent. Empty texts stand for what the settings say.

    `inviter` is the bare JID of the person because of whom the agent has entered it; empty for a
    room of the settings. `is_left` says that it must not be entered.
    """

    agent: str
    room: str
    nick: str = ""
    answer: str = ""
    persona: str = ""
    password: str = ""
    inviter: str = ""
    is_left: bool = False


def all_rows(database: Database) -> list[RoomRow]:
    """Return all rows."""
    found = database.execute(
        "SELECT agent, room, nick, answer, persona, password, inviter, is_left FROM agent_rooms"
        " ORDER BY agent, room"
    ).fetchall()
    names = RoomRow.__struct_fields__
    rows = [dict(zip(names, each, strict=True)) for each in found]
    return msgspec.convert(rows, list[RoomRow], strict=False)


def put(database: Database, row: RoomRow) -> None:
    """Add a row, or replace the one of this agent and room."""
    database.execute(
        "INSERT INTO agent_rooms (agent, room, nick, answer, persona, password, inviter, is_left)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (agent, room) DO UPDATE SET nick = excluded.nick, answer = excluded.answer,"
        " persona = excluded.persona, password = excluded.password, inviter = excluded.inviter,"
        " is_left = excluded.is_left",
        (*msgspec.structs.astuple(row)[:-1], int(row.is_left)),
    )


def remove(database: Database, agent: str, room: str) -> None:
    """Remove the row of an agent and a room, if there is one."""
    database.execute("DELETE FROM agent_rooms WHERE agent = ? AND room = ?", (agent, room))


def forget(database: Database, who: Forgotten) -> None:
    """Forget who has invited an agent. It stays in the room, which belongs to all who are there."""
    database.execute(
        "UPDATE agent_rooms SET inviter = '' WHERE agent = ? AND inviter = ?",
        (who.agent, str(who.person)),
    )
