"""Limits what one principal may cause by publishing: the bytes that are stored and sent."""

from typing import Final

import anyio
from cachebox import LRUCache

from component.pubsub import faults
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
