"""Notifies subscribers of a computed node of changes in their views.

The items that a subscriber knows are stored with the subscription, as a digest of each. So a change
by a new release or other settings is detected at the next start.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from component.pubsub import rows
from component.pubsub.changes import Direct
from component.pubsub.computed import ComputedNode
from component.pubsub.core import Core
from component.pubsub.events import items_event, retractions_event
from component.pubsub.rows import StoredItem
from component.storage.database import Database
from xep.jid import JID

_PAGE: Final = 200
_decode = msgspec.json.Decoder(dict[str, str]).decode


def digests(items: Sequence[StoredItem]) -> str:
    """Return the stored form of the items that a subscriber knows: JSON, a digest for each id."""
    found = {each.id: hashlib.sha256(each.payload.encode()).hexdigest()[:16] for each in items}
    return msgspec.json.encode(found).decode()


class Views:
    """Compares the current items with those that subscribers know.

    Args:
        core: the database, and the notifier.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    async def refresh(self, service: JID, node: ComputedNode) -> None:
        """Notify subscribers of new, changed and removed items. Raises StorageError."""
        address, after = str(service.bare), ""
        while page := await self._core.storage.read(
            lambda database: rows.views(database, address, node.name, after, _PAGE)  # noqa: B023 - it runs immediately
        ):
            for jid, principal, seen in page:
                items = await node.items(service, JID.parse(principal))
                now = digests(items)
                if now != seen:
                    known = _decode(seen or "{}")
                    await self._tell(address, node, JID.parse(jid), items, known)
            after = page[-1][0]

    async def _tell(
        self,
        service: str,
        node: ComputedNode,
        jid: JID,
        items: Sequence[StoredItem],
        seen: Mapping[str, str],
    ) -> None:
        now = digests(items)
        current = _decode(now)
        new = tuple(each for each in items if seen.get(each.id) != current[each.id])
        gone = tuple(each for each in seen if each not in current)

        def op(database: Database) -> None:
            rows.set_view(database, service, node.name, str(jid), now)

        await self._core.storage.write(op)
        events = [items_event(node.name, (each,), payloads=True) for each in new]
        if gone:
            events.append(retractions_event(node.name, gone))
        for event in events:
            self._core.notifier.put(
                Direct(
                    service=service,
                    node=node.name,
                    principal=str(jid.bare),
                    to=str(jid),
                    payloads=(event,),
                )
            )
