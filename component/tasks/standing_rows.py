"""The tables of standing approvals, and every statement on them.

- `question_kinds` says of what kind the actions of a question are, whether an approval of it counts
  towards an offer, and which standing approval has answered it in place of a person.
- `equal_approvals` counts the approvals of a kind that a person has given one after another.
- `standing_approvals` has what a person has allowed, and how often it may still be used.

One of the uses of a standing approval is taken in the transaction that admits the action. The
statement changes no row once all are used, so instances that share the database never use more.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from component.agent_addresses import canonical_address
from component.store.database import Database, Value
from component.store.schema import Table
from component.tasks.rows import column, milliseconds, steady
from xep.binding import encode, read
from xep.fluux_agent.confirm import Confirm, without_parameters
from xep.jid import JID

_COUNTS_KEPT_MS: Final = 180 * 86_400_000
"""How long approvals are counted after the latest one of their kind."""

TABLES: Final = (
    Table(
        name="question_kinds",
        columns="""
            input TEXT NOT NULL REFERENCES inputs ON DELETE CASCADE,
            kind TEXT NOT NULL,
            basis TEXT NOT NULL,
            counts INTEGER NOT NULL,
            approval TEXT,
            PRIMARY KEY (input, kind)
        """,
        kept="part of a task",
    ),
    Table(
        name="equal_approvals",
        columns="""
            kind TEXT PRIMARY KEY,
            basis TEXT NOT NULL,
            person TEXT {C} NOT NULL,
            agent TEXT {C} NOT NULL,
            approvals INTEGER NOT NULL,
            latest BIGINT NOT NULL
        """,
        indexes={
            "equal_approvals_person": "(person, agent)",
            "equal_approvals_latest": "(latest)",
        },
    ),
    Table(
        name="standing_approvals",
        columns="""
            id TEXT PRIMARY KEY,
            kind TEXT NOT NULL UNIQUE,
            basis TEXT NOT NULL,
            person TEXT {C} NOT NULL,
            agent TEXT {C} NOT NULL,
            address TEXT {C} NOT NULL,
            question TEXT NOT NULL,
            uses BIGINT NOT NULL,
            until BIGINT NOT NULL,
            granted BIGINT NOT NULL,
            used BIGINT
        """,
        indexes={"standing_approvals_person": "(person, agent)"},
    ),
)


class Kind(msgspec.Struct, frozen=True):
    """What equal actions have in common, as two digests in hex.

    `digest` covers the agent, the person, the skill, and all parameters but the free texts; `basis`
    covers what an approval of them relies on: the description of the skill, who asks, and the rule
    for its confirmation. A denial is about the kind, on whatever basis.
    """

    digest: str
    basis: str


class StandingApproval(msgspec.Struct, frozen=True):
    """A standing approval. `uses` are left; `until` is a time of the steady clock, `granted` and
    `used` (the latest use) are milliseconds since 1970, UTC. `address` is that of the agent, from
    which the `question` came, whose answer it is; free texts are left out of its parameters.
    """

    id: str
    kind: str
    basis: str
    person: str
    agent: str
    address: str
    question: str
    uses: int
    until: int
    granted: int
    used: int | None

    @property
    def content(self) -> Confirm:
        """The question that the person has answered, with the offer."""
        return read(self.question, Confirm)


_COLUMNS: Final = ", ".join(StandingApproval.__struct_fields__)


# Questions.


def insert_kinds(
    database: Database,
    question: str,
    kinds: Sequence[Kind],
    *,
    counts: bool = False,
    approval: str | None = None,
) -> None:
    """Note of which kinds the actions of a question are, whether its approval counts, and which
    standing approval has answered it.
    """
    for kind in kinds:
        database.execute(
            "INSERT INTO question_kinds (input, kind, basis, counts, approval)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (question, kind.digest, kind.basis, int(counts), approval),
        )


def approval_of(database: Database, question: str) -> str | None:
    """Return the standing approval that has answered a question; None if a person has."""
    found = column(
        database,
        "SELECT approval FROM question_kinds WHERE input = ? AND approval IS NOT NULL",
        question,
    )
    return found[0] if found else None


def equal_approvals(database: Database, kind: Kind) -> int:
    """Return how many approvals of a kind were given one after another."""
    found = column(
        database,
        "SELECT approvals FROM equal_approvals WHERE kind = ? AND basis = ?",
        *(kind.digest, kind.basis),
    )
    return found[0] if found else 0


def count_approval(database: Database, question: str, person: JID, agent: JID) -> None:
    """Count the approval of a question, if it counts. On another basis it is the first one."""
    database.execute(
        "INSERT INTO equal_approvals (kind, basis, person, agent, approvals, latest)"
        " SELECT kind, basis, CAST(? AS TEXT), CAST(? AS TEXT), 1, CAST(? AS BIGINT)"
        " FROM question_kinds WHERE input = ? AND counts = 1"
        " ON CONFLICT (kind) DO UPDATE SET approvals = CASE"
        " WHEN equal_approvals.basis = excluded.basis THEN equal_approvals.approvals + 1 ELSE 1"
        " END, basis = excluded.basis, latest = excluded.latest",
        (str(person.bare), str(canonical_address(agent)), database.steady, question),
    )


def grant(database: Database, question: Confirm, person: JID, agent: JID) -> None:
    """Store the standing approval that a question has offered, in place of an earlier one of its
    kind.
    """
    offer = question.standing
    assert offer is not None, "the question offers a standing approval"
    fixed = without_parameters(question.action, {one.name for one in offer.free})
    stored = msgspec.structs.replace(question, action=fixed)
    until = steady(database, milliseconds(offer.until))
    others = ", ".join(
        f"{name} = excluded.{name}" for name in StandingApproval.__struct_fields__ if name != "kind"
    )
    database.execute(
        f"INSERT INTO standing_approvals ({_COLUMNS})"  # noqa: S608 - constant columns
        " SELECT CAST(? AS TEXT), kind, basis, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT),"
        " CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), NULL"
        f" FROM question_kinds WHERE input = ? ON CONFLICT (kind) DO UPDATE SET {others}",
        (
            *(question.id, str(person.bare), str(canonical_address(agent)), str(agent.bare)),
            *(encode(stored), offer.uses, until, database.now, question.id),
        ),
    )


def end_kinds(database: Database, question: str) -> list[str]:
    """End the standing approvals of the kinds of a question, and count their approvals anew; return
    the ids of those that have ended.
    """
    kinds = "kind IN (SELECT kind FROM question_kinds WHERE input = ?)"
    database.execute(f"DELETE FROM equal_approvals WHERE {kinds}", (question,))  # noqa: S608
    return column(
        database,
        f"DELETE FROM standing_approvals WHERE {kinds} RETURNING id",  # noqa: S608
        question,
    )


# Standing approvals.


def _select(database: Database, rest: str, *values: Value) -> list[StandingApproval]:
    """Return the rows that match; `rest` follows `WHERE`."""
    found = database.execute(
        f"SELECT {_COLUMNS} FROM standing_approvals WHERE {rest}",  # noqa: S608 - constant columns
        values,
    ).fetchall()
    return [StandingApproval(*row) for row in found]


def of_kind(database: Database, kind: Kind) -> StandingApproval | None:
    """Return the standing approval of a kind, whether it can still be used or not."""
    return next(iter(_select(database, "kind = ?", kind.digest)), None)


def use(database: Database, approval: str) -> int | None:
    """Take one of the uses of a standing approval, and return how many are left; None if there was
    none any more.
    """
    left = column(
        database,
        "UPDATE standing_approvals SET uses = uses - 1, used = ?"
        " WHERE id = ? AND uses > 0 AND until > ? RETURNING uses",
        *(database.now, approval, database.steady),
    )
    return left[0] if left else None


def listed(database: Database, person: JID | None, agent: JID | None) -> list[StandingApproval]:
    """Return the standing approvals that can still be used, the latest first: those of a person for
    an agent, or all.
    """
    rest = "until > ? AND uses > 0"
    values: list[Value] = [database.steady]
    if person is not None:
        rest, values = f"{rest} AND person = ?", [*values, str(person.bare)]
    if agent is not None:
        rest, values = f"{rest} AND agent = ?", [*values, str(canonical_address(agent))]
    return _select(database, f"{rest} ORDER BY granted DESC, id", *values)


def revoke(database: Database, approval: str) -> bool:
    """Delete a standing approval, and count the approvals of its kind anew; return False if it does
    not exist.
    """
    kinds = column(database, "DELETE FROM standing_approvals WHERE id = ? RETURNING kind", approval)
    for kind in kinds:
        database.execute("DELETE FROM equal_approvals WHERE kind = ?", (kind,))
    return bool(kinds)


def forget_person(database: Database, person: JID, agent: JID) -> None:
    """Delete what a person has approved."""
    for table in ("equal_approvals", "standing_approvals"):
        database.execute(
            f"DELETE FROM {table} WHERE person = ? AND agent = ?",  # noqa: S608 - constant names
            (str(person), str(canonical_address(agent))),
        )


def forget_old(database: Database) -> None:
    """Delete what cannot be used any more."""
    database.execute("DELETE FROM standing_approvals WHERE until <= ?", (database.steady,))
    database.execute(
        "DELETE FROM equal_approvals WHERE latest < ?", (database.steady - _COUNTS_KEPT_MS,)
    )
