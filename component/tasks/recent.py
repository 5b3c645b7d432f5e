"""Which question an answer in words is meant for (specification, "In Words").

Anybody who can have a person asked can ask something harmless, withdraw it and ask something else;
the yes to the first question would then approve the second. So an answer in words counts only if
what it names (or, if it names nothing, everything the person was asked) was one single question
during the last minute. This is judged from rows, in the transaction of the answer. The rows are
kept apart from those of the tasks: somebody who wants to remove the evidence can make many tasks
end, and ended tasks are deleted.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from component.storage.database import Database, Value
from component.tasks.protocol import Naming
from xep.jid import JID

_KEPT_MS: Final = 600_000
"""How long what was closed is kept: some times what is looked at."""


class Certainty(msgspec.Struct, frozen=True, kw_only=True):
    """When an answer in words is certain to be meant for a question.

    A question is in the way of another for `closed_ms` after it was closed without the person's own
    answer. Words that name nothing count for a question that has stood for `stands_ms`.
    """

    stands_ms: int = 3_000
    closed_ms: int = 60_000


class SteadyClock:
    """Tells for how long the time of the storage has certainly passed without a jump.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: tuple[float, int] | None = None
        self._since = clock()

    def read(self) -> float:
        """The monotonic time, to be read before a transaction."""
        return self._clock()

    def steady_ms(self, read: float, now: int) -> int:
        """Milliseconds up to `read` in which the storage's time, `now`, made no leap forward.

        Nothing before this process is known. A leap back makes what was closed look recent and what
        was asked look new, so it needs no notice here.
        """
        seen, self._seen = self._seen, (read, now)
        if seen is not None:
            passed_ms = (read - seen[0]) * 1000
            if now - seen[1] > passed_ms + max(1000.0, passed_ms / 1000):
                self._since = read
        return max(0, round((read - self._since) * 1000))


def asked(
    database: Database, id_: str, whom: Iterable[str], agent: str, thread: str, expires: int
) -> None:
    """A question was put to the bare addresses `whom` from the bare address `agent`."""
    for jid in whom:
        database.execute(
            "INSERT INTO recent_questions (jid, agent, input, thread, asked, expires, closed)"
            " VALUES (?, ?, ?, ?, ?, ?, NULL)",
            (jid, agent, id_, thread, database.now, expires),
        )


def close(database: Database, task: str, state: str) -> None:
    """The open question of a task takes no answer any more; `state` is what its row says then."""
    database.execute(
        "UPDATE recent_questions SET closed = ? WHERE closed IS NULL AND input IN"
        " (SELECT id FROM inputs WHERE task = ? AND state = 'open')",
        (database.now, task),
    )
    database.execute("UPDATE inputs SET state = ? WHERE task = ? AND state = 'open'", (state, task))


def answered(database: Database, id_: str, who: JID) -> None:
    """A question was answered by `who`; for everybody else who was asked it was closed."""
    database.execute(
        "DELETE FROM recent_questions WHERE input = ? AND jid = ?", (id_, str(who.bare))
    )
    database.execute(
        "UPDATE recent_questions SET closed = ? WHERE input = ? AND closed IS NULL",
        (database.now, id_),
    )


def is_certain(
    database: Database,
    who: JID,
    at: JID,
    id_: str,
    naming: Naming,
    steady_ms: int,
    certainty: Certainty,
    *,
    stands: bool = True,
) -> bool:
    """Whether words of `who` to our address `at` are certain to be meant for the question `id_`.

    `steady_ms` is what `SteadyClock` gives: no question counts as older than that. `stands` says
    whether words that name nothing need a question that has stood for a while (CNF-045).
    """
    known = steady_ms >= certainty.closed_ms
    values: list[Value] = [
        str(who.bare),
        str(at.bare),
        database.now - certainty.closed_ms if known else 0,
    ]
    also = ""
    if naming.thread is not None:
        also += " AND thread = ?"
        values.append(naming.thread)
    if naming.beginning:
        also += " AND substr(input, 1, CAST(? AS INTEGER)) = ?"
        values += [len(naming.beginning), naming.beginning]
    found = database.execute(
        "SELECT input, asked FROM recent_questions WHERE jid = ? AND agent = ?"  # noqa: S608 - text of ours
        f" AND COALESCE(closed, expires) > ?{also} LIMIT 2",
        values,
    ).fetchall()
    if [one for one, _ in found] != [id_]:
        return False
    if also or not stands:
        return True
    stood_ms = min(steady_ms, database.now - found[0][1])
    return bool(stood_ms >= certainty.stands_ms)


def forget(database: Database) -> None:
    """Delete what was closed, or lapsed, long ago."""
    database.execute(
        "DELETE FROM recent_questions WHERE COALESCE(closed, expires) < ?",
        (database.now - _KEPT_MS,),
    )
