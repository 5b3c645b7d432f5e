"""The tables of the PubSub service (XEP-0060), and every statement on them.

All of this is for one transaction; a service is one of our bare addresses, as text.

`sequence` is the number of the last change of a node or an item. It determines the order of items,
and a subscriber is notified of the changes after the number `since`. A node that is computed from
other tables has only subscriptions here; `seen` records which items its subscriber was notified of.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

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
    """A subscription to a node. `jid` is the address that is notified, bare or full. It ends at
    `expires`, in milliseconds since 1970; None if it does not. `since` is the number of the last
    change of the node before it.
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


def delete_expired_items(database: Database) -> int:
    """Delete all items and subscriptions that have expired; how many items."""
    done = database.execute("DELETE FROM pubsub_items WHERE expires <= ?", (database.steady,))
    database.execute("DELETE FROM pubsub_subscriptions WHERE expires <= ?", (database.now,))
    return done.rowcount


def subscriptions_of(
    database: Database, service: str, principal: str, name: str | None = None
) -> list[NodeSubscription]:
    """The subscriptions of a principal, at one node or at all, whatever their resource."""
    where, values = "principal = ? AND service = ?", [principal, service]
    if name is not None:
        where, values = f"{where} AND node = ?", [*values, name]
    return _subscriptions(database, where, values, "ORDER BY node, jid")


def subscriptions_to_view(
    database: Database, services: Sequence[str], node: str, principal: str
) -> list[tuple[str, NodeSubscription]]:
    """The subscriptions of a principal to a node that several services have, each with its
    service.
    """
    where = f"principal = ? AND node = ? AND service IN ({', '.join('?' * len(services))})"
    query = (
        f"SELECT service, {_SUBSCRIPTION} FROM pubsub_subscriptions WHERE {where}"  # noqa: S608 - constants
        " AND (expires IS NULL OR expires > ?) ORDER BY service, jid"
    )
    found = database.execute(query, (principal, node, *services, database.now)).fetchall()
    return [(service, _subscription(*row)) for service, *row in found]


def subscribers(database: Database, services: Sequence[str], node: str) -> list[str]:
    """The principals that are subscribed to a node of one of these two services."""
    rows = database.execute(
        "SELECT DISTINCT principal FROM pubsub_subscriptions WHERE service IN (?, ?) AND node = ?"
        " AND state = 'subscribed' ORDER BY principal",
        (*services, node),
    )
    return [str(row[0]) for row in rows.fetchall()]


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


def sees_presence(database: Database, service: str, principal: str) -> bool:
    """Whether a principal is subscribed to the presence of the address (RFC 6121 §3)."""
    row = database.execute(
        "SELECT 1 FROM subscriptions WHERE owner = ? AND contact = ? AND state IN ('from', 'both')",
        (service, principal),
    ).fetchone()
    return row is not None


def _count(database: Database, query: str, values: Sequence[Value]) -> int:
    row = database.execute(query, values).fetchone()
    return 0 if row is None else int(row[0])


def _encode(config: NodeConfig) -> str:
    return msgspec.json.encode(config).decode()


def _subscriptions(
    database: Database, where: str, values: Sequence[str], rest: str = ""
) -> list[NodeSubscription]:
    found = database.execute(
        f"SELECT {_SUBSCRIPTION} FROM pubsub_subscriptions WHERE {where}"  # noqa: S608 - constants
        f" AND (expires IS NULL OR expires > ?) {rest}",
        (*values, database.now),
    )
    return [_subscription(*row) for row in found.fetchall()]


def _subscription(  # the columns of _SUBSCRIPTION
    node: str, jid: str, subid: str, state: State, deliver: int, *rest: int
) -> NodeSubscription:
    return NodeSubscription(node, jid, subid, state, bool(deliver), *rest)


_HERE = "service = ? AND node = ?"
_LIVE = f"{_HERE} AND (expires IS NULL OR expires > ?)"


