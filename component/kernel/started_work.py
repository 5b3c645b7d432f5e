"""The table `started_work`: each accepted trigger, its task, and whether its result was passed on.

No instance claims a result: recording a notification twice has the same effect as once, so a kill
delays no result. These are functions of a `Database`, for `Storage.read` and `Storage.write`.
"""

from typing import Final

import msgspec

from component.kernel.triggers import Trigger, Work
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.schema import Table

TABLES: Final = (
    Table(
        name="started_work",
        columns="""
            source TEXT {C} NOT NULL,
            name TEXT {C} NOT NULL,
            key TEXT {C} NOT NULL,
            task TEXT {C},
            details TEXT NOT NULL,
            failure TEXT,
            told INTEGER NOT NULL DEFAULT 0,
            created BIGINT NOT NULL,
            retain_until BIGINT NOT NULL,
            PRIMARY KEY (source, name, key)
        """,
        indexes={
            "started_waiting": "(created) WHERE told = 0",
            "started_retained": "(retain_until) WHERE told = 1",
        },
    ),
)


RETENTION_MS: Final = 60 * 86_400_000
"""How long a trigger is recognised, in milliseconds of the steady clock."""
AT_ONCE: Final = 50
"""Maximum number of results that `ended` returns."""
_ENDED: Final = "('completed', 'failed', 'rejected', 'cancelled')"
HAS_ENDED: Final = (
    "(task IS NULL OR NOT EXISTS (SELECT 1 FROM tasks WHERE id = started_work.task AND"  # noqa: S608 - a constant
    f" state NOT IN {_ENDED}))"
)
"""The condition that the work of a row has ended: its task has, or is not stored any more."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted trigger. `task` is None if the work was refused; `failure` is the reason."""

    trigger: Trigger
    work: Work
    task: str | None = None
    failure: str | None = None


class _Details(msgspec.Struct, frozen=True):
    """The JSON in the column `details`."""

    trigger: Trigger
    work: Work


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Details).decode


def is_recorded(database: Database, trigger: Trigger) -> bool:
    """Return whether a trigger was accepted before."""
    found = database.execute(
        "SELECT 1 FROM started_work WHERE source = ? AND name = ? AND key = ?", _key(trigger)
    )
    return found.fetchone() is not None


def task_of(database: Database, trigger: Trigger) -> str | None:
    """Return the id of the task of a trigger; None if it was refused or not accepted before."""
    found = database.execute(
        "SELECT task FROM started_work WHERE source = ? AND name = ? AND key = ?", _key(trigger)
    ).fetchone()
    return None if found is None or found[0] is None else str(found[0])


def record(database: Database, started: Started) -> bool:
    """Record a trigger; return False if it was recorded before."""
    details = _encode(_Details(started.trigger, started.work)).decode()
    made = database.execute(
        "INSERT INTO started_work (source, name, key, task, details, failure, created,"
        " retain_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (source, name, key) DO NOTHING",
        (
            *_key(started.trigger),
            started.task,
            details,
            started.failure,
            database.now,
            database.steady + RETENTION_MS,
        ),
    )
    return made.rowcount == 1


def ended(database: Database) -> list[Started]:
    """Return the work that has ended and whose result was not passed on yet; the oldest first."""
    found = database.execute(
        "SELECT task, details, failure FROM started_work WHERE told = 0"  # noqa: S608 - a constant
        f" AND {HAS_ENDED} ORDER BY created, key LIMIT ?",
        (AT_ONCE,),
    ).fetchall()
    entries = []
    for task, details, failure in found:
        read = _decode(details)
        entries.append(Started(trigger=read.trigger, work=read.work, task=task, failure=failure))
    return entries


def is_same_failure(database: Database, trigger: Trigger, failure: str) -> bool:
    """Return whether the last result of the same source that was passed on is the same failure."""
    found = database.execute(
        "SELECT failure FROM started_work WHERE source = ? AND name = ? AND told = 1"
        " ORDER BY created DESC, key DESC LIMIT 1",
        (trigger.source, trigger.name),
    ).fetchone()
    return found is not None and found[0] == failure


def mark_passed_on(database: Database, trigger: Trigger, failure: str | None) -> None:
    """Record that a result was passed on; `failure` is the reason if the work failed. Triggers
    whose retention is over are forgotten.
    """
    database.execute(
        "UPDATE started_work SET told = 1, failure = ? WHERE source = ? AND name = ? AND key = ?",
        (failure, *_key(trigger)),
    )
    database.execute(
        "DELETE FROM started_work WHERE told = 1 AND retain_until <= ?", (database.steady,)
    )


def forget(database: Database, who: Forgotten) -> None:
    """Delete what the work of an agent has left of a person: the memories of skills, and the
    details of work.

    Of work whose result was sent, the key is kept, so that its trigger does not start it again.
    """
    database.execute("DELETE FROM skill_memories WHERE principal = ?", (str(who.person),))
    principal, agent = (_encode(one).decode() for one in (who.person, who.agent))
    find = "instr(details, ?)" if database.dialect == "sqlite" else "strpos(details, ?)"
    database.execute(
        "UPDATE started_work SET details = 'null', failure = NULL"  # noqa: S608 - one of two
        f" WHERE told = 1 AND {find} > 0 AND {find} > 0",
        (f'"principal":{principal}', f'"agent":{agent}'),
    )


def _key(trigger: Trigger) -> tuple[str, str, str]:
    return trigger.source, trigger.name, trigger.key
