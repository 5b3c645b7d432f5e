"""Decides which question an answer in words is meant for (specification, "In Words").

Anybody who can cause a question to a person could ask something harmless, withdraw it and ask
something else; the yes to the first question would then approve the second. So an answer in words
counts only if exactly one question matched what it names (or, if it names nothing, only one
question existed) during the last minute. Words that name nothing may also mean the newest of
several questions that the person's own requests have caused. The decision uses rows, in the
transaction of the answer. These rows are separate from those of the tasks: an attacker who wants to
remove the evidence could end many tasks, and ended tasks are deleted. Times are those of the steady
clock, so a clock that jumps makes no question look older than it is.

A row also says whether the person has got the question, because words that name nothing cannot be
meant for a question that was never shown: `waiting` until its message was written, then `shown`;
`withheld` from a person who wants no such messages; `returned` if the message was returned as
an error.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from component.storage.database import Database, Value
from component.tasks.followed import followed
from component.tasks.protocol import Naming
from xep.jid import JID

_KEPT_MS: Final = 600_000
"""How long closed questions are stored: several times the period that is checked."""


class Certainty(msgspec.Struct, frozen=True, kw_only=True):
    """When an answer in words is certainly meant for a question.

    Another question that was closed less than `closed_ms` ago, without the person's own answer,
    makes it uncertain. Words that name nothing count for a question that was asked at least
    `stands_ms` ago.
    """

    stands_ms: int = 3_000
    closed_ms: int = 60_000


def asked(
    database: Database, id_: str, persons: Iterable[str], agent: str, thread: str, expires: int
) -> None:
    """Record that a question was asked from the bare address `agent` to the bare
    addresses `persons`.
    """
    for jid in persons:
        database.execute(
            "INSERT INTO recent_questions"
            " (jid, agent, input, thread, asked, expires, closed, shown)"
            " VALUES (?, ?, ?, ?, ?, ?, NULL, 'waiting')",
            (jid, agent, id_, thread, database.steady, expires),
        )


def written(database: Database, id_: str, withheld: Iterable[JID]) -> None:
    """Record that the messages of a question were written, except to the bare JIDs `withheld`."""
    for jid in sorted(map(str, withheld)):
        database.execute(
            "UPDATE recent_questions SET shown = 'withheld'"
            " WHERE input = ? AND jid = ? AND shown = 'waiting'",
            (id_, jid),
        )
    database.execute(
        "UPDATE recent_questions SET shown = 'shown' WHERE input = ? AND shown = 'waiting'", (id_,)
    )


def is_open(database: Database, id_: str, who: JID, at: JID) -> bool:
    """Return whether the address `at` has asked `who` this question, and it is not closed."""
    found = database.execute(
        "SELECT 1 FROM recent_questions WHERE input = ? AND jid = ? AND agent = ?"
        " AND closed IS NULL",
        (id_, str(who.bare), str(at.bare)),
    )
    return found.fetchone() is not None


def returned(database: Database, id_: str, who: JID, at: JID) -> None:
    """Record that the message of a question from `at` to `who` was returned as an error."""
    database.execute(
        "UPDATE recent_questions SET shown = 'returned' WHERE input = ? AND jid = ? AND agent = ?",
        (id_, str(who.bare), str(at.bare)),
    )


def close(database: Database, task: str, state: str) -> None:
    """Record that the open question of a task is closed; `state` is the state in its row after
    that.
    """
    database.execute(
        "UPDATE recent_questions SET closed = ? WHERE closed IS NULL AND input IN"
        " (SELECT id FROM inputs WHERE task = ? AND state = 'open')",
        (database.steady, task),
    )
    database.execute("UPDATE inputs SET state = ? WHERE task = ? AND state = 'open'", (state, task))


def answered(database: Database, id_: str, who: JID) -> None:
    """Record that `who` answered a question; for everybody else who was asked it was closed."""
    database.execute(
        "DELETE FROM recent_questions WHERE input = ? AND jid = ?", (id_, str(who.bare))
    )
    database.execute(
        "UPDATE recent_questions SET closed = ? WHERE input = ? AND closed IS NULL",
        (database.steady, id_),
    )


def is_certain(
    database: Database,
    who: JID,
    at: JID,
    id_: str,
    naming: Naming,
    certainty: Certainty,
    *,
    stands: bool = True,
    sent: Collection[str] = (),
) -> bool:
    """Return whether words of `who` to the address `at` are certainly meant for the question `id_`.

    Words that name nothing are meant for the only question that is open or was closed a moment ago,
    or for the newest if all of them are open and come from the person's own requests. `stands` says
    whether the question must have been open for a while then (CNF-045). Only the beginning of its
    identifier can name a question whose message the person has not got; `sent` are the questions
    whose messages were written to `who`, even if their rows do not say so yet.
    """
    values: list[Value] = [
        str(who.bare),
        str(at.bare),
        database.steady - certainty.closed_ms,
    ]
    also = ""
    if naming.thread is not None:
        also += " AND thread = ?"
        values.append(naming.thread)
    if naming.beginning:
        also += " AND substr(input, 1, CAST(? AS INTEGER)) = ?"
        values += [len(naming.beginning), naming.beginning]
    found = database.execute(
        "SELECT input, asked, closed IS NULL AND expires > ?, shown FROM recent_questions"  # noqa: S608 - constant text
        " WHERE jid = ? AND agent = ? AND COALESCE(closed, expires) > ?"
        f" AND (shown <> 'withheld' OR input = ?){also}",
        [database.steady, *values[:3], id_, *values[3:]],
    ).fetchall()
    times = {question: asked_at for question, asked_at, _, _ in found}
    shown = {question: shown for question, _, _, shown in found}
    if id_ not in times:
        return False
    is_shown = shown[id_] == "shown" or (shown[id_] == "waiting" and id_ in sent)
    if not (is_shown or naming.beginning):
        return False
    asked_at = times.pop(id_)
    if times:
        is_newest = not also and all(asked_at > other for other in times.values())
        if not (is_newest and all(unclosed for _, _, unclosed, _ in found)):
            return False
        if not _all_from(database, who, [id_, *times]):
            return False
    if also or not stands:
        return True
    return bool(database.steady - asked_at >= certainty.stands_ms)


def _all_from(database: Database, who: JID, questions: Sequence[str]) -> bool:
    """Return whether all these questions come from requests of `who`, and none from an operator."""
    for question in questions:
        found = database.execute(
            "SELECT t.principal, t.request FROM inputs i JOIN tasks t ON t.id = i.task"
            " WHERE i.id = ?",
            (question,),
        ).fetchone()
        if found is None or found[0] != str(who.bare):
            return False
        if followed(found[1]).caller_context.operator:
            return False
    return True


def forget(database: Database) -> None:
    """Delete questions that were closed, or have expired, long ago."""
    database.execute(
        "DELETE FROM recent_questions WHERE COALESCE(closed, expires) < ?",
        (database.steady - _KEPT_MS,),
    )
