"""The tables of the PubSub service (XEP-0060), and every statement on them.

Functions of one transaction; a service is one of our bare addresses, as text.

`sequence` is the number of the last change of a node or an item. It determines the order of items,
and a subscriber is notified of the changes after the number `since`. A node that is computed from
other tables has only subscriptions here; `seen` records which items its subscriber was notified of.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from component.pubsub.config import NodeConfig
from component.store.database import Database, Value
from component.store.schema import Table
from xep.pubsub import AffiliationName

TABLES: Final = (
    Table(
        name="pubsub_nodes",
        columns="""
            service TEXT {C} NOT NULL,
            node TEXT {C} NOT NULL,
            config TEXT NOT NULL,
            creator TEXT {C} NOT NULL,
            created BIGINT NOT NULL,
            sequence BIGINT NOT NULL,
            PRIMARY KEY (service, node)
        """,
        kept="the node of memories is kept, empty",
    ),
    Table(
        name="pubsub_items",
        columns="""
            service TEXT {C} NOT NULL,
            node TEXT {C} NOT NULL,
            id TEXT {C} NOT NULL,
            sequence BIGINT NOT NULL,
            publisher TEXT {C} NOT NULL,
            published BIGINT NOT NULL,
            expires BIGINT,
            payload TEXT NOT NULL,
            bytes BIGINT NOT NULL DEFAULT 0,
            PRIMARY KEY (service, node, id)
        """,
        indexes={
            "pubsub_items_order": "(service, node, sequence)",
            "pubsub_items_expires": "(expires) WHERE expires IS NOT NULL",
            "pubsub_items_bytes": "(service, node, bytes)",
        },
        has_rowid=True,
        kept="memories are deleted by the memory, other items by their publisher",
    ),
    Table(
        name="pubsub_subscriptions",
        columns="""
            service TEXT {C} NOT NULL,
            node TEXT {C} NOT NULL,
            jid TEXT {C} NOT NULL,
            principal TEXT {C} NOT NULL,
            subid TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('pending', 'subscribed')),
            deliver INTEGER NOT NULL,
            expires BIGINT,
            since BIGINT NOT NULL,
            seen TEXT,
            PRIMARY KEY (service, node, jid)
        """,
        indexes={"pubsub_subscriptions_principal": "(principal, service)"},
        kept="the person ends a subscription by unsubscribing",
    ),
    Table(
        name="pubsub_affiliations",
        columns="""
            service TEXT {C} NOT NULL,
            node TEXT {C} NOT NULL,
            jid TEXT {C} NOT NULL,
            affiliation TEXT NOT NULL CHECK
                (affiliation IN ('member', 'outcast', 'owner', 'publisher', 'publish-only')),
            PRIMARY KEY (service, node, jid)
        """,
        indexes={"pubsub_affiliations_jid": "(jid, service)"},
        kept="the node of memories is kept, empty",
    ),
    Table(
        name="pubsub_retractions",
        columns="""
            service TEXT {C} NOT NULL,
            node TEXT {C} NOT NULL,
            id TEXT {C} NOT NULL,
            at BIGINT NOT NULL,
            PRIMARY KEY (service, node, id)
        """,
        kept="deleted when the agent has deleted the memories as well",
    ),
)

State = Literal["pending", "subscribed"]
PAGE: Final = 1_000
"""The number of subscriptions that are read at a time."""


class Node(msgspec.Struct, frozen=True):
    """A node of a service. `creator` is the bare address that created it."""

    service: str
    name: str
    config: NodeConfig
    creator: str
    created: datetime


class StoredItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a node. `payload` is an element as XML text that declares its namespaces; empty if
    it has none.
    """

    id: str
    payload: str
    publisher: str
    published: datetime


class NodeSubscription(msgspec.Struct, frozen=True):
    """A subscription to a node.

    Attributes:
        jid: the address that is notified, bare or full.
        expires: when it ends, in milliseconds since 1970; None if it does not.
        since: the number of the last change of the node before the subscription.
    """

    node: str
    jid: str
    subid: str
    state: State
    deliver: bool = True
    expires: int | None = None
    since: int = 0


