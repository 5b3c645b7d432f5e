"""Limits what one principal may cause by publishing: the bytes that are stored and sent."""

from typing import Final

import anyio
from cachebox import LRUCache

from component.pubsub import access, faults, rows
from component.pubsub.access import Requester
from component.pubsub.notifier import ENVELOPE_BYTES
from component.pubsub.service import PubSubService
from component.store.database import Database
from xep import pubsub_errors

BURST_BYTES: Final = 32 * 1024 * 1024
"""How many bytes a principal may cause at once."""
BYTES_PER_S: Final = 256 * 1024
"""How many bytes it may cause per second in the long run."""
_MOST_PRINCIPALS: Final = 10_000


class Allowances:
    """An account for each principal: what it causes is taken from it, and it fills up again.

    Only the most recent principals are stored; an account that is not stored is full.
    """

    def __init__(self) -> None:
        self._accounts: LRUCache[str, tuple[float, float]] = LRUCache(_MOST_PRINCIPALS)

    async def charge_change(
        self, service: PubSubService, who: Requester, node: str, bytes_: int = 0
    ) -> None:
        """Charge a requester for a change of a node: it is stored, and sent to all subscribers.

        Raises StanzaError: there is no such node, or the requester has caused too much.
        """
        if who.is_service or who.may_create:
            return

        def op(database: Database) -> int:
            access.find_node(database, who, node)
            return rows.count_subscribers(database, who.service, node)

        told = await service.storage.read(op) + service.notifier.interested_in(who.service, node)
        self.charge(who.principal, (1 + told) * (bytes_ + ENVELOPE_BYTES))

    def charge(self, principal: str, bytes_: int) -> None:
        """Take bytes from the account of a principal.

        Raises:
            StanzaError: ``not-acceptable`` with `payload-too-big` if no account holds that many,
                ``resource-constraint`` if this one does not now. Nothing is taken then.
        """
        now = anyio.current_time()
        left, at = self._accounts.get(principal, (float(BURST_BYTES), now))
        left = min(BURST_BYTES, left + (now - at) * BYTES_PER_S)
        if bytes_ > BURST_BYTES:
            raise faults.fault(
                "not-acceptable",
                pubsub_errors.PayloadTooBig(),
                f"this would cause {bytes_} bytes, because it is sent to each subscriber, and"
                f" {BURST_BYTES} are the most; publish a smaller item",
            )
        if bytes_ > left:
            seconds = round((bytes_ - left) / BYTES_PER_S) + 1
            raise faults.fault(
                "resource-constraint",
                text="you have published as much as one address may; try again in"
                f" {seconds} seconds",
            )
        self._accounts[principal] = (left - bytes_, now)
