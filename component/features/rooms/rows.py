"""The rows of rooms: those that an agent has entered or left because somebody said so, and what was
changed about them by commands.

Functions take the `Database` of one operation.
"""

from typing import Final

import msgspec

from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.schema import Table

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
    ),
)

CHANNEL: Final = "rooms"
"""Notified when a row was added, changed or removed."""
_COLUMNS: Final = "agent, room, nick, answer, persona, password, inviter, is_left"


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
    found = database.execute(f"SELECT {_COLUMNS} FROM agent_rooms ORDER BY agent, room").fetchall()
    return [
        RoomRow(
            agent=agent,
            room=room,
            nick=nick,
            answer=answer,
            persona=persona,
            password=password,
            inviter=inviter,
            is_left=bool(is_left),
        )
        for agent, room, nick, answer, persona, password, inviter, is_left in found
    ]


def put(database: Database, row: RoomRow) -> None:
    """Add a row, or replace the one of this agent and room."""
    database.execute(
        f"INSERT INTO agent_rooms ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (agent, room) DO UPDATE SET nick = excluded.nick, answer = excluded.answer,"
        " persona = excluded.persona, password = excluded.password, inviter = excluded.inviter,"
        " is_left = excluded.is_left",
        (
            *(row.agent, row.room, row.nick, row.answer, row.persona, row.password, row.inviter),
            int(row.is_left),
        ),
    )
    database.notify(CHANNEL)


def remove(database: Database, agent: str, room: str) -> None:
    """Remove the row of an agent and a room, if there is one."""
    database.execute("DELETE FROM agent_rooms WHERE agent = ? AND room = ?", (agent, room))
    database.notify(CHANNEL)


def forget(database: Database, who: Forgotten) -> None:
    """Forget who has invited an agent. It stays in the room, which belongs to all who are there."""
    database.execute(
        "UPDATE agent_rooms SET inviter = '' WHERE agent = ? AND inviter = ?",
        (who.agent, str(who.person)),
    )
