"""The skills that peers offer, and calls of them: the tables, and every statement on them.

A call is stored before it is sent, with the XML that is sent: a repetition has the same bytes, so
the peer recognises it (RPL-005).

    unanswered -> accepted -> ended

Functions take the `Database` of one operation.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from component.features.peers import grant_rows
from component.grants.receipt import Spent, read_receipt
from component.store import waiters
from component.store.database import Database
from component.store.schema import Table
from component.store.tables import tells
from xep.binding import read
from xep.fluux_agent.execute import Result
from xep.fluux_agent.task import Failure

TOPIC: Final = "peer_calls"
"""What `SharedChanges` calls the calls that another instance has to look at."""

TABLES: Final = (
    Table(
        name="peer_skills",
        columns="""
            peer TEXT {C} PRIMARY KEY,
            address TEXT NOT NULL,
            version TEXT NOT NULL,
            expires BIGINT NOT NULL,
            skills TEXT NOT NULL
        """,
        kept="what peers offer; deleted when a peer is removed, or refuses to serve this service",
        is_work=False,
    ),
    Table(
        name="peer_calls",
        columns="""
            id TEXT {C} PRIMARY KEY,
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            peer TEXT {C} NOT NULL,
            address TEXT NOT NULL,
            sender TEXT NOT NULL,
            request TEXT NOT NULL,
            deadline BIGINT NOT NULL,
            owner TEXT NOT NULL,
            state TEXT NOT NULL,
            remote TEXT {C},
            question TEXT,
            questions INTEGER NOT NULL DEFAULT 0,
            reply TEXT,
            parts TEXT NOT NULL DEFAULT '{}',
            outcome TEXT,
            unknown INTEGER NOT NULL DEFAULT 0,
            created BIGINT NOT NULL,
            paid_by TEXT NOT NULL,
            usd DOUBLE PRECISION,
            tokens BIGINT,
            output BIGINT NOT NULL DEFAULT 0,
            receipt TEXT,
            nudges INTEGER NOT NULL DEFAULT 0
        """,
        postgres=(tells("peer_calls", "UPDATE", TOPIC, "id", when="OLD.nudges <> NEW.nudges"),),
        indexes={
            "peer_calls_task": "(task)",
            "peer_calls_open": "(owner) WHERE state <> 'ended'",
            "peer_calls_paid_by": "(paid_by)",
            "peer_calls_created": "(peer, created)",
        },
        kept="part of a task",
    ),
    *grant_rows.TABLES,
    grant_rows.USES,
)


class OfferedSkills(msgspec.Struct, frozen=True):
    """Usable skills of a peer, in the order of their names.

    Attributes:
        names: the names that they have here.
        searched: the texts in which words are searched; see `component.skills.registry.Catalogue`.
        titles: the titles, in a JSON array that is compressed with zlib.
        digests: the digests, one after the other; see `component.skills.registry.DIGEST_BYTES`.
        texts: the descriptions as XML, in a JSON array that is compressed with zlib.
    """

    names: tuple[str, ...] = ()
    searched: str = ""
    titles: bytes = b""
    digests: bytes = b""
    texts: bytes = b""


class Offered(msgspec.Struct, frozen=True):
    """The skills that a peer has offered last, until `expires`, in milliseconds of the steady
    clock. `version` is the hash of its answer.
    """

    peer: str
    address: str
    version: str
    expires: int
    skills: OfferedSkills


def offered(database: Database) -> tuple[dict[str, Offered], int]:
    """Return what peers have offered last, by their names, and the steady clock."""
    found = database.execute("SELECT peer, address, version, expires, skills FROM peer_skills")
    decode = msgspec.json.Decoder(OfferedSkills).decode
    known = {}
    # One after the other: as JSON, all of them together would take as much memory again.
    while row := found.fetchone():
        peer, address, version, expires, skills = row
        known[peer] = Offered(peer, address, version, expires, decode(skills))
    return known, database.steady


def offer(database: Database, given: Offered, ttl_s: int) -> Offered:
    """Store what a peer offers for so many seconds."""
    made = msgspec.structs.replace(given, expires=database.steady + ttl_s * 1000)
    values = made.peer, made.address, made.version, made.expires
    database.execute(
        "INSERT INTO peer_skills (peer, address, version, expires, skills) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (peer) DO UPDATE SET address = excluded.address, version = excluded.version,"
        " expires = excluded.expires, skills = excluded.skills",
        (*values, msgspec.json.encode(made.skills).decode()),
    )
    return made


def still_offered(database: Database, given: Offered, ttl_s: int) -> Offered:
    """Note that a peer offers the same for so many seconds more."""
    made = msgspec.structs.replace(given, expires=database.steady + ttl_s * 1000)
    database.execute("UPDATE peer_skills SET expires = ? WHERE peer = ?", (made.expires, made.peer))
    return made


def not_offered(database: Database, peers: Iterable[str]) -> None:
    """Forget what peers have offered."""
    for peer in peers:
        database.execute("DELETE FROM peer_skills WHERE peer = ?", (peer,))


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a skill of a peer.

    Attributes:
        id: the idempotency key of the call, which is the name of its request.
        task: the task here that waits for it.
        sender: the address here that asks.
        request: the XML of the execute element.
        deadline: in milliseconds since 1970.
        owner: the instance that sends it.
        remote: the task of the peer, if it has accepted one.
        question: the XML of the open question of the peer: a `Task` with an input, or a `Confirm`.
        questions: how many it has asked.
        reply: the XML of the answer to it, until the peer has it.
        parts: the JSON of which parts of artifacts it has sent; see `artifacts.Received`.
        outcome: the XML of a `Result` or a `Failure`.
        unknown: whether the peer may have run it, although there is no answer.
        created: when it was stored, in milliseconds since 1970.
        paid_by: the task or turn whose budget pays.
        usd: what it may cost in US dollars, and after its end what it has cost; None if there is
            no limit. `tokens` likewise, of which `output` were answers.
        receipt: what the peer has signed about the end, if that is valid.
        nudges: how often another instance has let the owner look at it.
    """

    id: str
    task: str
    peer: str
    address: str
    sender: str
    request: str
    deadline: int
    owner: str
    state: str = "unanswered"
    remote: str | None = None
    question: str | None = None
    questions: int = 0
    reply: str | None = None
    parts: str = "{}"
    outcome: str | None = None
    unknown: int = 0
    created: int = 0
    paid_by: str = ""
    usd: float | None = None
    tokens: int | None = None
    output: int = 0
    receipt: str | None = None
    nudges: int = 0

    def result(self) -> Result | Failure | None:
        """Return the outcome, decoded; None before the end."""
        if self.outcome is None:
            return None
        found = read(self.outcome, Result, Failure)
        assert isinstance(found, Result | Failure)
        return found