_decode_config = msgspec.json.Decoder(NodeConfig).decode
_NODE = "service, node, config, creator, created"
_ITEM = "id, payload, publisher, published"
_SUBSCRIPTION = "node, jid, subid, state, deliver, expires, since"


def at(milliseconds: int) -> datetime:
    """A time of the database."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


# -- nodes ---------------------------------------------------------------------------------------


def node(database: Database, service: str, name: str, *, lock: bool = False) -> Node | None:
    """The node of that name. `lock` has other instances wait that want to change it, too."""
    locking = " FOR UPDATE" if lock and database.dialect == "postgresql" else ""
    row = database.execute(
        f"SELECT {_NODE} FROM pubsub_nodes WHERE service = ? AND node = ?{locking}",  # noqa: S608 - constants
        (service, name),
    ).fetchone()
    return None if row is None else _node(*row)


def nodes(database: Database, service: str) -> list[Node]:
    """All nodes of a service, sorted by name."""
    rows = database.execute(
        f"SELECT {_NODE} FROM pubsub_nodes WHERE service = ? ORDER BY node",  # noqa: S608 - constants
        (service,),
    )
    return [_node(*row) for row in rows.fetchall()]


def _node(service: str, name: str, config: str, creator: str, created: int) -> Node:
    return Node(service, name, _decode_config(config), creator, at(created))


def count_nodes(database: Database, creator: str) -> int:
    """How many nodes somebody has created."""
    return _count(database, "SELECT count(*) FROM pubsub_nodes WHERE creator = ?", (creator,))


def add_node(database: Database, service: str, name: str, config: NodeConfig, creator: str) -> bool:
    """Create a node; False if there is one of that name."""
    done = database.execute(
        "INSERT INTO pubsub_nodes (service, node, config, creator, created, sequence)"
        " VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT (service, node) DO NOTHING",
        (service, name, _encode(config), creator, database.now),
    )
    return done.rowcount == 1


def set_config(database: Database, service: str, name: str, config: NodeConfig) -> None:
    """Configure a node."""
    database.execute(
        "UPDATE pubsub_nodes SET config = ? WHERE service = ? AND node = ?",
        (_encode(config), service, name),
    )


def count_change(database: Database, service: str, name: str) -> int:
    """Count a change of a node; the number of the change. 0 if there is no such node."""
    database.execute(
        "UPDATE pubsub_nodes SET sequence = sequence + 1 WHERE service = ? AND node = ?",
        (service, name),
    )
    return last_change(database, service, name)


def last_change(database: Database, service: str, name: str) -> int:
    """The number of the last change of a node; 0 if there was none."""
    return age(database, service, name)[1]


def age(database: Database, service: str, name: str) -> tuple[int, int]:
    """When a node was created, in milliseconds since 1970, and the number of its last change."""
    row = database.execute(
        "SELECT created, sequence FROM pubsub_nodes WHERE service = ? AND node = ?", (service, name)
    ).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def remove_node(database: Database, service: str, name: str) -> None:
    """Delete a node with everything that belongs to it."""
    for table in ("items", "subscriptions", "affiliations", "nodes"):
        _delete(database, table, service, name)


def _delete(database: Database, table: str, service: str, name: str, **values: str) -> None:
    more = "".join(f" AND {column} = ?" for column in values)
    database.execute(
        f"DELETE FROM pubsub_{table} WHERE service = ? AND node = ?{more}",  # noqa: S608 - constants
        (service, name, *values.values()),
    )


def _encode(config: NodeConfig) -> str:
    return msgspec.json.encode(config).decode()


def _count(database: Database, query: str, values: Sequence[Value]) -> int:
    row = database.execute(query, values).fetchone()
    return 0 if row is None else int(row[0])


# -- items ---------------------------------------------------------------------------------------

_LIVE = "service = ? AND node = ? AND (expires IS NULL OR expires > ?)"


def put_item(
    database: Database, service: str, name: str, item: StoredItem, expires: int | None
) -> None:
    """Store an item as the newest of its node, in the place of one with the same id. Its place is
    the number of the change: `count_change` comes before each item.
    """
    database.execute(
        "INSERT INTO pubsub_items"
        " (service, node, id, sequence, publisher, published, expires, payload, bytes)"
        " SELECT service, node, ?, sequence, ?, ?, ?, ?, ? FROM pubsub_nodes"
        " WHERE service = ? AND node = ?"
        " ON CONFLICT (service, node, id) DO UPDATE SET sequence = excluded.sequence,"
        " publisher = excluded.publisher, published = excluded.published,"
        " expires = excluded.expires, payload = excluded.payload, bytes = excluded.bytes",
        (
            item.id,
            item.publisher,
            round(item.published.timestamp() * 1000),
            expires,
            item.payload,
            len(item.payload.encode()),
            service,
            name,
        ),
    )


def remove_items(database: Database, service: str, name: str, ids: Sequence[str]) -> None:
    """Delete items."""
    for each in ids:
        _delete(database, "items", service, name, id=each)


def purge(database: Database, service: str, name: str) -> None:
    """Delete all items of a node."""
    _delete(database, "items", service, name)


def held(database: Database, service: str, name: str) -> tuple[int, int]:
    """How many items a node has, and their size in bytes."""
    row = database.execute(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM pubsub_items WHERE service = ? AND node = ?",
        (service, name),
    ).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def trim(database: Database, service: str, name: str, most: int, most_bytes: int) -> None:
    """Delete the oldest items beyond `most` and `most_bytes`."""
    database.execute(
        "DELETE FROM pubsub_items WHERE service = ? AND node = ? AND sequence <="
        " (SELECT sequence FROM pubsub_items WHERE service = ? AND node = ?"
        " ORDER BY sequence DESC LIMIT 1 OFFSET ?)",
        (service, name, service, name, most),
    )
    if held(database, service, name)[1] > most_bytes:
        database.execute(
            "DELETE FROM pubsub_items WHERE service = ? AND node = ? AND sequence <="
            " (SELECT max(sequence) FROM (SELECT sequence, sum(bytes) OVER"
            " (ORDER BY sequence DESC) AS total FROM pubsub_items"
            " WHERE service = ? AND node = ?) AS sums WHERE total > ?)",
            (service, name, service, name, most_bytes),
        )


def delete_expired_of(database: Database, service: str, name: str) -> None:
    """Delete the items of a node that have expired."""
    database.execute(
        "DELETE FROM pubsub_items WHERE service = ? AND node = ? AND expires <= ?",
        (service, name, database.steady),
    )


def delete_expired(database: Database) -> int:
    """Delete all items and subscriptions that have expired; how many items."""
    done = database.execute("DELETE FROM pubsub_items WHERE expires <= ?", (database.steady,))
    database.execute("DELETE FROM pubsub_subscriptions WHERE expires <= ?", (database.now,))
    return done.rowcount


def item(database: Database, service: str, name: str, id_: str) -> StoredItem | None:
    """The item of that id."""
    row = database.execute(
        f"SELECT {_ITEM} FROM pubsub_items WHERE {_LIVE} AND id = ?",  # noqa: S608 - constants
        (service, name, database.steady, id_),
    ).fetchone()
    return None if row is None else _item(*row)


def newest(database: Database, service: str, name: str, most: int) -> list[StoredItem]:
    """The newest items, the oldest of them first."""
    rows = database.execute(
        f"SELECT {_ITEM} FROM pubsub_items WHERE {_LIVE} ORDER BY sequence DESC LIMIT ?",  # noqa: S608 - constants
        (service, name, database.steady, most),
    )
    return [_item(*row) for row in reversed(rows.fetchall())]


def item_keys(database: Database, service: str, name: str) -> list[tuple[str, int]]:
    """The ids of all items with the sizes of their payloads in bytes, the oldest first."""
    rows = database.execute(
        f"SELECT id, bytes FROM pubsub_items WHERE {_LIVE} ORDER BY sequence",  # noqa: S608 - constants
        (service, name, database.steady),
    )
    return [(str(id_), int(length)) for id_, length in rows.fetchall()]


def _item(id_: str, payload: str, publisher: str, published: int) -> StoredItem:
    return StoredItem(id=id_, payload=payload, publisher=publisher, published=at(published))


# -- retractions ---------------------------------------------------------------------------------


def note_retractions(database: Database, service: str, name: str, ids: Sequence[str]) -> None:
    """Note that items were deleted by somebody else than the service."""
    for each in ids:
        database.execute(
            "INSERT INTO pubsub_retractions (service, node, id, at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (service, node, id) DO UPDATE SET at = excluded.at",
            (service, name, each, database.now),
        )


def forget_retractions(database: Database, service: str, name: str, ids: Sequence[str]) -> None:
    """Forget what `note_retractions` noted of these items."""
    for each in ids:
        _delete(database, "retractions", service, name, id=each)


def retractions(database: Database, service: str, name: str) -> dict[str, int]:
    """The noted retractions of a node: when each item was deleted, in milliseconds since 1970."""
    rows = database.execute(
        "SELECT id, at FROM pubsub_retractions WHERE service = ? AND node = ?", (service, name)
    )
    return {str(id_): int(at_) for id_, at_ in rows.fetchall()}


# -- subscriptions -------------------------------------------------------------------------------


def subscription(database: Database, service: str, name: str, jid: str) -> NodeSubscription | None:
    """The subscription of an address to a node; None also if it has expired."""
    found = _select(database, "service = ? AND node = ? AND jid = ?", (service, name, jid))
    return next(iter(found), None)


def subscriptions_of(
    database: Database, service: str, principal: str, name: str | None = None
) -> list[NodeSubscription]:
    """The subscriptions of a principal, at one node or at all, whatever their resource."""
    where, values = "principal = ? AND service = ?", [principal, service]
    if name is not None:
        where, values = f"{where} AND node = ?", [*values, name]
    return _select(database, where, values, "ORDER BY node, jid")


def subscriptions_to(
    database: Database, service: str, name: str, state: State
) -> Iterator[NodeSubscription]:
    """The subscriptions to a node, sorted by address; they are read a page at a time."""
    after = ""
    while page := subscriptions_after(database, service, name, state, after):
        yield from page
        after = page[-1].jid


def subscriptions_after(
    database: Database, service: str, name: str, state: State, after: str
) -> list[NodeSubscription]:
    """A page of the subscriptions to a node: those after an address."""
    where = "service = ? AND node = ? AND state = ? AND jid > ?"
    return _select(database, where, (service, name, state, after), f"ORDER BY jid LIMIT {PAGE}")


def _select(
    database: Database, where: str, values: Sequence[str], rest: str = ""
) -> list[NodeSubscription]:
    """Return subscriptions that have not expired."""
    found = database.execute(
        f"SELECT {_SUBSCRIPTION} FROM pubsub_subscriptions WHERE {where}"  # noqa: S608 - constants
        f" AND (expires IS NULL OR expires > ?) {rest}",
        (*values, database.now),
    )
    return [
        NodeSubscription(name, jid, subid, state, bool(deliver), *rest)
        for name, jid, subid, state, deliver, *rest in found.fetchall()
    ]


def count_subscribers(database: Database, service: str, name: str) -> int:
    """How many addresses are subscribed to a node."""
    return _count(
        database,
        "SELECT count(*) FROM pubsub_subscriptions WHERE service = ? AND node = ?"
        " AND state = 'subscribed' AND (expires IS NULL OR expires > ?)",
        (service, name, database.now),
    )


def put_subscription(
    database: Database, service: str, principal: str, made: NodeSubscription
) -> None:
    """Store a subscription, in the place of another one of the same address."""
    values: list[Value] = [service, made.node, made.jid, principal, made.subid, made.state]
    database.execute(
        "INSERT INTO pubsub_subscriptions"
        " (service, node, jid, principal, subid, state, deliver, expires, since)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (service, node, jid) DO UPDATE SET"
        " subid = excluded.subid, state = excluded.state, deliver = excluded.deliver,"
        " expires = excluded.expires, since = excluded.since",
        (*values, int(made.deliver), made.expires, made.since),
    )


def remove_subscription(database: Database, service: str, name: str, jid: str) -> None:
    """End a subscription."""
    _delete(database, "subscriptions", service, name, jid=jid)


def remove_subscriptions_of(database: Database, service: str, name: str, principal: str) -> None:
    """End all subscriptions of a principal to a node."""
    _delete(database, "subscriptions", service, name, principal=principal)


def views(
    database: Database, service: str, name: str, after: str, limit: int
) -> list[tuple[str, str, str | None]]:
    """Return a page of the subscribers of a computed node: address, principal, known items."""
    found = database.execute(
        "SELECT jid, principal, seen FROM pubsub_subscriptions"
        " WHERE service = ? AND node = ? AND jid > ? AND state = 'subscribed'"
        " AND (expires IS NULL OR expires > ?) ORDER BY jid LIMIT ?",
        (service, name, after, database.now, limit),
    )
    return [(row[0], row[1], row[2]) for row in found.fetchall()]


def set_view(database: Database, service: str, name: str, jid: str, seen: str) -> None:
    """Store the items that a subscriber of a computed node knows."""
    database.execute(
        "UPDATE pubsub_subscriptions SET seen = ? WHERE service = ? AND node = ? AND jid = ?",
        (seen, service, name, jid),
    )


# -- affiliations --------------------------------------------------------------------------------


def affiliation(database: Database, service: str, name: str, principal: str) -> AffiliationName:
    """The affiliation of a principal with a node."""
    row = database.execute(
        "SELECT affiliation FROM pubsub_affiliations WHERE service = ? AND node = ? AND jid = ?",
        (service, name, principal),
    ).fetchone()
    return "none" if row is None else row[0]


def affiliations_with(
    database: Database, service: str, name: str
) -> list[tuple[str, AffiliationName]]:
    """Everybody's affiliation with a node, sorted by address."""
    rows = database.execute(
        "SELECT jid, affiliation FROM pubsub_affiliations WHERE service = ? AND node = ?"
        " ORDER BY jid",
        (service, name),
    )
    return [(row[0], row[1]) for row in rows.fetchall()]


