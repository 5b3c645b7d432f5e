"""The votes on a question that several persons decide, and when they decide it.

A vote is a row: who has approved, and the digest of what exactly. The transaction that stores the
last approval that is needed also decides the question. The first denial decides it at once, as
for a question that one person decides. Until then a vote can be given, repeated and withdrawn; each
account has one, however it votes.
"""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from component.store.database import Database
from component.store.schema import Table
from xep.fluux_agent.confirm import Approvals
from xep.jid import JID

Value: TypeAlias = Literal["approve", "deny"]

VOTES: Final = Table(
    name="votes",
    columns="""
        input TEXT NOT NULL REFERENCES inputs ON DELETE CASCADE,
        jid TEXT {C} NOT NULL,
        value TEXT NOT NULL CHECK (value IN ('approve', 'deny')),
        digest TEXT NOT NULL,
        at BIGINT NOT NULL,
        by_reaction INTEGER NOT NULL,
        PRIMARY KEY (input, jid)
    """,
    kept="part of a task",
)


class Vote(msgspec.Struct, frozen=True):
    """The vote of a bare JID on a question, bound to the digest of its action, in hex.

    `by_reaction` says that it was a reaction, so that it ends with the reaction.
    """

    jid: JID
    value: Value
    digest: str
    by_reaction: bool = False


def outcome(votes: Sequence[Vote], approvals: Approvals | None, digest: str) -> Value | None:
    """Return what the votes on an action with this digest decide; None as long as they decide
    nothing.
    """
    if any(vote.value == "deny" for vote in votes):
        return "deny"
    needed = 1 if approvals is None else approvals.need
    return "approve" if given(votes, digest) >= needed else None


def given(votes: Sequence[Vote], digest: str) -> int:
    """Return how many persons have approved an action with this digest."""
    return len({vote.jid for vote in votes if (vote.value, vote.digest) == ("approve", digest)})


def votes_on(database: Database, question: str) -> list[Vote]:
    """Return the votes on a question, the oldest first."""
    found = database.execute(
        "SELECT jid, value, digest, by_reaction FROM votes WHERE input = ? ORDER BY at, jid",
        (question,),
    ).fetchall()
    return [Vote(JID.parse(jid), value, digest, bool(by)) for jid, value, digest, by in found]


def store(database: Database, question: str, vote: Vote) -> bool:
    """Store a vote in place of that which the person has given before. Return False if it is the
    same.
    """
    if vote in votes_on(database, question):
        return False
    database.execute(
        "INSERT INTO votes (input, jid, value, digest, at, by_reaction) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (input, jid) DO UPDATE SET value = excluded.value, digest = excluded.digest,"
        " at = excluded.at, by_reaction = excluded.by_reaction",
        (
            *(question, str(vote.jid), vote.value, vote.digest, database.now),
            int(vote.by_reaction),
        ),
    )
    return True


def withdraw(database: Database, question: str, jid: JID) -> bool:
    """Delete the vote that a bare JID has given by a reaction. Return False if there is none."""
    return bool(
        database.execute(
            "DELETE FROM votes WHERE input = ? AND jid = ? AND by_reaction = 1",
            (question, str(jid)),
        ).rowcount
    )
