"""The table `turns`: messages that are not answered yet. A row is there until the answer is said.

These are functions of a `Database`, for `Storage.read` and `Storage.write`.
"""

from collections.abc import Sequence

import msgspec

from component.agent.protocol import Incoming
from component.memory.lines import SessionKey
from component.storage.database import Database
from xep.jid import JID


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a row waits for.

    `joined` is the turn by which it is answered, `until` a time to say an answer (milliseconds
    since 1970, UTC), `tasks` those that have to end first.
    """

    joined: str | None = None
    until: int | None = None
    tasks: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """A message that is not answered yet."""

    incoming: Incoming
    wait: Wait | None


_encode = msgspec.json.Encoder().encode
_incoming = msgspec.json.Decoder(Incoming).decode
_wait = msgspec.json.Decoder(Wait).decode


def insert(db: Database, home: str, key: SessionKey, incoming: Incoming) -> bool:
    """Add a message to a session. False if it is there already.

    Rows of one home are ordered by `created`, so no two have the same.
    """
    (latest,) = db.execute("SELECT max(created) FROM turns WHERE home = ?", (home,)).fetchone() or (
        None,
    )
    created = db.now if latest is None else max(db.now, latest + 1)
    added = db.execute(
        "INSERT INTO turns VALUES (?, ?, ?, ?, 'queued', NULL, ?) ON CONFLICT (id) DO NOTHING",
        (incoming.id, home, key_text(key), _encode(incoming).decode(), created),
    )
    return added.rowcount == 1


def of_home(db: Database, home: str) -> list[Row]:
    """All rows of a home, oldest first."""
    found = db.execute(
        "SELECT message, waiting FROM turns WHERE home = ? ORDER BY created, id", (home,)
    )
    return [_row(*row) for row in found.fetchall()]


def of_turn(db: Database, home: str, turn: str) -> list[Row]:
    """The row of a turn and those of the messages that joined it, oldest first."""
    found = db.execute(
        "SELECT message, waiting FROM turns WHERE home = ?"
        " AND session = (SELECT session FROM turns WHERE id = ?) ORDER BY created, id",
        (home, turn),
    )
    rows = [_row(*row) for row in found.fetchall()]
    return [row for row in rows if turn in (row.incoming.id, row.wait and row.wait.joined)]


def sessions(db: Database, home: str) -> set[SessionKey]:
    """The sessions of a home in which something is not answered yet: under way, parked or said
    soon.
    """
    found = db.execute("SELECT DISTINCT session FROM turns WHERE home = ?", (home,))
    return {_key(text) for (text,) in found.fetchall()}


def _row(message: str, waiting: str | None) -> Row:
    return Row(_incoming(message), None if waiting is None else _wait(waiting))


def wait(db: Database, turns: Sequence[str], wait: Wait) -> None:
    """Write down what rows wait for."""
    state = "running" if wait.joined is not None else "parked"
    for turn in turns:
        db.execute(
            "UPDATE turns SET state = ?, waiting = ? WHERE id = ?",
            (state, _encode(wait).decode(), turn),
        )


def delete(db: Database, turns: Sequence[str]) -> None:
    """They are answered."""
    for turn in turns:
        db.execute("DELETE FROM turns WHERE id = ?", (turn,))


def key_of(incoming: Incoming) -> SessionKey:
    """The session of a message."""
    return SessionKey(incoming.agent, incoming.principal)


def key_text(key: SessionKey) -> str:
    """A session as a row has it; no name of an agent holds a space."""
    return f"{key.agent} {key.who}"


def _key(text: str) -> SessionKey:
    agent, _, who = text.partition(" ")
    return SessionKey(agent, JID.parse(who))
