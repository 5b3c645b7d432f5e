"""Schedules, and how they are kept in the database."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec
import structlog

from component.features.schedules.timing import Timing
from component.kernel.triggers import Work
from component.store.database import Database
from component.store.schema import Table
from xep.jid import JID, JIDError

TABLES: Final = (
    Table(
        name="schedules",
        columns="""
            id TEXT {C} PRIMARY KEY,
            owner TEXT {C} NOT NULL,
            name TEXT {C} NOT NULL,
            origin TEXT NOT NULL,
            state TEXT NOT NULL,
            definition TEXT NOT NULL,
            due BIGINT NOT NULL,
            fired BIGINT,
            created BIGINT NOT NULL,
            UNIQUE (owner, name)
        """,
        indexes={"schedules_due": "(due) WHERE state = 'active'"},
        has_rowid=True,
    ),
)


_log = structlog.get_logger("component.schedules")

Missed: TypeAlias = Literal["skip", "once", "all"]
"""The policy for firings that were missed while no instance ran: none of them takes place, the
latest one does, or all of them do, up to a maximum."""
Origin: TypeAlias = Literal["settings", "person", "agent", "admin", "skill"]
"""Who made a schedule: the settings, its owner by a command, an agent with its owner's consent, an
administrator by a command for its owner, or a skill that brings it, which the settings enable."""
DECLARED: Final[tuple[Origin, ...]] = ("settings", "skill")
"""Origins of schedules that are declared in the settings."""
State: TypeAlias = Literal["active", "paused"]

LATE: Final = timedelta(minutes=5)
"""A firing that is late by more than this was missed."""
MOST_MISSED: Final = 100
"""The largest maximum of missed firings that a schedule can have."""


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The work and the times of a schedule, as they were written. `zone` is the time zone of local
    times (`component.zones.zone_named`). Of a wish it is empty for that of the person, or of the
    settings for what they declare. `missed_most` is the maximum number of missed firings that `all`
    makes up for.
    """

    when: str
    zone: str = ""
    work: Work
    missed: Missed = "once"
    missed_most: int = 10


class Wish(Terms, frozen=True, kw_only=True):
    """A schedule that somebody wants. `name` is empty for a generated one."""

    name: str = ""


