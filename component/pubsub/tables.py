"""The tables of the PubSub service (XEP-0060).

`sequence` is the number of the last change of a node or an item. It determines the order of items,
and a subscriber is notified of the changes after the number `since`. A node that is computed from
other tables has only subscriptions here; `seen` records which items its subscriber was notified of.
"""

from typing import Final

from component.storage.schema import Table

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
        indexes={
            "pubsub_subscriptions_principal": "(principal, service)",
        },
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
        indexes={
            "pubsub_affiliations_jid": "(jid, service)",
        },
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