_COLUMNS: Final = ", ".join(Call.__struct_fields__)
_MARKS: Final = ", ".join("?" * len(Call.__struct_fields__))


def _call(row: Sequence[Any]) -> Call:
    return Call(**dict(zip(Call.__struct_fields__, row, strict=True)))


def add(database: Database, call: Call) -> Call:
    """Store a new call; return it as it is stored, if it was before."""
    database.execute(
        f"INSERT INTO peer_calls ({_COLUMNS}) VALUES ({_MARKS}) ON CONFLICT (id) DO NOTHING",  # noqa: S608 - names
        msgspec.structs.astuple(call),
    )
    return load(database, call.id) or call


def load(database: Database, call: str, *, lock: bool = False) -> Call | None:
    """Return a call, locked until the end of the transaction if wanted; None if there is none."""
    locked = " FOR UPDATE" if lock and database.dialect == "postgresql" else ""
    row = database.execute(
        f"SELECT {_COLUMNS} FROM peer_calls WHERE id = ?{locked}",  # noqa: S608 - names
        (call,),
    ).fetchone()
    return None if row is None else _call(row)


def is_pending(database: Database, call: str) -> bool:
    """Return whether a call has neither ended nor asks something; it is locked."""
    found = load(database, call, lock=True)
    return found is not None and found.state != "ended" and not is_asking(found)


