"""The tables of agents and turns, and the statements on turns."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from component.agent.requests import Outcome, TurnRequest
from component.memory_directory.layout import SessionKey
from component.policy.taint import Taint
from component.store import waiters
from component.store.database import Database
from component.store.schema import Table
from component.store.tables import tells
from xep.file_sharing import FileSharing
from xep.jid import JID

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
            files TEXT NOT NULL,
            taints TEXT NOT NULL,
            at BIGINT NOT NULL
        """,
        kept="deleted when the person has got the outcome",
    ),
)


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a row waits for.

    `joined` is the turn that answers the request, `until` the time at which an answer is due (in
    milliseconds since 1970, UTC), `tasks` are tasks of which one has to end first.
    """

    joined: str | None = None
    until: int | None = None
    tasks: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """An unanswered request."""

    request: TurnRequest
    wait: Wait | None


_encode = msgspec.json.Encoder().encode
_request = msgspec.json.Decoder(TurnRequest).decode
_wait = msgspec.json.Decoder(Wait).decode
_files = msgspec.json.Decoder(tuple[FileSharing, ...]).decode
_taints = msgspec.json.Decoder(tuple[Taint, ...]).decode


def encoded(request: TurnRequest) -> str:
    """Encode a request for the column `message`."""
    return _encode(request).decode()


def decoded(text: str) -> TurnRequest:
    """Decode the column `message`."""
    return _request(text)


def insert(database: Database, home: str, request: TurnRequest) -> bool:
    """Insert a request; False if it is already there.

    Rows of one home are ordered by `created`, which is unique.
    """
    (latest,) = database.execute(
        "SELECT max(created) FROM turns WHERE home = ?", (home,)
    ).fetchone() or (None,)
    created = database.now if latest is None else max(database.now, latest + 1)
    added = database.execute(
        "INSERT INTO turns VALUES (?, ?, ?, ?, 'queued', NULL, ?) ON CONFLICT (id) DO NOTHING",
        (request.id, home, key_text(request.session), encoded(request), created),
    )
    return added.rowcount == 1


def revise(database: Database, request: TurnRequest) -> None:
    """Replace a request whose message was corrected."""
    database.execute("UPDATE turns SET message = ? WHERE id = ?", (encoded(request), request.id))


def note_draft(database: Database, turn: str) -> None:
    """Record that a draft of the answer of a turn was sent."""
    row = database.execute("SELECT message FROM turns WHERE id = ?", (turn,)).fetchone()
    if row is not None:
        revise(database, msgspec.structs.replace(decoded(row[0]), drafted=True))


def of_home(database: Database, home: str) -> list[Row]:
    """Return all rows of a home, oldest first."""
    found = database.execute(
        "SELECT message, waiting FROM turns WHERE home = ? ORDER BY created, id", (home,)
    )
    return [_row(*row) for row in found.fetchall()]


def of_turn(database: Database, home: str, turn: str) -> list[Row]:
    """Return the row of a turn and those of the messages that joined it, oldest first."""
    found = database.execute(
        "SELECT message, waiting FROM turns WHERE home = ?"
        " AND session = (SELECT session FROM turns WHERE id = ?) ORDER BY created, id",
        (home, turn),
    )
    rows = [_row(*row) for row in found.fetchall()]
    return [row for row in rows if turn in (row.request.id, row.wait and row.wait.joined)]


def sessions(database: Database, home: str) -> set[SessionKey]:
    """Return the sessions of a home with unanswered requests."""
    found = database.execute("SELECT DISTINCT session FROM turns WHERE home = ?", (home,))
    return {_key(text) for (text,) in found.fetchall()}


def _row(message: str, waiting: str | None) -> Row:
    return Row(decoded(message), None if waiting is None else _wait(waiting))


def wait(database: Database, turns: Sequence[str], wait: Wait) -> None:
    """Record what rows wait for."""
    state = "running" if wait.joined is not None else "parked"
    for turn in turns:
        database.execute(
            "UPDATE turns SET state = ?, waiting = ? WHERE id = ?",
            (state, _encode(wait).decode(), turn),
        )


def conclude(database: Database, turn: str, outcome: Outcome) -> None:
    """Record how a turn ended, before its row is deleted, and wake the task that waits for it."""
    waiters.lock_turn(database, turn)
    database.execute(
        "INSERT INTO turn_outcomes (turn, kind, text, files, taints, at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (turn) DO NOTHING",
        (
            *(turn, outcome.kind, outcome.text),
            *(_encode(outcome.files).decode(), _encode(outcome.taints).decode(), database.now),
        ),
    )
    waiters.wake_tasks(database, turn)


def standing(
    database: Database, home: str, turn: str
) -> Outcome | Literal["here", "waiting", "elsewhere"] | None:
    """Return the outcome of a turn, if `conclude` recorded it. Otherwise return where it is: `here`
    if it runs or waits to run, `waiting` if it waits for tasks or a time, `elsewhere` if it belongs
    to another data directory. None if there is no such turn.
    """
    ended = database.execute(
        "SELECT kind, text, files, taints FROM turn_outcomes WHERE turn = ?", (turn,)
    ).fetchone()
    if ended is not None:
        kind, text, files, taints = ended
        return Outcome(kind, text, _files(files), _taints(taints))
    row = database.execute("SELECT home, state FROM turns WHERE id = ?", (turn,)).fetchone()
    if row is None:
        return None
    if row[0] != home:
        return "elsewhere"
    return "waiting" if row[1] == "parked" else "here"


def forget_outcome(database: Database, turn: str) -> None:
    """Delete the outcome of a turn whose task has ended."""
    database.execute("DELETE FROM waiters WHERE task = ?", (turn,))
    database.execute("DELETE FROM turn_outcomes WHERE turn = ?", (turn,))


def delete(database: Database, turns: Sequence[str]) -> None:
    """Delete the rows of answered requests."""
    for turn in turns:
        database.execute("DELETE FROM turns WHERE id = ?", (turn,))
        waiters.forget(database, turn)


def key_text(key: SessionKey) -> str:
    """Encode a session for the column `session`; names of agents contain no space."""
    return f"{key.agent} {key.who}"


def _key(text: str) -> SessionKey:
    agent, _, who = text.partition(" ")
    return SessionKey(agent, JID.parse(who))