def affiliations_of(
    database: Database, service: str, principal: str
) -> list[tuple[str, AffiliationName]]:
    """The affiliations of a principal with the nodes of a service, sorted by node."""
    rows = database.execute(
        "SELECT node, affiliation FROM pubsub_affiliations WHERE service = ? AND jid = ?"
        " ORDER BY node",
        (service, principal),
    )
    return [(row[0], row[1]) for row in rows.fetchall()]


def count_affiliations(database: Database, service: str, name: str) -> int:
    """How many entities have an affiliation with a node."""
    return _count(
        database,
        "SELECT count(*) FROM pubsub_affiliations WHERE service = ? AND node = ?",
        (service, name),
    )


def set_affiliation(
    database: Database, service: str, name: str, principal: str, made: AffiliationName
) -> None:
    """Change the affiliation of a principal with a node."""
    if made == "none":
        _delete(database, "affiliations", service, name, jid=principal)
        return
    database.execute(
        "INSERT INTO pubsub_affiliations (service, node, jid, affiliation) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (service, node, jid) DO UPDATE SET affiliation = excluded.affiliation",
        (service, name, principal, made),
    )


def sees_presence(database: Database, service: str, principal: str) -> bool:
    """Whether a principal is subscribed to the presence of the address (RFC 6121 §3)."""
    row = database.execute(
        "SELECT 1 FROM subscriptions WHERE owner = ? AND contact = ? AND state IN ('from', 'both')",
        (service, principal),
    ).fetchone()
    return row is not None
