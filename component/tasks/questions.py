"""Questions as rows: put to those who are asked, listed, and lapsed.

All functions run inside an operation of the storage, take its `Database`, and never wait. The
revision, the event and the question are one commit, so an open question survives whatever happens
to the process (CNF-043).
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from component.storage.database import Database
from component.tasks import recent
from component.tasks.answers import input_for
from component.tasks.protocol import Question
from component.tasks.request import Request, question_of, thread_of
from component.tasks.rows import Change, Row, change, milliseconds, moment
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.task import Failure, Input
from xep.jid import JID

Kind = Literal["confirm", "input"]


class InputRow(msgspec.Struct):
    """A question as one transaction sees it. Times are milliseconds since 1970, UTC.

    `step` is the step that asked ('' before the work begins), `question` the XML of what was asked,
    `hash` the hex of its digest. `answer` is what counted: `approve`, `deny`, or an answer's JSON.
    """

    id: str
    task: str
    step: str
    kind: Kind
    question: str
    hash: str | None
    revision: int
    expires: int
    state: Literal["open", "answered", "expired", "withdrawn"]
    answer: str | None
    answered_by: str | None
    answered_at: int | None

    @property
    def content(self) -> Confirm | Input:
        """What was asked."""
        return asked_in(self.question)

    def lapsed(self, now: int) -> bool:
        """Whether its time is over. For good: a clock that is set back does not bring it back."""
        return self.state == "expired" or now >= self.expires


_LATEST: Final = 20
AT: Final = "(t.target = ? OR substr(t.target, 1, CAST(? AS INTEGER)) = ?)"
"""Of the tasks `t` of one address of ours: people answer to the bare one, whatever the caller
wrote to. `at_values` are its parameters.
"""
INPUT_COLUMNS: Final = ", ".join(InputRow.__struct_fields__)


def at_values(at: JID) -> tuple[str, int, str]:
    """The parameters of `AT`."""
    bare = str(at.bare)
    return bare, len(bare) + 1, f"{bare}/"


def ask_confirmation(
    database: Database, row: Row, confirm: Confirm, asked: Iterable[JID], *, step: str = ""
) -> Change:
    """Put a confirmation to `asked`, any one of whom can answer: the task waits for it.

    `confirm` comes from `confirm_for`. An open question of the task makes room for this one
    (CNF-016). If the deadline has been reached the change is its failure instead, and nobody is
    asked. Raises TransitionError.
    """
    assert confirm.expires is not None, "a confirmation of ours says when it lapses"
    assert confirm.hash is not None, "a confirmation of ours has its digest"
    expires = milliseconds(confirm.expires)
    made = _wait(database, row, confirm, expires)
    if made.row.state == "input-required":
        digest = confirm.hash.digest.hex()
        _insert(database, made.row, confirm, step, expires, asked, digest)
    return made


def ask_input(
    database: Database,
    row: Row,
    step: str,
    text: str,
    schema: msgspec.Raw,
    *,
    id: str,  # noqa: A002 - the attribute's own name
    expires: int,
) -> Change:
    """Put a question of the skill to the principal: the task waits for the answer (INP-001).

    `schema` is a JSON Schema of type object. `id` is new for every question (INP-003), `expires`
    is what `lapses` gives. The answer becomes the result of `step`, as the JSON of a `Reply`.
    Otherwise as `ask_confirmation`.
    """
    put = input_for(text, schema, id=id, revision=row.revision + 1, expires=moment(expires))
    made = _wait(database, row, put, expires)
    if made.row.state == "input-required":
        _insert(database, made.row, put, step, expires, (JID.parse(row.principal),), None)
    return made


def lapse(database: Database, row: Row, *, retention_ms: int) -> Change | None:
    """Fail a task whose open question has lapsed; None if it has none that has.

    With `confirmation-expired` or `input-expired`, never as a denial (CNF-038, CNF-039, INP-013).
    If the deadline of the task has been reached too, that is why it fails (EXE-026).
    """
    if row.state != "input-required":
        return None
    found = open_of(database, row.id)
    if found is None or not found.lapsed(database.now):
        return None
    recent.close(database, row.id, "expired")
    error = errors.confirmation_expired() if found.kind == "confirm" else errors.input_expired()
    if row.deadline is not None and database.now >= row.deadline:
        error = errors.deadline_expired()
    failure = Failure.of(error, repeatable=nothing_ran(database, row.id))
    return change(database, row, "failed", failure, retention_ms=retention_ms)


def open_of(database: Database, task: str) -> InputRow | None:
    """The open question of a task."""
    found = database.execute(
        f"SELECT {INPUT_COLUMNS} FROM inputs WHERE task = ? AND state = 'open'",  # noqa: S608
        (task,),
    ).fetchone()
    return None if found is None else InputRow(*found)


def asked_in(text: str) -> Confirm | Input:
    """The question that a row keeps as XML."""
    found = read(text, Confirm, Input)
    assert isinstance(found, Confirm | Input)
    return found


def approved_of(database: Database, task: str) -> Confirm | None:
    """The confirmation of a task that was approved last; None if none was."""
    found = database.execute(
        "SELECT question FROM inputs WHERE task = ? AND kind = 'confirm' AND state = 'answered'"
        " AND answer = 'approve' ORDER BY revision DESC LIMIT 1",
        (task,),
    ).fetchone()
    content = None if found is None else asked_in(found[0])
    return content if isinstance(content, Confirm) else None


def input_row(database: Database, id_: str) -> InputRow | None:
    """A question by its identifier, whosever it is."""
    found = database.execute(
        f"SELECT {INPUT_COLUMNS} FROM inputs WHERE id = ?",  # noqa: S608 - columns of ours
        (id_,),
    ).fetchone()
    return None if found is None else InputRow(*found)


def asked_of(database: Database, id_: str) -> tuple[JID, ...]:
    """The bare JIDs that a question was put to, in a fixed order."""
    found = database.execute("SELECT jid FROM asked WHERE input = ? ORDER BY jid", (id_,))
    return tuple([JID.parse(jid) for (jid,) in found.fetchall()])


def put_question(database: Database, row: Row) -> Question | None:
    """The open question of a task with all that its message needs; None if there is none."""
    found = open_of(database, row.id)
    if found is None:
        return None
    return question_of(row, found.content, found.revision, asked_of(database, found.id))


def open_questions(database: Database, who: JID, at: JID) -> Sequence[Question]:
    """The questions that the address `at` has open with `who`, the one put last first."""
    tasks = ", ".join(f"t.{name}" for name in Row.__struct_fields__)
    found = database.execute(
        f"SELECT i.id, i.question, i.revision, {tasks} FROM asked a"  # noqa: S608
        " JOIN inputs i ON i.id = a.input JOIN tasks t ON t.id = i.task"
        " WHERE a.jid = ? AND i.state = 'open' AND i.expires > ? AND t.state = 'input-required'"
        f" AND {AT} ORDER BY t.updated DESC, i.id",
        (str(who.bare), database.now, *at_values(at)),
    ).fetchall()
    return [
        question_of(Row(*row), asked_in(question), revision, asked_of(database, id_))
        for id_, question, revision, *row in found
    ]


def adopt(database: Database) -> None:
    """Note the open questions that no one noted among the recent ones: those of an older release.

    They count as asked now.
    """
    tasks = ", ".join(f"t.{name}" for name in Row.__struct_fields__)
    found = database.execute(
        f"SELECT i.id, i.expires, {tasks} FROM inputs i JOIN tasks t ON t.id = i.task"  # noqa: S608 - columns of ours
        " WHERE i.state = 'open' AND NOT EXISTS"
        " (SELECT 1 FROM recent_questions r WHERE r.input = i.id)"
    ).fetchall()
    for id_, expires, *columns in found:
        row = Row(*columns)
        people = [str(one) for one in asked_of(database, id_)]
        agent = str(JID.parse(row.target).bare)
        recent.asked(database, id_, people, agent, thread_of(row), expires)


def was_asked(database: Database, who: JID, at: JID, name: str) -> bool:
    """Whether `who` was asked something that is closed, `name` being its id or thread.

    Only the latest questions are looked at: an answer in words comes soon or is about something
    else.
    """
    found = database.execute(
        "SELECT i.id, t.id, t.request FROM asked a"  # noqa: S608 - text of ours
        " JOIN inputs i ON i.id = a.input JOIN tasks t ON t.id = i.task"
        " WHERE a.jid = ? AND (i.state <> 'open' OR i.expires <= ?) AND t.retain_until >= ?"
        f" AND {AT} ORDER BY t.updated DESC LIMIT {_LATEST}",
        (str(who.bare), database.now, database.now, *at_values(at)),
    ).fetchall()
    return any(
        name in (id_, msgspec.json.decode(request, type=Request).thread or task)
        for id_, task, request in found
    )


def nothing_ran(database: Database, task: str) -> bool:
    """Whether no step of the task has begun, so that asking again makes nothing happen twice."""
    begun = database.execute("SELECT 1 FROM journal WHERE task = ? LIMIT 1", (task,))
    return begun.fetchone() is None


def _wait(database: Database, row: Row, detail: Confirm | Input, expires: int) -> Change:
    """Take the task to `input-required`; its run ends here and only rows remain."""
    due = expires if row.deadline is None else min(expires, row.deadline)
    return change(database, row, "input-required", detail, owner=None, due=due, untold=True)


def _insert(
    database: Database,
    row: Row,
    question: Confirm | Input,
    step: str,
    expires: int,
    asked: Iterable[JID],
    digest: str | None,
) -> None:
    recent.close(database, row.id, "withdrawn")
    kind: Kind = "confirm" if isinstance(question, Confirm) else "input"
    database.execute(
        f"INSERT INTO inputs ({INPUT_COLUMNS})"  # noqa: S608 - columns of ours
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', NULL, NULL, NULL)",
        (question.id, row.id, step, kind, encode(question), digest, row.revision, expires),
    )
    people = sorted({str(one.bare) for one in asked})
    for jid in people:
        database.execute("INSERT INTO asked (input, jid) VALUES (?, ?)", (question.id, jid))
    agent = str(JID.parse(row.target).bare)
    recent.asked(database, question.id, people, agent, thread_of(row), expires)