class NodeRows:
    """The rows of one node, whether or not it exists, in one transaction."""

    def __init__(self, database: Database, service: str, name: str) -> None:
        self.database = database
        self.service = service
        self.name = name
        self._key = (service, name)

    def _all(self, query: str, *values: Value) -> list[tuple[Any, ...]]:
        """Return the rows of a query that begins with the node."""
        return self.database.execute(query, (*self._key, *values)).fetchall()

    def load(self, *, lock: bool = False) -> Node | None:
        """The node itself. `lock` has other instances wait that want to change it, too."""
        locking = " FOR UPDATE" if lock and self.database.dialect == "postgresql" else ""
        query = f"SELECT {_NODE} FROM pubsub_nodes WHERE {_HERE}{locking}"  # noqa: S608 - constants
        row = self.database.execute(query, self._key).fetchone()
        return None if row is None else _node(*row)

    def add(self, config: NodeConfig, creator: str) -> bool:
        """Create the node; False if there is one of that name."""
        done = self.database.execute(
            "INSERT INTO pubsub_nodes (service, node, config, creator, created, sequence)"
            " VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT (service, node) DO NOTHING",
            (*self._key, _encode(config), creator, self.database.now),
        )
        return done.rowcount == 1

    def configure(self, config: NodeConfig) -> None:
        """Configure the node."""
        self.database.execute(
            f"UPDATE pubsub_nodes SET config = ? WHERE {_HERE}",  # noqa: S608 - constants
            (_encode(config), *self._key),
        )

    def count_change(self) -> int:
        """Count a change of the node; the number of the change. 0 if there is no such node."""
        self.database.execute(
            f"UPDATE pubsub_nodes SET sequence = sequence + 1 WHERE {_HERE}",  # noqa: S608 - constants
            self._key,
        )
        return self.last_change()

    def last_change(self) -> int:
        """The number of the last change of the node; 0 if there was none."""
        return self.age()[1]

    def age(self) -> tuple[int, int]:
        """When the node was created, in milliseconds since 1970, and the number of its last
        change.
        """
        found = self._all(f"SELECT created, sequence FROM pubsub_nodes WHERE {_HERE}")  # noqa: S608 - constants
        return (int(found[0][0]), int(found[0][1])) if found else (0, 0)

    def remove(self) -> None:
        """Delete the node with everything that belongs to it."""
        for table in ("items", "subscriptions", "affiliations", "nodes"):
            self._delete(table)

    def _delete(self, table: str, **values: str) -> None:
        more = "".join(f" AND {column} = ?" for column in values)
        self.database.execute(
            f"DELETE FROM pubsub_{table} WHERE {_HERE}{more}",  # noqa: S608 - constants
            (*self._key, *values.values()),
        )

    # -- items -----------------------------------------------------------------------------------

    def put_item(self, item: StoredItem, expires: int | None) -> None:
        """Store an item as the newest of the node, in the place of one with the same id. Its place
        is the number of the change: `count_change` comes before each item.
        """
        self.database.execute(
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
                *self._key,
            ),
        )

    def remove_items(self, ids: Sequence[str]) -> None:
        """Delete items."""
        for each in ids:
            self._delete("items", id=each)

    def purge(self) -> None:
        """Delete all items."""
        self._delete("items")

    def held(self) -> tuple[int, int]:
        """How many items the node has, and their size in bytes."""
        ((number, size),) = self._all(
            f"SELECT count(*), coalesce(sum(bytes), 0) FROM pubsub_items WHERE {_HERE}"  # noqa: S608 - constants
        )
        return int(number), int(size)

    def trim(self, most: int, most_bytes: int) -> None:
        """Delete the oldest items beyond `most` and `most_bytes`."""
        self.database.execute(
            "DELETE FROM pubsub_items WHERE service = ? AND node = ? AND sequence <="
            " (SELECT sequence FROM pubsub_items WHERE service = ? AND node = ?"
            " ORDER BY sequence DESC LIMIT 1 OFFSET ?)",
            (*self._key, *self._key, most),
        )
        if self.held()[1] > most_bytes:
            self.database.execute(
                "DELETE FROM pubsub_items WHERE service = ? AND node = ? AND sequence <="
                " (SELECT max(sequence) FROM (SELECT sequence, sum(bytes) OVER"
                " (ORDER BY sequence DESC) AS total FROM pubsub_items"
                " WHERE service = ? AND node = ?) AS sums WHERE total > ?)",
                (*self._key, *self._key, most_bytes),
            )

    def delete_expired(self) -> None:
        """Delete the items that have expired."""
        self.database.execute(
            f"DELETE FROM pubsub_items WHERE {_HERE} AND expires <= ?",  # noqa: S608 - constants
            (*self._key, self.database.steady),
        )

    def item(self, id_: str) -> StoredItem | None:
        """The item of that id."""
        query = f"SELECT {_ITEM} FROM pubsub_items WHERE {_LIVE} AND id = ?"  # noqa: S608 - constants
        found = self._all(query, self.database.steady, id_)
        return _item(*found[0]) if found else None

    def items(self, ids: Iterable[str]) -> list[StoredItem]:
        """The items with these ids, as far as they are there."""
        return [found for each in ids if (found := self.item(each)) is not None]

    def newest(self, most: int) -> list[StoredItem]:
        """The newest items, the oldest of them first."""
        query = f"SELECT {_ITEM} FROM pubsub_items WHERE {_LIVE} ORDER BY sequence DESC LIMIT ?"  # noqa: S608 - constants
        return [_item(*row) for row in reversed(self._all(query, self.database.steady, most))]

    def item_keys(self) -> list[tuple[str, int]]:
        """The ids of all items with the sizes of their payloads in bytes, the oldest first."""
        query = f"SELECT id, bytes FROM pubsub_items WHERE {_LIVE} ORDER BY sequence"  # noqa: S608 - constants
        return [(str(id_), int(size)) for id_, size in self._all(query, self.database.steady)]

    # -- retractions -----------------------------------------------------------------------------

    def note_retractions(self, ids: Sequence[str]) -> None:
        """Note that items were deleted by somebody else than the service."""
        for each in ids:
            self.database.execute(
                "INSERT INTO pubsub_retractions (service, node, id, at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (service, node, id) DO UPDATE SET at = excluded.at",
                (*self._key, each, self.database.now),
            )

    def forget_retractions(self, ids: Sequence[str]) -> None:
        """Forget what `note_retractions` noted of these items."""
        for each in ids:
            self._delete("retractions", id=each)

    def retractions(self) -> dict[str, int]:
        """The noted retractions: when each item was deleted, in milliseconds since 1970."""
        found = self._all(f"SELECT id, at FROM pubsub_retractions WHERE {_HERE}")  # noqa: S608 - constants
        return {str(id_): int(at_) for id_, at_ in found}

    # -- subscriptions ---------------------------------------------------------------------------

    def subscription(self, jid: str) -> NodeSubscription | None:
        """The subscription of an address; None also if it has expired."""
        found = _subscriptions(self.database, f"{_HERE} AND jid = ?", (*self._key, jid))
        return next(iter(found), None)

    def subscriptions_of(self, principal: str) -> list[NodeSubscription]:
        """The subscriptions of a principal, whatever their resource."""
        return subscriptions_of(self.database, self.service, principal, self.name)

    def subscriptions(self, *states: State) -> Iterator[NodeSubscription]:
        """The subscriptions in each state, sorted by address; they are read a page at a time."""
        for state in states:
            after = ""
            while page := self.subscriptions_after(state, after):
                yield from page
                after = page[-1].jid

    def subscriptions_after(self, state: State, after: str) -> list[NodeSubscription]:
        """A page of the subscriptions: those after an address."""
        where, rest = f"{_HERE} AND state = ? AND jid > ?", f"ORDER BY jid LIMIT {PAGE}"
        return _subscriptions(self.database, where, (*self._key, state, after), rest)

    def count_subscribers(self) -> int:
        """How many addresses are subscribed."""
        query = f"SELECT count(*) FROM pubsub_subscriptions WHERE {_LIVE} AND state = 'subscribed'"  # noqa: S608 - constants
        return _count(self.database, query, (*self._key, self.database.now))

    def put_subscription(self, principal: str, made: NodeSubscription) -> None:
        """Store a subscription, in the place of another one of the same address."""
        values: list[Value] = [*self._key, made.jid, principal, made.subid, made.state]
        self.database.execute(
            "INSERT INTO pubsub_subscriptions"
            " (service, node, jid, principal, subid, state, deliver, expires, since)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (service, node, jid) DO UPDATE SET"
            " subid = excluded.subid, state = excluded.state, deliver = excluded.deliver,"
            " expires = excluded.expires, since = excluded.since",
            (*values, int(made.deliver), made.expires, made.since),
        )

    def remove_subscription(self, jid: str) -> None:
        """End a subscription."""
        self._delete("subscriptions", jid=jid)

    def remove_subscriptions_of(self, principal: str) -> None:
        """End all subscriptions of a principal."""
        self._delete("subscriptions", principal=principal)

    def views(
        self, after: str, limit: int, principal: str | None = None
    ) -> list[tuple[str, str, str | None]]:
        """Return a page of the subscribers of a computed node: address, principal, known items;
        only those of a principal, if it is given.
        """
        whose, values = ("", ()) if principal is None else (" AND principal = ?", (principal,))
        found = self._all(
            f"SELECT jid, principal, seen FROM pubsub_subscriptions WHERE {_LIVE}"  # noqa: S608 - constants
            f" AND jid > ? AND state = 'subscribed'{whose} ORDER BY jid LIMIT ?",
            self.database.now,
            after,
            *values,
            limit,
        )
        return [(row[0], row[1], row[2]) for row in found]

    def principals(self) -> set[str]:
        """Return the principals that subscribe to a computed node."""
        found = self._all(
            f"SELECT DISTINCT principal FROM pubsub_subscriptions WHERE {_LIVE}",  # noqa: S608 - constants
            self.database.now,
        )
        return {principal for (principal,) in found}

    def set_view(self, jid: str, seen: str) -> None:
        """Store the items that a subscriber of a computed node knows."""
        self.database.execute(
            f"UPDATE pubsub_subscriptions SET seen = ? WHERE {_HERE} AND jid = ?",  # noqa: S608 - constants
            (seen, *self._key, jid),
        )

    # -- affiliations ----------------------------------------------------------------------------

    def affiliation(self, principal: str) -> AffiliationName:
        """The affiliation of a principal."""
        query = f"SELECT affiliation FROM pubsub_affiliations WHERE {_HERE} AND jid = ?"  # noqa: S608 - constants
        found = self._all(query, principal)
        return found[0][0] if found else "none"

    def affiliations(self) -> list[tuple[str, AffiliationName]]:
        """Everybody's affiliation, sorted by address."""
        query = f"SELECT jid, affiliation FROM pubsub_affiliations WHERE {_HERE} ORDER BY jid"  # noqa: S608 - constants
        return [(row[0], row[1]) for row in self._all(query)]

    def set_affiliation(self, principal: str, made: AffiliationName) -> None:
        """Change the affiliation of a principal."""
        if made == "none":
            self._delete("affiliations", jid=principal)
            return
        self.database.execute(
            "INSERT INTO pubsub_affiliations (service, node, jid, affiliation) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (service, node, jid) DO UPDATE SET affiliation = excluded.affiliation",
            (*self._key, principal, made),
        )


def _item(id_: str, payload: str, publisher: str, published: int) -> StoredItem:
    return StoredItem(id=id_, payload=payload, publisher=publisher, published=at(published))