class Definition(Terms, frozen=True, kw_only=True, omit_defaults=True):
    """The terms of a schedule that was added. `timing` is `when`, as it is calculated."""

    timing: Timing


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule.

    Attributes:
        owner: the bare JID whose rights its work has, and who can pause and remove it.
        name: unique among those of its owner.
        due: the nominal instant of its next firing.
        fired: the nominal instant of its last firing, if there was one.
    """

    id: str
    owner: JID
    name: str
    origin: Origin
    state: State = "active"
    definition: Definition
    due: datetime
    fired: datetime | None = None

    @property
    def agent(self) -> str:
        """The name of the agent that does the work."""
        return self.definition.work.agent


_COLUMNS: Final = "id, owner, name, origin, state, definition, due, fired"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Definition).decode


def insert(database: Database, schedule: Schedule) -> bool:
    """Add a schedule; return False if there is one with its id, or with its owner and name."""
    made = database.execute(
        "INSERT INTO schedules (id, owner, name, origin, state, definition, due, fired, created)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?) ON CONFLICT DO NOTHING",
        (
            schedule.id,
            str(schedule.owner),
            schedule.name,
            schedule.origin,
            schedule.state,
            _encode(schedule.definition).decode(),
            milliseconds(schedule.due),
            database.now,
        ),
    )
    return made.rowcount == 1


def redefine(database: Database, id_: str, definition: Definition, due: datetime) -> None:
    """Change what a schedule does, and when."""
    database.execute(
        "UPDATE schedules SET definition = ?, due = ? WHERE id = ?",
        (_encode(definition).decode(), milliseconds(due), id_),
    )


def get(database: Database, id_: str) -> Schedule | None:
    """Return a schedule by its id."""
    return next(iter(_select(database, "WHERE id = ?", id_)), None)


def named(database: Database, owner: JID, name: str) -> Schedule | None:
    """Return a schedule by its owner and name, or id."""
    where = "WHERE owner = ? AND (name = ? OR id = ?) ORDER BY name = ? DESC"
    return next(iter(_select(database, where, str(owner), name, name, name)), None)


def listed(database: Database, owner: JID | None, agent: str | None = None) -> list[Schedule]:
    """Return the schedules of an owner, or all; the next one to fire first."""
    where, values = ("", ()) if owner is None else ("WHERE owner = ? ", (str(owner),))
    every = _select(database, f"{where}ORDER BY state, due, name", *values)
    return [one for one in every if agent is None or one.agent == agent]


def of_origin(database: Database, origin: Origin) -> list[Schedule]:
    """Return the schedules that were made in one way."""
    return _select(database, "WHERE origin = ?", origin)


def active(database: Database) -> list[Schedule]:
    """Return all schedules that are not paused."""
    return _select(database, "WHERE state = 'active'")


def count(database: Database, owner: JID) -> int:
    """Return the number of schedules of an owner, those of the settings not counted."""
    (found,) = database.execute(
        "SELECT count(*) FROM schedules WHERE owner = ? AND origin NOT IN ('settings', 'skill')",
        (str(owner),),
    ).fetchone() or (0,)
    return int(found)


def due_now(database: Database, but: Sequence[str], most: int) -> list[Schedule]:
    """Return the active schedules that are due, except those with the ids `but`. A clock that was
    set forward counts when it has had its new time for a minute.
    """
    return _select(
        database,
        f"WHERE state = 'active' AND due <= ? AND id NOT IN ({_marks(but)})"
        " ORDER BY due, id LIMIT ?",
        database.settled,
        *but,
        most,
    )


def next_due(database: Database, but: Sequence[str]) -> int | None:
    """Return in how many milliseconds the next schedule but these is due; None if there is none."""
    (found,) = database.execute(
        "SELECT min(due) FROM schedules WHERE state = 'active'"  # noqa: S608 - marks
        f" AND id NOT IN ({_marks(but)})",
        tuple(but),
    ).fetchone() or (None,)
    return None if found is None else int(found) - database.settled


def move(
    database: Database, schedule: Schedule, due: datetime | None, fired: datetime | None = None
) -> bool:
    """Set when a schedule is due next, and delete it if it never is again. False, without a change,
    if another instance has changed or removed it.
    """
    same = "id = ? AND due = ?"
    key = (schedule.id, milliseconds(schedule.due))
    if due is None:
        return database.execute(f"DELETE FROM schedules WHERE {same}", key).rowcount == 1  # noqa: S608
    made = database.execute(
        f"UPDATE schedules SET due = ?, fired = coalesce(?, fired) WHERE {same}",  # noqa: S608
        (milliseconds(due), None if fired is None else milliseconds(fired), *key),
    )
    return made.rowcount == 1


def set_state(database: Database, id_: str, state: State, due: datetime) -> bool:
    """Pause or resume a schedule; return False if it is in that state already, or gone."""
    made = database.execute(
        "UPDATE schedules SET state = ?, due = ? WHERE id = ? AND state <> ?",
        (state, milliseconds(due), id_, state),
    )
    return made.rowcount == 1


def remove(database: Database, id_: str) -> bool:
    """Remove a schedule; return False if it is gone already."""
    return database.execute("DELETE FROM schedules WHERE id = ?", (id_,)).rowcount == 1


def forget(database: Database, person: JID, agent: str) -> list[Schedule]:
    """Remove and return the schedules that a person has with an agent, except declared ones."""
    removed = [one for one in listed(database, person, agent) if one.origin not in DECLARED]
    for schedule in removed:
        remove(database, schedule.id)
    return removed


def milliseconds(instant: datetime) -> int:
    """Return the milliseconds since 1970, UTC."""
    return int((instant - _EPOCH) / timedelta(milliseconds=1))


def instant_of(time: int) -> datetime:
    """Return the instant that many milliseconds after 1970 began, UTC."""
    return _EPOCH + timedelta(milliseconds=time)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values)) or "''"


def _select(database: Database, rest: str, *values: str | int | None) -> list[Schedule]:
    """Return the schedules of a query. One that this release cannot read keeps back no others."""
    found = database.execute(f"SELECT {_COLUMNS} FROM schedules {rest}", values)  # noqa: S608
    schedules = []
    for row in found.fetchall():
        try:
            schedules.append(_schedule(row))
        except (msgspec.DecodeError, JIDError) as error:
            _log.error("a schedule cannot be read", schedule=row[0], reason=str(error))
    return schedules


def _schedule(row: Sequence[Any]) -> Schedule:
    id_, owner, name, origin, state, definition, due, fired = row
    return Schedule(
        id=id_,
        owner=JID.parse(owner),
        name=name,
        origin=origin,
        state=state,
        definition=_decode(definition),
        due=instant_of(due),
        fired=None if fired is None else instant_of(fired),
    )
