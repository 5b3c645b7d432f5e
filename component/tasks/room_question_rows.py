"""The tables of questions that are put to rooms: `room_questions` and `room_messages`, and every
statement on them.

A question is asked in a room by a message, which is corrected whenever its state changes. Reactions
and replies refer to it by the id that the room has given it, or by ours. Both are stored, so that
they are known after a restart.
"""

from typing import Final

import msgspec

from component.store.database import Database
from component.store.schema import Table
from xep.jid import JID

TABLES: Final = (
    Table(
        name="room_questions",
        columns="""
            input TEXT PRIMARY KEY REFERENCES inputs ON DELETE CASCADE,
            room TEXT {C} NOT NULL,
            agent TEXT {C} NOT NULL,
            shown TEXT NOT NULL DEFAULT '',
            done INTEGER NOT NULL DEFAULT 0
        """,
        indexes={"room_questions_open": "(done) WHERE done = 0"},
        kept="part of a task",
    ),
    Table(
        name="room_messages",
        columns="""
            room TEXT {C} NOT NULL,
            id TEXT {C} NOT NULL,
            input TEXT NOT NULL REFERENCES inputs ON DELETE CASCADE,
            PRIMARY KEY (room, id)
        """,
        indexes={"room_messages_input": "(input)"},
        kept="part of a task",
    ),
)


class RoomQuestionRow(msgspec.Struct, frozen=True):
    """A question to a room. `shown` is the text that the room was shown last, empty if it was not
    asked there; `agent` is the address of the agent that asks.
    """

    input: str
    room: JID
    agent: JID
    shown: str


def insert(database: Database, question: str, room: JID, agent: JID) -> None:
    """Note that a question is to be asked in a room."""
    database.execute(
        "INSERT INTO room_questions (input, room, agent) VALUES (?, ?, ?)",
        (question, str(room.bare), str(agent.bare)),
    )


def unfinished(database: Database) -> list[RoomQuestionRow]:
    """Return the questions of which the rooms do not know yet how they ended."""
    found = database.execute(
        "SELECT input, room, agent, shown FROM room_questions WHERE done = 0 ORDER BY input"
    ).fetchall()
    return [
        RoomQuestionRow(input_, JID.parse(room), JID.parse(agent), shown)
        for input_, room, agent, shown in found
    ]


def show(database: Database, question: str, text: str, *, done: bool) -> None:
    """Record the text that a room is shown; with `done` it is the last one."""
    database.execute(
        "UPDATE room_questions SET shown = ?, done = ? WHERE input = ?", (text, int(done), question)
    )


def add_message(database: Database, room: JID, id_: str, question: str) -> None:
    """Record an id of a message that asks a question in a room."""
    database.execute(
        "INSERT INTO room_messages (room, id, input) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (str(room), id_, question),
    )


def remove_message(database: Database, room: JID, id_: str) -> None:
    """Forget an id that another message in the room has, too."""
    database.execute("DELETE FROM room_messages WHERE room = ? AND id = ?", (str(room), id_))


def messages_of(database: Database, question: str) -> list[str]:
    """Return the ids of the messages that ask a question in its room."""
    found = database.execute(
        "SELECT id FROM room_messages WHERE input = ? ORDER BY id", (question,)
    ).fetchall()
    return [id_ for (id_,) in found]
