"""Lists and describes nodes for service discovery, and sends last items to clients."""

import structlog

from component.pubsub import access, rows, subscribing
from component.pubsub.access import Requester
from component.pubsub.changes import Direct
from component.pubsub.core import Core, as_node, last_messages
from component.pubsub.rows import Node
from component.storage.database import Database
from component.storage.errors import StorageError
from xep.jid import JID

_log = structlog.get_logger("component.pubsub")


class Overview:
    """Lists and describes nodes, and sends their last items to clients that come online.

    Args:
        core: commits changes and sends notifications.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    async def visible(self, who: Requester) -> list[tuple[str, str]]:
        """Return the nodes that the requester may see, sorted, each with its title (§5.2)."""

        def op(database: Database) -> list[Node]:
            return [
                each
                for each in rows.nodes(database, who.service)
                if not access.is_hidden(each, access.affiliation(database, who, each.name))
            ]

        stored = await self._core.storage.read(op)
        found = {each.name: each.config.title for each in stored}
        for name in self._core.computed_nodes:
            computed = self._core.computed(who, name)
            if computed is not None:
                found[name] = computed.config.title
        return sorted(found.items())

    async def described(self, who: Requester, name: str) -> tuple[Node, list[str], int]:
        """A node, its owners, and how many subscribers it has (§5.4)."""
        computed = self._core.computed(who, name)
        if computed is not None:
            return as_node(who, computed), [], 0

        def op(database: Database) -> tuple[Node, list[str], int]:
            node, _ = access.find(database, who, name)
            owners = subscribing.owners(database, who.service, name)
            return node, owners, rows.count_subscribers(database, who.service, name)

        return await self._core.storage.read(op)

    async def item_ids(self, who: Requester, name: str) -> list[str]:
        """The ids of the items of a node, the newest last (§5.5)."""
        computed = self._core.computed(who, name)
        if computed is not None:
            items = await computed.items(JID.parse(who.service), JID.parse(who.principal))
            return [each.id for each in items]

        def op(database: Database) -> list[str]:
            node, found = access.find(database, who, name)
            access.check_read(database, who, node, found, subscribing=False)
            return [id_ for id_, _ in rows.item_keys(database, who.service, name)]

        return await self._core.storage.read(op)

    async def came_online(
        self, service: str, full: str, bare: str, interests: frozenset[str]
    ) -> None:
        """Send the last items of the nodes in which a client is interested, or to which it or its
        account is subscribed, as far as these nodes send them on presence (§12.17).
        """
        who = Requester(service=service, principal=bare, jid=full)

        def op(database: Database) -> list[Direct]:
            wanted = set(interests)
            for made in rows.subscriptions_of(database, service, bare):
                if made.state == "subscribed" and made.deliver and made.jid in (full, bare):
                    wanted.add(made.node)
            messages: list[Direct] = []
            for name in sorted(wanted):
                node = rows.node(database, service, name)
                if (
                    node is not None
                    and node.config.send_last_published_item == "on_sub_and_presence"
                    and access.may_read(database, node, bare)
                ):
                    messages += last_messages(database, node, full)
            return messages

        try:
            for message in await self._core.storage.read(op):
                self._core.notifier.put(message)
            for name in sorted(interests):
                computed = self._core.computed(who, name)
                if (
                    computed is not None
                    and computed.config.send_last_published_item == "on_sub_and_presence"
                ):
                    await self._core.send_last_computed(who, computed, full)
        except StorageError as error:
            _log.error("the last items were not sent", reason=str(error))