def is_asking(call: Call) -> bool:
    """Return whether the peer asks something that was not answered yet."""
    return call.question is not None and call.reply is None


def is_unfinished(database: Database) -> bool:
    """Return whether there is a call that has to end."""
    found = database.execute("SELECT 1 FROM peer_calls WHERE state <> 'ended' LIMIT 1")
    return found.fetchone() is not None


def any_left(database: Database, owner: str) -> bool:
    """Return whether `open_calls` would find a call of an instance that has ended."""
    found = database.execute(
        "SELECT 1 FROM peer_calls WHERE state <> 'ended' AND owner <> ?"
        " AND owner NOT IN (SELECT id FROM instances) LIMIT 1",
        (owner,),
    )
    return found.fetchone() is not None


def open_calls(database: Database, owner: str) -> Sequence[Call]:
    """Make `owner` send the calls of instances that have ended; return all that it has to send."""
    database.execute(
        "UPDATE peer_calls SET owner = ? WHERE state <> 'ended' AND owner <> ?"
        " AND owner NOT IN (SELECT id FROM instances)",
        (owner, owner),
    )
    found = database.execute(
        f"SELECT {_COLUMNS} FROM peer_calls WHERE state <> 'ended' AND owner = ?",  # noqa: S608
        (owner,),
    ).fetchall()
    return [_call(row) for row in found]


def change(database: Database, call: str, **values: str | float | None) -> tuple[str, ...]:
    """Change a call that has not ended, and wake the task that waits for it if there is news.

    Returns the principals whose tasks can go on.
    """
    found = load(database, call, lock=True)
    if found is None or found.state == "ended":
        return ()
    sets = ", ".join(f"{name} = ?" for name in values)
    database.execute(
        f"UPDATE peer_calls SET {sets} WHERE id = ?",  # noqa: S608 - names
        (*values.values(), call),
    )
    changed = msgspec.structs.replace(found, **values)
    if changed.state == "ended" or (is_asking(changed) and not is_asking(found)):
        return waiters.wake_tasks(database, call)
    return ()


def spent_in(outcome: Result | Failure, receipt: str | None) -> Spent:
    """Return what ended work has taken: as its result says, or a valid receipt of a failure."""
    if isinstance(outcome, Result):
        usage = outcome.usage
        return Spent() if usage is None else msgspec.convert(usage, Spent, from_attributes=True)
    return Spent() if receipt is None else read_receipt(receipt).usage


def nudge(
    database: Database, me: str, *, call: str = "", address: str = "", task: str = ""
) -> None:
    """Let another instance look at its open call, because of what has come from the address of the
    peer here, or at the calls of a task.
    """
    which, values = ("task = ?", (task,)) if task else ("id = ? AND address = ?", (call, address))
    database.execute(
        f"UPDATE peer_calls SET nudges = nudges + 1 WHERE {which}"  # noqa: S608 - constant texts
        " AND state <> 'ended' AND owner <> ?",
        (*values, me),
    )


def unwanted(database: Database, owner: str) -> Sequence[str]:
    """Return the open calls of an instance for which no task waits any more, or of which the grant
    was revoked to end them.
    """
    found = database.execute(
        "SELECT id FROM peer_calls WHERE state <> 'ended' AND owner = ? AND (NOT EXISTS (SELECT 1"
        " FROM tasks WHERE tasks.id = peer_calls.task"
        " AND tasks.state IN ('accepted', 'running', 'input-required')) OR EXISTS (SELECT 1"
        " FROM peer_grants WHERE peer_grants.call = peer_calls.id AND cancels = 1))",
        (owner,),
    ).fetchall()
    return [row[0] for row in found]


