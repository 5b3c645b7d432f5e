"""Questions as rows: asked, listed, and expired.

All functions run inside a storage operation, take its `Database`, and never wait. The revision, the
event and the question are one commit, so an open question survives a crash of the process
(CNF-043).
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, Literal

import msgspec

from component.storage.database import Database
from component.tasks import recent
from component.tasks.answers import input_for
from component.tasks.journal import nothing_ran
from component.tasks.protocol import Question
from component.tasks.request import question_of, thread_of
from component.tasks.rows import (
    Change,
    Row,
    change,
    is_late,
    milliseconds,
    moment,
    next_due,
    steady,
)
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.task import Failure, Input
from xep.jid import JID

QuestionKind = Literal["confirm", "input"]


class InputRow(msgspec.Struct):
    """The row of a question. `answered_at` is in milliseconds since 1970, UTC; `expires` and
    `asked_at` are times of the steady clock.

    `step` is the step that asked ('' before the work begins), `question` is the XML, `hash` its
    digest in hex. `answer` is the answer that counted: `approve`, `deny`, or the JSON of an answer.
    """

    id: str
    task: str
    step: str
    kind: QuestionKind
    question: str
    hash: str | None
    revision: int
    expires: int
    state: Literal["open", "answered", "expired", "withdrawn"]
    answer: str | None
    answered_by: str | None
    answered_at: int | None
    asked_at: int | None

    @property
    def content(self) -> Confirm | Input:
        """Return the decoded question."""
        return asked_in(self.question)

    def lapsed(self, steady: int) -> bool:
        """Return whether the question has expired at this time of the steady clock."""
        return self.state == "expired" or steady >= self.expires


AT: Final = "(t.target = ? OR substr(t.target, 1, CAST(? AS INTEGER)) = ?)"
"""Restricts the tasks `t` to one agent: people answer its bare address, whichever of its addresses
received the request. `at_values` returns the parameters.
"""
INPUT_COLUMNS: Final = ", ".join(InputRow.__struct_fields__)
_SHOWN: Final = (
    "(SELECT MIN(r.shown) FROM recent_questions r WHERE r.input = i.id AND r.jid = a.jid)"
)
"""Whether the person `a` has got the message of the question `i`; NULL if that is not recorded."""


def at_values(at: JID) -> tuple[str, int, str]:
    """Return the parameters of `AT`."""
    bare = str(at.bare)
    return bare, len(bare) + 1, f"{bare}/"


def ask_confirmation(
    database: Database, row: Row, confirm: Confirm, asked: Iterable[JID], *, step: str = ""
) -> Change:
    """Ask `asked` for a confirmation, which any one of them can answer: the task waits for it.

    `confirm` comes from `confirm_for`. It replaces an open question of the task (CNF-016). If the
    deadline has passed the change is the failure of the task instead, and nobody is asked. Raises
    TransitionError.
    """
    assert confirm.expires is not None, "a confirmation needs a time at which it expires"
    assert confirm.hash is not None, "a confirmation needs a digest"
    expires = steady(database, milliseconds(confirm.expires))
    made = _wait(database, row, confirm, expires)
    if made.row.state == "input-required":
        digest = confirm.hash.digest.hex()
        people = _insert(database, made.row, confirm, step, expires, asked, digest)
        return _with_question(made, confirm, people)
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
    """Ask the principal a question of the skill: the task waits for the answer (INP-001).

    `schema` is a JSON Schema of type object. `id` is new for every question (INP-003), `expires`
    comes from `lapses`. The answer becomes the result of `step`, as the JSON of a `Reply`.
    Otherwise like `ask_confirmation`.
    """
    put = input_for(text, schema, id=id, revision=row.revision + 1, expires=moment(expires))
    until = steady(database, expires)
    made = _wait(database, row, put, until)
    if made.row.state == "input-required":
        principal = JID.parse(row.principal)
        people = _insert(database, made.row, put, step, until, (principal,), None)
        return _with_question(made, put, people)
    return made


def lapse(database: Database, row: Row, *, retention_ms: int) -> Change | None:
    """Fail a task whose open question has expired; return None if none has.

    The error is `confirmation-expired` or `input-expired`, never a denial (CNF-038, CNF-039,
    INP-013). If the deadline of the task has passed too, that is the reason of the failure
    (EXE-026).
    """
    if row.state != "input-required":
        return None
    found = open_of(database, row.id)
    late = is_late(database, row)
    if found is None or not (late or found.lapsed(database.steady)):
        return None
    recent.close(database, row.id, "expired")
    error = errors.confirmation_expired() if found.kind == "confirm" else errors.input_expired()
    if late:
        error = errors.deadline_expired()
    failure = Failure.of(error, repeatable=nothing_ran(database, row.id))
    made = change(database, row, "failed", failure, retention_ms=retention_ms)
    return msgspec.structs.replace(made, question=question_with(database, made.row))


def open_of(database: Database, task: str) -> InputRow | None:
    """Return the open question of a task."""
    found = database.execute(
        f"SELECT {INPUT_COLUMNS} FROM inputs WHERE task = ? AND state = 'open'",  # noqa: S608
        (task,),
    ).fetchone()
    return None if found is None else InputRow(*found)


def asked_in(text: str) -> Confirm | Input:
    """Decode a question that a row stores as XML."""
    found = read(text, Confirm, Input)
    assert isinstance(found, Confirm | Input)
    return found


def approved_of(database: Database, task: str) -> Confirm | None:
    """Return the last approved confirmation of a task; None if there is none."""
    found = database.execute(
        "SELECT question FROM inputs WHERE task = ? AND kind = 'confirm' AND state = 'answered'"
        " AND answer = 'approve' ORDER BY revision DESC LIMIT 1",
        (task,),
    ).fetchone()
    content = None if found is None else asked_in(found[0])
    return content if isinstance(content, Confirm) else None


def input_row(database: Database, id_: str) -> InputRow | None:
    """Return a question by its identifier, regardless of who was asked."""
    found = database.execute(
        f"SELECT {INPUT_COLUMNS} FROM inputs WHERE id = ?",  # noqa: S608 - constant columns
        (id_,),
    ).fetchone()
    return None if found is None else InputRow(*found)


def asked_of(database: Database, id_: str) -> tuple[JID, ...]:
    """Return the bare JIDs that were asked, in a fixed order."""
    found = database.execute("SELECT jid FROM asked WHERE input = ? ORDER BY jid", (id_,))
    return tuple([JID.parse(jid) for (jid,) in found.fetchall()])


def question_with(database: Database, row: Row) -> Question | None:
    """Return the question that belongs to the current revision of a task: the open one, or the one
    whose expiry made the task fail; None if there is neither.
    """
    state = {"input-required": "open", "failed": "expired"}.get(row.state)
    found = database.execute(
        f"SELECT {INPUT_COLUMNS} FROM inputs WHERE task = ? AND state = ?"  # noqa: S608 - constant columns
        " ORDER BY revision DESC LIMIT 1",
        (row.id, state),
    ).fetchone()
    if found is None:
        return None
    put = InputRow(*found)
    asked = asked_of(database, put.id)
    lapsed = put.state == "expired"
    return question_of(row, put.content, put.revision, asked, row.updated, lapsed=lapsed)


def open_questions(database: Database, who: JID, at: JID) -> Sequence[Question]:
    """Return the open questions of the address `at` to `who`, the newest first."""
    tasks = ", ".join(f"t.{name}" for name in Row.__struct_fields__)
    found = database.execute(
        f"SELECT i.id, i.question, i.revision, {_SHOWN}, {tasks} FROM asked a"  # noqa: S608
        " JOIN inputs i ON i.id = a.input JOIN tasks t ON t.id = i.task"
        " WHERE a.jid = ? AND a.open = 1 AND i.state = 'open' AND i.expires > ?"
        " AND t.state = 'input-required'"
        f" AND {AT} ORDER BY t.updated DESC, i.id",
        (str(who.bare), database.steady, *at_values(at)),
    ).fetchall()
    open_: list[Question] = []
    for id_, question, revision, shown, *columns in found:
        row = Row(*columns)
        asked = asked_of(database, id_)
        one = question_of(row, asked_in(question), revision, asked, row.updated)
        open_.append(msgspec.structs.replace(one, shown=shown or "shown"))
    return open_


def adopt(database: Database) -> None:
    """Add the open questions that were asked by an older release to the recent ones.

    They count as asked now.
    """
    tasks = ", ".join(f"t.{name}" for name in Row.__struct_fields__)
    found = database.execute(
        f"SELECT i.id, i.expires, {tasks} FROM inputs i JOIN tasks t ON t.id = i.task"  # noqa: S608 - constant columns
        " WHERE i.state = 'open' AND NOT EXISTS"
        " (SELECT 1 FROM recent_questions r WHERE r.input = i.id)"
    ).fetchall()
    for id_, expires, *columns in found:
        row = Row(*columns)
        people = [str(one) for one in asked_of(database, id_)]
        agent = str(JID.parse(row.target).bare)
        recent.asked(database, id_, people, agent, thread_of(row), expires)
        if row.untold is None:
            recent.written(database, id_, ())


def was_asked(database: Database, who: JID, at: JID, name: str) -> bool:
    """Return whether `who` was asked a question that is closed; `name` is its id or thread."""
    for column, value in (("thread", _thread_key(at, name)), ("input", name)):
        found = database.execute(
            "SELECT 1 FROM asked a JOIN inputs i ON i.id = a.input JOIN tasks t ON t.id = i.task"  # noqa: S608 - constant text
            f" WHERE a.jid = ? AND a.{column} = ? AND (i.state <> 'open' OR i.expires <= ?)"
            f" AND t.retain_until >= ? AND {AT} LIMIT 1",
            (str(who.bare), value, database.steady, database.steady, *at_values(at)),
        ).fetchone()
        if found is not None:
            return True
    return False


def _thread_key(at: JID, thread: str) -> str:
    """Return a key for a thread of messages with the address `at`, short enough for an index."""
    return sha256(f"{at.bare}\n{thread}".encode()).hexdigest()[:32]


def _wait(database: Database, row: Row, detail: Confirm | Input, expires: int) -> Change:
    """Set the task to `input-required`; its execution ends here and only rows remain."""
    due = next_due(database, row, expires)
    return change(database, row, "input-required", detail, owner=None, due=due, untold=True)


def _with_question(made: Change, content: Confirm | Input, asked: Iterable[JID]) -> Change:
    row = made.row
    put = question_of(row, content, row.revision, asked, row.updated)
    return msgspec.structs.replace(made, question=put)


def _insert(
    database: Database,
    row: Row,
    question: Confirm | Input,
    step: str,
    expires: int,
    asked: Iterable[JID],
    digest: str | None,
) -> tuple[JID, ...]:
    """Insert the row of a question; return the bare JIDs that are asked, in a fixed order."""
    recent.close(database, row.id, "withdrawn")
    kind: QuestionKind = "confirm" if isinstance(question, Confirm) else "input"
    database.execute(
        f"INSERT INTO inputs ({INPUT_COLUMNS})"  # noqa: S608 - constant columns
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', NULL, NULL, NULL, ?)",
        (
            *(question.id, row.id, step, kind, encode(question), digest, row.revision, expires),
            database.steady,
        ),
    )
    people = sorted({str(one.bare) for one in asked})
    agent, thread = JID.parse(row.target).bare, thread_of(row)
    for jid in people:
        database.execute(
            "INSERT INTO asked (input, jid, thread) VALUES (?, ?, ?)",
            (question.id, jid, _thread_key(agent, thread)),
        )
    recent.asked(database, question.id, people, str(agent), thread, expires)
    return tuple([JID.parse(jid) for jid in people])
