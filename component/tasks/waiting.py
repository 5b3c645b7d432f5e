"""Tasks whose skill is not there yet, because its source is late: they wait, and say so."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from component.storage.database import Value
from component.tasks.instances import others_alive
from component.tasks.rows import COLUMNS, QUEUED, Row, change
from component.tasks.store import Transaction
from xep.binding import encode
from xep.fluux_agent.task import Progress

_BEGINS: Final = "It waits for the skill "
_MOST_AT_ONCE: Final = 100
_MOST_NAMED: Final = 5


def waiting_text(progress: Progress | None) -> str | None:
    """Return the sentence of a progress that says for which skill the task waits; None for any
    other.
    """
    text = None if progress is None else progress.text
    return text if text is not None and text.startswith(_BEGINS) else None


def report_waiting(
    tx: Transaction, owner: str, skills: Sequence[str], late: Sequence[str], told: Collection[str]
) -> Sequence[str]:
    """Say of queued tasks that they wait for late sources: in their status, and by an event of
    those that were running. Return their ids.

    Args:
        tx: the transaction.
        owner: the instance; others may have the skills, so nothing is said if there are any.
        skills: the names of the skills of this instance.
        late: the names of the sources that are not ready.
        told: the ids of tasks of which it was said.
    """
    if others_alive(tx, owner):
        return ()
    names = ", ".join(late[:_MOST_NAMED])
    values: tuple[Value, ...] = (
        msgspec.json.encode(skills).decode(),
        msgspec.json.encode(sorted(told)).decode(),
    )
    listed, lock = "SELECT value FROM json_each(?)", ""
    if tx.dialect == "postgresql":
        listed = "SELECT jsonb_array_elements_text(CAST(? AS jsonb))"
        lock = " FOR NO KEY UPDATE SKIP LOCKED"
    found = tx.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE {QUEUED} AND skill NOT IN ({listed})"  # noqa: S608
        f" AND id NOT IN ({listed}) ORDER BY created, id LIMIT {_MOST_AT_ONCE}{lock}",
        values,
    ).fetchall()
    for row in [Row(*one) for one in found]:
        text = (
            f"{_BEGINS}{row.skill}, which is not available yet (not ready: {names}). It goes on by"
            " itself."
        )
        if row.state == "running":
            tx.publish(change(tx, row, "running", Progress(text=text)))
        else:  # it has no event for that
            tx.execute(
                "UPDATE tasks SET progress = ? WHERE id = ?",
                (encode(Progress(text=text)), row.id),
            )
    return [one[0] for one in found]