class Costs(msgspec.Struct, frozen=True):
    """US dollars and tokens, of which `output` were answers."""

    usd: float = 0.0
    tokens: int = 0
    output: int = 0

    def plus(self, other: "Costs") -> "Costs":
        """Return the sum of both."""
        return Costs(self.usd + other.usd, self.tokens + other.tokens, self.output + other.output)


def costs_of(database: Database, paid_by: str, *, ended: bool) -> Costs:
    """Return what the ended calls that a task or turn pays have cost, or what the open ones may."""
    state = "state = 'ended'" if ended else "state <> 'ended'"
    return _costs(database, f"paid_by = ? AND {state}", (paid_by,))


def costs_of_day(database: Database, peer: str) -> Costs:
    """Return what the calls of a peer have cost or may cost that were stored today (UTC)."""
    midnight = database.now - database.now % 86_400_000
    return _costs(database, "peer = ? AND created >= ?", (peer, midnight))


def _costs(database: Database, where: str, values: Sequence[str | int]) -> Costs:
    row = database.execute(
        "SELECT coalesce(sum(usd), 0), coalesce(sum(tokens), 0), coalesce(sum(output), 0)"  # noqa: S608 - constant texts
        f" FROM peer_calls WHERE {where}",
        values,
    ).fetchone() or (0, 0, 0)
    return Costs(float(row[0]), int(row[1]), int(row[2]))


class PeerUse(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored about a peer. `known_until` is when its catalogue has to be asked for again,
    in milliseconds since 1970; None if it is not known. `today` is what its calls have cost or may
    cost today (UTC).
    """

    known_until: int | None = None
    open_calls: int = 0
    today: Costs = Costs()


def use_of(database: Database, peer: str, address: str) -> PeerUse:
    """Return what is stored about a peer at an address."""
    offered_ = database.execute(
        "SELECT expires FROM peer_skills WHERE peer = ? AND address = ?", (peer, address)
    ).fetchone()
    (open_calls,) = database.execute(
        "SELECT count(*) FROM peer_calls WHERE peer = ? AND state <> 'ended'", (peer,)
    ).fetchone() or (0,)
    return PeerUse(
        known_until=None if offered_ is None else database.now + offered_[0] - database.steady,
        open_calls=open_calls,
        today=costs_of_day(database, peer),
    )


def calls_of(database: Database, task: str) -> Sequence[Call]:
    """Return the calls of a task, in the order of their ids."""
    found = database.execute(
        f"SELECT {_COLUMNS} FROM peer_calls WHERE task = ? ORDER BY id",  # noqa: S608 - names
        (task,),
    ).fetchall()
    return [_call(row) for row in found]


def receipts_of(database: Database, task: str) -> tuple[str, ...]:
    """Return the receipts of peers about calls of a task, and of those that it has started."""
    found = database.execute(
        "SELECT receipt FROM peer_calls WHERE receipt IS NOT NULL"
        " AND (task = ? OR task IN (SELECT id FROM tasks WHERE parent = ?)) ORDER BY id",
        (task, task),
    ).fetchall()
    return tuple(row[0] for row in found)


def is_asked(database: Database, task: str) -> bool:
    """Return whether the principal of a task is asked something."""
    found = database.execute(
        "SELECT 1 FROM tasks WHERE id = ? AND state = 'input-required'", (task,)
    )
    return found.fetchone() is not None


def is_wanted(database: Database, call: Call) -> bool:
    """Return whether the task that waits for a call has not ended and is not being cancelled, and
    nobody has revoked the grant of the call to end it.
    """
    row = database.execute("SELECT state FROM tasks WHERE id = ?", (call.task,)).fetchone()
    is_open = row is not None and row[0] in ("accepted", "running", "input-required")
    return is_open and not grant_rows.is_stopped(database, call.id)
