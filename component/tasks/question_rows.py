"""The tables of questions: `inputs`, `asked` and `recent_questions`, and every statement on them.

`recent_questions` decides which question an answer in words is meant for (specification, "In
Words"). Anybody who can cause a question to a person could ask something harmless, withdraw it and
ask something else; the yes to the first question would then approve the second. So an answer in
words counts only if exactly one question matched what it names (or, if it names nothing, only one
question existed) during the last minute. Words that name nothing may also mean the newest of
several questions that the person's own requests have caused. These rows are separate from those of
the tasks: an attacker who wants to remove the evidence could end many tasks, and ended tasks are
deleted. Times are those of the steady clock, so a clock that jumps makes no question look older
than it is.

A row also says whether the person has got the question, because words that name nothing cannot be
meant for a question that was never shown: `waiting` until its message was written, then `shown`;
`withheld` from a person who wants no such messages; `returned` if the message was returned as
an error.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, Literal

import msgspec

from component.agent_addresses import both_addresses, canonical_address
from component.store.database import Database, Value
from component.store.schema import Table
from component.tasks import room_question_rows, standing_rows, votes
from component.tasks.protocol import Doubt, Naming, Question
from component.tasks.rows import (
    NOT_ENDED,
    Row,
    column,
    exists,
    load,
    milliseconds,
    moment,
    request_of,
    steady,
)
from xep.binding import encode, read
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.task import Input
from xep.jid import JID

# Whether a question may still be open, stored with the people asked, so that it can be indexed.

_CLOSE_ASKED: Final = "UPDATE asked SET open = 0 WHERE input = NEW.id;"

CLOSE_ASKED_SQLITE: Final = (
    f"""
    CREATE TRIGGER inputs_closed AFTER UPDATE OF state ON inputs
    WHEN OLD.state = 'open' AND NEW.state <> 'open' BEGIN {_CLOSE_ASKED} END
    """,
)

CLOSE_ASKED_POSTGRES: Final = (
    f"""
    CREATE FUNCTION close_asked() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN {_CLOSE_ASKED} RETURN NULL; END $$
    """,
    """
    CREATE TRIGGER inputs_closed AFTER UPDATE ON inputs FOR EACH ROW
    WHEN (OLD.state = 'open' AND NEW.state <> 'open') EXECUTE FUNCTION close_asked()
    """,
)

TABLES: Final = (
    Table(
        name="inputs",
        columns="""
            id TEXT PRIMARY KEY,
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            step TEXT {C} NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('confirm', 'input')),
            question TEXT NOT NULL,
            hash TEXT,
            revision INTEGER NOT NULL,
            expires BIGINT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('open', 'answered', 'expired', 'withdrawn')),
            answer TEXT,
            answered_by TEXT,
            answered_at BIGINT,
            asked_at BIGINT
        """,
        indexes={"inputs_task": "(task)"},
        sqlite=CLOSE_ASKED_SQLITE,
        postgres=CLOSE_ASKED_POSTGRES,
        kept="part of a task",
    ),
    Table(
        name="asked",
        columns="""
            input TEXT NOT NULL REFERENCES inputs ON DELETE CASCADE,
            jid TEXT {C} NOT NULL,
            open INTEGER NOT NULL DEFAULT 1,
            thread TEXT,
            PRIMARY KEY (jid, input)
        """,
        indexes={
            "asked_input": "(input)",
            "asked_open": "(jid, open)",
            "asked_thread": "(jid, thread) WHERE thread IS NOT NULL",
        },
        kept="part of a task",
    ),
    Table(
        name="recent_questions",
        columns="""
            jid TEXT {C} NOT NULL,
            agent TEXT {C} NOT NULL,
            input TEXT {C} NOT NULL,
            thread TEXT {C} NOT NULL,
            asked BIGINT NOT NULL,
            expires BIGINT NOT NULL,
            closed BIGINT,
            shown TEXT {C} NOT NULL DEFAULT 'shown',
            PRIMARY KEY (jid, agent, input)
        """,
        indexes={"recent_questions_input": "(input)"},
        kept="part of a task",
    ),
    votes.VOTES,
    *room_question_rows.TABLES,
    *standing_rows.TABLES,
)


class InputRow(msgspec.Struct):
    """The row of a question. `answered_at` is in milliseconds since 1970, UTC; `expires` and
    `asked_at` are times of the steady clock.

    `step` is the step that asked ('' before the work begins), `question` is the XML, `hash` its
    digest in hex. `answer` is the answer that counted: `approve`, `always` (a standing approval),
    `deny`, or the JSON of an answer.
    """

    id: str
    task: str
    step: str
    kind: Literal["confirm", "input"]
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
        return _decode(self.question)

    def lapsed(self, steady: int) -> bool:
        """Return whether the question has expired at this time of the steady clock."""
        return self.state == "expired" or steady >= self.expires


_AT: Final = "(t.target IN (?, ?) OR substr(t.target, 1, CAST(? AS INTEGER)) = ?)"
"""Restricts the tasks `t` to one agent, whichever of its addresses, with a resource or without,
received the request and gets the answer. `_at_values` returns the parameters.
"""
_NOT_ENDED: Final = NOT_ENDED.replace("state", "t.state")
INPUT_COLUMNS: Final = ", ".join(InputRow.__struct_fields__)

_SHOWN: Final = (
    "(SELECT MIN(r.shown) FROM recent_questions r WHERE r.input = i.id AND r.jid = a.jid)"
)
"""Whether the person `a` has got the message of the question `i`; NULL if that is not recorded."""


def _at_values(at: JID) -> tuple[str, str, int, str]:
    one, other = _both(at)
    return one, other, len(one) + 1, f"{one}/"


def _both(at: JID) -> tuple[str, str]:
    one, other = both_addresses(at)
    return str(one), str(other)


def _decode(text: str) -> Confirm | Input:
    found = read(text, Confirm, Input)
    assert isinstance(found, Confirm | Input)
    return found


def _first(database: Database, rest: str, *values: Value) -> InputRow | None:
    """Return the first row that matches; `rest` follows `WHERE`."""
    found = database.execute(f"SELECT {INPUT_COLUMNS} FROM inputs WHERE {rest}", values).fetchone()  # noqa: S608
    return None if found is None else InputRow(*found)


def open_of(database: Database, task: str) -> InputRow | None:
    """Return the open question of a task."""
    return _first(database, "task = ? AND state = 'open'", task)


def set_content(database: Database, put: InputRow, content: Confirm) -> None:
    """Store the content of a question of which something has changed that its digest does not
    cover.
    """
    database.execute("UPDATE inputs SET question = ? WHERE id = ?", (encode(content), put.id))


def input_row(database: Database, id_: str) -> InputRow | None:
    """Return a question by its identifier, regardless of who was asked."""
    return _first(database, "id = ?", id_)


def approved_of(database: Database, task: str) -> Confirm | None:
    """Return the last approved confirmation of a task; None if there is none."""
    rest = (
        "task = ? AND kind = 'confirm' AND state = 'answered'"
        " AND answer IN ('approve', 'always') AND step = ''"
        " ORDER BY revision DESC LIMIT 1"
    )
    found = _first(database, rest, task)
    content = None if found is None else found.content
    return content if isinstance(content, Confirm) else None


def people_asked(database: Database, id_: str) -> list[JID]:
    """Return the bare JIDs of those who were asked a question themselves."""
    found = column(database, "SELECT jid FROM asked WHERE input = ? ORDER BY jid", id_)
    return [JID.parse(jid) for jid in found]


def number_asked(database: Database, id_: str) -> int:
    """Return how many people were asked a question."""
    return len(people_asked(database, id_))


def question_with(database: Database, row: Row) -> Question | None:
    """Return the question of the current revision of a task: the open one, or the one whose expiry
    made the task fail; None if there is neither.
    """
    state = {"input-required": "open", "failed": "expired"}.get(row.state)
    rest = "task = ? AND state = ? ORDER BY revision DESC LIMIT 1"
    put = _first(database, rest, row.id, state)
    if put is None:
        return None
    question = question_of(row, put.content, people_asked(database, put.id), put.revision)
    return msgspec.structs.replace(question, lapsed=put.state == "expired")


def open_questions(database: Database, who: JID, at: JID) -> Sequence[Question]:
    """Return the open questions of the agent at `at` to `who`, the newest first."""
    tasks = ", ".join(f"t.{name}" for name in Row.__struct_fields__)
    found = database.execute(
        f"SELECT i.id, i.question, i.revision, {_SHOWN}, {tasks} FROM asked a"  # noqa: S608
        " JOIN inputs i ON i.id = a.input JOIN tasks t ON t.id = i.task"
        " WHERE a.jid = ? AND a.open = 1 AND i.state = 'open' AND i.expires > ?"
        " AND t.state = 'input-required'"
        f" AND {_AT} ORDER BY t.updated DESC, i.id",
        (str(who.bare), database.steady, *_at_values(at)),
    ).fetchall()
    open_: list[Question] = []
    for id_, question, revision, shown, *columns in found:
        asked = people_asked(database, id_)
        one = question_of(Row(*columns), _decode(question), asked, revision)
        open_.append(msgspec.structs.replace(one, shown=shown or "shown"))
    return open_


def was_asked(database: Database, who: JID, at: JID, name: str) -> bool:
    """Return whether `who` was asked a question that is closed; `name` is its id or thread."""
    now = database.steady
    return any(
        exists(
            database,
            "SELECT 1 FROM asked a JOIN inputs i ON i.id = a.input JOIN tasks t ON t.id = i.task"  # noqa: S608 - constant text
            f" WHERE a.jid = ? AND a.{key} = ? AND (i.state <> 'open' OR i.expires <= ?)"
            f" AND t.retain_until >= ? AND {_AT} LIMIT 1",
            *(str(who.bare), value, now, now, *_at_values(at)),
        )
        for key, value in (("thread", _thread_key(at, name)), ("input", name))
    )


def _thread_key(at: JID, thread: str) -> str:
    """Return a key for a thread of messages with the address `at`, short enough for an index."""
    return sha256(f"{canonical_address(at)}\n{thread}".encode()).hexdigest()[:32]


def insert(
    database: Database, row: Row, content: Confirm | Input, step: str, asked: Iterable[JID]
) -> Question:
    """Insert the rows of a question that the present revision of a task asks, and return it.

    `step` is the step that asks ('' before the work begins). It replaces an open one (CNF-016).
    """
    close(database, row.id, "withdrawn")
    assert content.expires is not None, "a question needs a time at which it expires"
    expires = steady(database, milliseconds(content.expires))
    kind, digest = "input", None
    if isinstance(content, Confirm):
        assert content.hash is not None, "a confirmation needs a digest"
        kind, digest = "confirm", content.hash.digest.hex()
    database.execute(
        f"INSERT INTO inputs ({INPUT_COLUMNS})"  # noqa: S608 - constant columns
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', NULL, NULL, NULL, ?)",
        (
            *(content.id, row.id, step, kind, encode(content), digest, row.revision, expires),
            database.steady,
        ),
    )
    people = sorted({str(one.bare) for one in asked})
    question = question_of(row, content, [JID.parse(jid) for jid in people])
    room = room_of(content)
    if room is not None:
        room_question_rows.insert(database, content.id, room, question.request.target)
    _insert_asked(database, question, expires)
    return question


def _insert_asked(database: Database, question: Question, expires: int) -> None:
    agent = question.request.target
    for jid in map(str, question.asked):
        database.execute(
            "INSERT INTO asked (input, jid, thread) VALUES (?, ?, ?)",
            (question.id, jid, _thread_key(agent, question.thread)),
        )
        database.execute(
            "INSERT INTO recent_questions"
            " (jid, agent, input, thread, asked, expires, closed, shown)"
            " VALUES (?, ?, ?, ?, ?, ?, NULL, 'waiting')",
            (jid, str(agent), question.id, question.thread, database.steady, expires),
        )


def ask_also(database: Database, row: Row, put: InputRow, people: Iterable[JID]) -> Question | None:
    """Ask more people an open question; return it as one that is asked them alone, or None if all
    were asked before.
    """
    before = people_asked(database, put.id)
    new = sorted({one.bare for one in people} - {*before}, key=str)
    if not new:
        return None
    question = question_of(row, put.content, new, put.revision)
    _insert_asked(database, question, put.expires)
    return question


def room_of(content: Confirm | Input) -> JID | None:
    """Return the room whose occupants can decide a question."""
    approvals = content.approvals if isinstance(content, Confirm) else None
    return None if approvals is None or approvals.room is None else approvals.room.jid


def insert_approved(database: Database, row: Row, content: Confirm, by: JID) -> None:
    """Insert a confirmation of a task that was given before, together with others or for all of its
    kind.
    """
    assert content.expires is not None
    assert content.hash is not None
    expires = steady(database, milliseconds(content.expires))
    database.execute(
        f"INSERT INTO inputs ({INPUT_COLUMNS})"  # noqa: S608 - constant columns
        " VALUES (?, ?, '', 'confirm', ?, ?, ?, ?, 'answered', 'approve', ?, ?, ?)",
        (
            *(content.id, row.id, encode(content), content.hash.digest.hex(), row.revision),
            *(expires, str(by), database.now, database.steady),
        ),
    )


def question_of(
    row: Row, content: Confirm | Input, asked: Iterable[JID], revision: int | None = None
) -> Question:
    """Return a question of a task, which `revision`, or the present one, asked `asked`."""
    request = request_of(row)
    return Question(
        id=content.id,
        task=row.id,
        revision=row.revision if revision is None else revision,
        request=request,
        asked=tuple(asked),
        thread=request.thread or row.id,
        content=content,
        put_at=moment(row.updated),
    )


STANDS_MS: Final = 3_000
"""How long a question must have been open for words that name nothing to count."""
CLOSED_MS: Final = 60_000
"""How long another question that was closed, without the person's own answer, makes an answer in
words uncertain.
"""
_KEPT_MS: Final = 600_000
"""How long closed questions are stored: several times the period that is checked."""


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


def still_to_write(database: Database, question: Question) -> Question | None:
    """Return a question as one that is asked those alone to whom it was not written yet; None if it
    was written to all.
    """
    sql = "SELECT jid FROM recent_questions WHERE input = ? AND shown = 'waiting'"
    waiting = {str(jid) for (jid,) in database.execute(sql, (question.id,)).fetchall()}
    asked = tuple(jid for jid in question.asked if str(jid) in waiting)
    return msgspec.structs.replace(question, asked=asked) if asked else None


_TO: Final = "input = ? AND jid = ? AND agent IN (?, ?)"


def is_open(database: Database, id_: str, who: JID, at: JID) -> bool:
    """Return whether the address `at` has asked `who` this question, and it is not closed."""
    sql = f"SELECT 1 FROM recent_questions WHERE {_TO} AND closed IS NULL"  # noqa: S608
    return exists(database, sql, id_, str(who.bare), *_both(at))


def returned(database: Database, id_: str, who: JID, at: JID) -> None:
    """Record that the message of a question from `at` to `who` was returned as an error."""
    database.execute(
        f"UPDATE recent_questions SET shown = 'returned' WHERE {_TO}",  # noqa: S608
        (id_, str(who.bare), *_both(at)),
    )


def close(database: Database, task: str, state: str) -> None:
    """Close the open question of a task; `state` is the state in its row after that."""
    database.execute(
        "UPDATE recent_questions SET closed = ? WHERE closed IS NULL AND input IN"
        " (SELECT id FROM inputs WHERE task = ? AND state = 'open')",
        (database.steady, task),
    )
    database.execute("UPDATE inputs SET state = ? WHERE task = ? AND state = 'open'", (state, task))


class Answerer(msgspec.Struct, frozen=True):
    """The JID `who` that answers, and the component's address `at` that it answers to.

    `lang` is the language of a reason, `reason` says why an input is declined. `naming` says how an
    answer in words names its question: it must certainly be meant for this question (CNF-044,
    CNF-045). `sent` are the questions whose messages were just written to the person: their rows
    may not say so yet. `room` is the room in which `who` is an occupant who can decide the question
    (CNF-060). `by_reaction` says that the answer is a reaction.
    """

    who: JID
    at: JID
    lang: str | None = None
    naming: Naming | None = None
    sent: frozenset[str] = frozenset()
    reason: str = ""
    room: JID | None = None
    by_reaction: bool = False


_NO_CONFIRMATION: Final = (
    " AND NOT EXISTS"
    " (SELECT 1 FROM inputs WHERE inputs.id = recent_questions.input AND inputs.kind = 'confirm')"
)


def doubt_about(database: Database, by: Answerer, id_: str, *, stands: bool = True) -> Doubt | None:
    """Return why an answer may not be meant for the question `id_`; None if it certainly is.

    Words that name nothing are meant for the only question that is open or was closed a moment ago
    (except confirmations, if they decide nothing), or for the newest if all of them are open and
    come from the person's own requests. `stands` says whether the question must have been open for
    a while then (CNF-045). Only the beginning of its identifier can name a question whose message
    the person has not got.
    """
    naming, who = by.naming, str(by.who.bare)
    if naming is None:
        return None
    values: list[Value] = [
        *(database.steady, who, *_both(by.at)),
        *(database.steady - CLOSED_MS, id_),
    ]
    also = ""
    if naming.thread is not None:
        also += " AND thread = ?"
        values.append(naming.thread)
    if naming.beginning:
        also += " AND substr(input, 1, CAST(? AS INTEGER)) = ?"
        values += [len(naming.beginning), naming.beginning]
    others = "" if naming.may_decide else _NO_CONFIRMATION
    found = database.execute(
        "SELECT input, asked, closed IS NULL AND expires > ?, shown FROM recent_questions"  # noqa: S608 - constant text
        " WHERE jid = ? AND agent IN (?, ?) AND COALESCE(closed, expires) > ?"
        f" AND (shown <> 'withheld' OR input = ?){also}{others}",
        values,
    ).fetchall()
    times = {question: asked_at for question, asked_at, _, _ in found}
    shown = {question: shown for question, _, _, shown in found}
    if id_ not in times:
        return "other questions"
    is_shown = shown[id_] == "shown" or (shown[id_] == "waiting" and id_ in by.sent)
    if not (is_shown or naming.beginning):
        return "not shown"
    asked_at = times.pop(id_)
    if times:
        is_newest = not also and all(asked_at > other for other in times.values())
        if not (is_newest and all(unclosed for _, _, unclosed, _ in found)):
            return "other questions"
        if not all(_is_from(database, who, question) for question in (id_, *times)):
            return "other questions"
    if also or not stands:
        return None
    return None if database.steady - asked_at >= STANDS_MS else "just asked"


def _is_from(database: Database, who: str, question: str) -> bool:
    """Return whether a question comes from a request of `who`, and not from an operator."""
    tasks = column(database, "SELECT task FROM inputs WHERE id = ?", question)
    row = load(database, tasks[0], lock=False) if tasks else None
    if row is None or row.principal != who:
        return False
    return not request_of(row).caller_context.operator


def confirmation_to(database: Database, who: JID, at: JID, id_: str) -> str | None:
    """Return the task of a confirmation that was sent to `who` from `at`.

    An id that never existed, one sent to somebody else and one no longer retained are one query
    without a row, so neither the answer nor its timing distinguishes them (CNF-035, CNF-036).
    """
    found = column(
        database,
        "SELECT i.task FROM asked a JOIN inputs i ON i.id = a.input JOIN tasks t ON t.id = i.task"  # noqa: S608
        " WHERE a.jid = ? AND a.input = ? AND i.kind = 'confirm'"
        f" AND {_AT} AND (({_NOT_ENDED}) OR t.retain_until >= ?)",
        *(str(who.bare), id_, *_at_values(at), database.steady),
    )
    return found[0] if found else None


def confirmation_in(database: Database, room: JID, id_: str) -> str | None:
    """Return the task of a confirmation that the occupants of a room can decide."""
    found = column(
        database,
        "SELECT i.task FROM room_questions r JOIN inputs i ON i.id = r.input"
        " WHERE r.input = ? AND r.room = ?",
        *(id_, str(room.bare)),
    )
    return found[0] if found else None


def store_answer(database: Database, put: InputRow, text: str, who: JID) -> None:
    """Record the answer that counts; for everybody else who was asked the question was closed."""
    database.execute(
        "DELETE FROM recent_questions WHERE input = ? AND jid = ?", (put.id, str(who.bare))
    )
    database.execute(
        "UPDATE recent_questions SET closed = ? WHERE input = ? AND closed IS NULL",
        (database.steady, put.id),
    )
    database.execute(
        "UPDATE inputs SET state = 'answered', answer = ?, answered_by = ?, answered_at = ?"
        " WHERE id = ?",
        (text, str(who.bare), database.now, put.id),
    )


def expire_sooner(database: Database, downtime: int, back_at: int) -> None:
    """Let questions asked before `back_at` expire sooner, by the downtime in milliseconds."""
    database.execute(
        "UPDATE tasks SET wake_at = ? WHERE id IN (SELECT task FROM inputs WHERE state = 'open'"
        " AND asked_at <= ?) AND state = 'input-required'",
        (database.steady, back_at),
    )
    database.execute(
        "UPDATE inputs SET expires = expires - ? WHERE state = 'open' AND asked_at <= ?",
        (downtime, back_at),
    )


def forget(database: Database) -> None:
    """Delete questions that were closed, or have expired, long ago."""
    database.execute(
        "DELETE FROM recent_questions WHERE COALESCE(closed, expires) < ?",
        (database.steady - _KEPT_MS,),
    )
