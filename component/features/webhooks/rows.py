"""The deliveries of webhooks that were taken in lately, so that none starts work twice, and the
replies to them that are still open.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from component.kernel import started_work
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.schema import Table
from component.store.storage import Storage
from xep.jid import JID

TABLES: Final = (
    Table(
        name="deliveries",
        columns="""
            path TEXT {C} NOT NULL,
            delivery TEXT {C} NOT NULL,
            task TEXT {C} NOT NULL,
            at BIGINT NOT NULL,
            PRIMARY KEY (path, delivery)
        """,
        indexes={"deliveries_at": "(at)"},
        kept="ids of deliveries, so that none starts work twice",
    ),
    Table(
        name="webhook_replies",
        columns="""
            webhook TEXT {C} NOT NULL,
            delivery TEXT {C} NOT NULL,
            agent TEXT {C} NOT NULL,
            principal TEXT {C} NOT NULL,
            details TEXT NOT NULL,
            since BIGINT NOT NULL,
            PRIMARY KEY (webhook, delivery)
        """,
    ),
)


_MOST_DELETED: Final = 1_000
"""Old rows that one delivery deletes at most."""
_AT_ONCE: Final = 50


class DeliveryStore:
    """The deliveries in the database, each for `remember_s` seconds. Methods raise StorageError."""

    def __init__(self, storage: Storage, remember_s: float) -> None:
        self._storage = storage
        self._remember_ms = int(remember_s * 1000)

    async def find(self, path: str, key: str) -> str | None:
        """Return the id of the task that a delivery at a path has started; None if it is not
        remembered.
        """

        def op(database: Database) -> str | None:
            row = database.execute(
                "SELECT task FROM deliveries WHERE path = ? AND delivery = ? AND at > ?",
                (path, key, database.steady - self._remember_ms),
            ).fetchone()
            return None if row is None else str(row[0])

        return await self._storage.read(op)

    async def remember(self, path: str, key: str, task: str) -> None:
        """Remember a delivery and the task that it has started, and forget old ones."""

        def op(database: Database) -> None:
            too_old = database.steady - self._remember_ms
            database.execute(
                "DELETE FROM deliveries WHERE (path, delivery) IN"
                " (SELECT path, delivery FROM deliveries WHERE at <= ? LIMIT ?)",
                (too_old, _MOST_DELETED),
            )
            database.execute(
                "INSERT INTO deliveries (path, delivery, task, at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (path, delivery) DO NOTHING",
                (path, key, task, database.steady),
            )

        await self._storage.write(op)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that is sent when the work of a delivery has ended.

    Attributes:
        webhook: the name of the webhook.
        delivery: the key of the delivery.
        agent: the name of the agent that does the work.
        principal: the bare JID whose rights the work and the reply have.
        skill: the name of the skill that sends it, with `params` (a JSON object) and the result in
            the parameter `text`.
        failed: what is sent if the work fails; empty for nothing.
        of_skill: the name of the skill whose result it is; None if it is that of a goal.
    """

    webhook: str
    delivery: str
    agent: str
    principal: JID
    skill: str
    params: msgspec.Raw
    text: str
    failed: str
    of_skill: str | None = None


class OpenReply(msgspec.Struct, frozen=True):
    """A reply to a delivery whose work has ended, and the id of its task; None if it was refused.
    `waited_ms` is the time since the delivery.
    """

    reply: Reply
    task: str | None
    waited_ms: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Reply).decode


def add_reply(reply: Reply, database: Database) -> None:
    """Add a reply, in the transaction that records the work; one that is there stays."""
    database.execute(
        "INSERT INTO webhook_replies (webhook, delivery, agent, principal, details, since)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (webhook, delivery) DO NOTHING",
        (
            *(reply.webhook, reply.delivery, reply.agent, str(reply.principal)),
            *(_encode(reply).decode(), database.steady),
        ),
    )


def due_replies(database: Database) -> Sequence[OpenReply]:
    """Return replies to deliveries whose work has ended, the oldest first."""
    found = database.execute(
        "SELECT webhook_replies.details, task, since FROM webhook_replies JOIN started_work"  # noqa: S608 - a constant
        " ON source = 'webhook' AND name = webhook AND key = delivery"
        f" WHERE {started_work.HAS_ENDED} ORDER BY since, delivery LIMIT ?",
        (_AT_ONCE,),
    ).fetchall()
    return [
        OpenReply(_decode(details), task, database.steady - since) for details, task, since in found
    ]


def delete_reply(reply: Reply, database: Database) -> None:
    """Delete a reply that was sent, or is not sent."""
    database.execute(
        "DELETE FROM webhook_replies WHERE webhook = ? AND delivery = ?",
        (reply.webhook, reply.delivery),
    )


def forget(database: Database, who: Forgotten) -> None:
    """Delete the open replies of the work of an agent for a person."""
    database.execute(
        "DELETE FROM webhook_replies WHERE principal = ? AND agent = ?",
        (str(who.person), who.agent),
    )


def is_unfinished(database: Database) -> bool:
    """Return whether there are open replies."""
    return database.execute("SELECT 1 FROM webhook_replies LIMIT 1").fetchone() is not None
