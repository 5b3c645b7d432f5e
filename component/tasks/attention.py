"""Queries for the tasks of a principal that somebody may have to see to.

Every function takes the `Database` of one storage operation. `who` is the principal, a bare JID,
and `at` the address of the agent.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final, Literal, TypeAlias

import msgspec

from component.store.database import Database
from component.tasks import question_rows, rows
from component.tasks.protocol import Question
from component.tasks.queries import whole_task
from component.tasks.request import Origin, Request
from component.tasks.rows import Row
from xep.fluux_agent.errors import Denied
from xep.fluux_agent.task import Task
from xep.jid import JID

_MOST: Final = 20
"""Tasks of each kind."""
_SEARCHED: Final = 100
_DEPTH: Final = 10
_FOLLOWED: Final[Collection[Origin]] = ("message", "command")
"""Origins of tasks whose end the principal learns from a message about the task."""
_REPORTED: Final[Collection[Origin]] = ("tool", "child")
"""Origins of tasks whose end another part of the service reports."""


_Kind: TypeAlias = Literal["failed", "waiting", "set-aside", "done"]


class Concern(msgspec.Struct, frozen=True, kw_only=True):
    """A task, and why somebody may have to see to it.

    Attributes:
        kind: it has failed; it waits for an answer of somebody else; it was set aside because the
            service crashed; or it is done, and the principal may not have read its result.
        matter: what it belongs to; see `matter_of`.
        why: why it was set aside.
    """

    kind: _Kind
    task: Task
    request: Request
    matter: str
    why: str = ""


def concerns(database: Database, who: JID, at: JID, done_since: int) -> Sequence[Concern]:
    """Return the tasks that the principal may have to see to: of each kind the newest ones, and of
    each source of work only the last failure. Results are those since `done_since`, in milliseconds
    since 1970.
    """
    search = _Search(database, who, at)
    return [
        *islice(search.failed(), _MOST),
        *islice(search.waiting(), _MOST),
        *islice(search.set_aside(), _MOST),
        *islice(search.done(done_since), _MOST),
    ]


class _Search:
    """Finds tasks of one principal. Each method yields the newest first."""

    def __init__(self, database: Database, who: JID, at: JID) -> None:
        self._database = database
        self._who = who
        self._at = at

    def failed(self) -> Iterator[Concern]:
        sources: set[str] = set()
        for row, request in self._found("created", {"state = ?": ("failed",)}):
            if row.parent is None and request.origin not in _REPORTED:
                found = self._concern("failed", row, request)
                if not (_was_denied(found.task) or found.matter in sources):
                    sources.add(found.matter)
                    yield found

    def waiting(self) -> Iterator[Concern]:
        for row, request in self._found("created", {"state = ?": ("input-required",)}):
            put = question_rows.open_of(self._database, row.id)
            if put is None or self._who not in question_rows.people_asked(self._database, put.id):
                yield self._concern("waiting", row, request)

    def set_aside(self) -> Iterator[Concern]:
        for row, request in self._found("created", {"set_aside IS NOT NULL": ()}):
            yield self._concern("set-aside", row, request)

    def done(self, since: int) -> Iterator[Concern]:
        meant: rows.Filter = {"state = ?": ("completed",), "updated >= ?": (since,)}
        for row, request in self._found("updated", meant):
            is_followed = request.origin in _FOLLOWED or (request.origin == "iq" and request.thread)
            if is_followed and row.parent is None:
                yield self._concern("done", row, request)

    def _found(self, order: str, meant: rows.Filter) -> Iterator[tuple[Row, Request]]:
        meant = {**rows.theirs(self._database, self._who, self._at), **meant}
        for row in rows.listed(self._database, meant, f"{order} DESC, id", _SEARCHED):
            yield row, rows.request_of(row)

    def _concern(self, kind: _Kind, row: Row, request: Request) -> Concern:
        # The rows of a list have no results.
        whole = rows.load(self._database, row.id, lock=False) or row
        return Concern(
            kind=kind,
            task=whole_task(self._database, whole),
            request=request,
            matter=matter_of(self._database, row, request),
            why=row.set_aside or "",
        )


def _was_denied(task: Task) -> bool:
    """Return whether a task has failed because a person has decided so."""
    conditions = () if task.failure is None else task.failure.conditions
    return any(isinstance(one, Denied) for one in conditions)


def matter_of(database: Database, row: Row, request: Request) -> str:
    """Return what a task belongs to: the source of triggered work, such as `schedule tide`; its
    context or thread; or the task that has started it, which may be itself.
    """
    for _ in range(_DEPTH):
        above = None if row.parent is None else rows.load(database, row.parent, lock=False)
        if above is None:
            break
        row, request = above, rows.request_of(above)
    if request.origin == "trigger" and request.caller_context.trace:
        return request.caller_context.trace
    return request.context or request.thread or row.id


def matter_of_question(database: Database, question: Question) -> str:
    """Return what the task of a question belongs to."""
    row = rows.load(database, question.task, lock=False)
    return question.task if row is None else matter_of(database, row, question.request)


def matter_of_task(database: Database, task: str) -> str:
    """Return what a task belongs to; empty if it is not stored any more."""
    row = rows.load(database, task, lock=False)
    return "" if row is None else matter_of(database, row, rows.request_of(row))


def told_at(database: Database, who: JID, message: str) -> int | None:
    """Return when a message about a task of the principal, or a question to them, was due, in
    milliseconds of the steady clock; None if the message is neither.
    """
    asked = rows.column(
        database,
        "SELECT i.asked_at FROM inputs i JOIN asked a ON a.input = i.id"
        " WHERE i.id = ? AND a.jid = ?",
        *(message, str(who)),
    )
    if asked and asked[0] is not None:
        return int(asked[0])
    told = rows.column(
        database,
        "SELECT updated FROM tasks WHERE id = ? AND principal = ?",
        *(message.partition(".")[0], str(who)),
    )
    return rows.steady(database, int(told[0])) if told else None
