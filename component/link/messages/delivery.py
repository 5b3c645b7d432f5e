"""The delivery of a sent message or request."""

from typing import TYPE_CHECKING, Final, Literal

import anyio

from xep.jid import JID

if TYPE_CHECKING:
    from component.link.messages.outbox import Entry

DeliveryState = Literal["queued", "written", "dropped", "withdrawn", "received", "displayed"]
DeliveryOutcome = Literal["written", "dropped", "withdrawn"]
Report = Literal["received", "displayed"]

_RANK: Final[dict[DeliveryOutcome, int]] = {"written": 0, "withdrawn": 1, "dropped": 2}
"""The worst outcome of several stanzas counts."""
_SENT: Final = frozenset(("written", "received", "displayed"))


class Delivery:
    """The delivery of a sent message or request, which may have several stanzas.

    It is `queued` until the outbox has settled each of its stanzas. Then it is

    - `written` if the kernel has accepted them all: they survive the end of this process,
    - `dropped` if there was no room for one of them, or
    - `withdrawn` if one of them was withdrawn before it was sent.

    A written delivery becomes `received` (XEP-0184) and `displayed` (XEP-0333) when the recipient's
    client reports it. Few clients report both, and some report neither.

    Args:
        must_arrive: it is dropped only after everything else has been dropped.

    Attributes:
        has_stanzas: whether there was anything to send.
        withheld: the bare JIDs to whom nothing was sent, because they want no such messages.
    """

    __slots__ = (
        *("_changed", "_outcome", "_waiting", "has_stanzas", "must_arrive", "state", "withheld"),
    )

    def __init__(self, *, must_arrive: bool = False) -> None:
        self.must_arrive = must_arrive
        self.has_stanzas = False
        self.state: DeliveryState = "queued"
        self._waiting: list[Entry] = []
        self._outcome: DeliveryOutcome = "written"
        self._changed: anyio.Event | None = None
        self.withheld: frozenset[JID] = frozenset()

    @property
    def is_sent(self) -> bool:
        """Whether all its stanzas were written."""
        return self.state in _SENT

    async def settled(self) -> bool:
        """Wait until it is settled; return whether all its stanzas were written."""
        while self.state == "queued":
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()
        return self.is_sent

    def withdraw(self) -> bool:
        """Withdraw the stanzas that were not sent yet; return whether these were all."""
        whole = self.state == "queued"
        for stanza in list(self._waiting):
            whole = stanza.withdraw() and whole
        return whole

    def report(self, report: Report) -> None:
        """Record that the recipient's client has received or displayed it."""
        if self.is_sent and self.state != "displayed":
            self.state = report

    # For the outbox.

    def add(self, stanza: "Entry") -> None:
        """Add a stanza that waits."""
        self._waiting.append(stanza)
        self.has_stanzas = True
        self.state = "queued"

    def settle(self, stanza: "Entry", outcome: DeliveryOutcome) -> None:
        """Record the outcome of a stanza."""
        self._waiting.remove(stanza)
        if _RANK[outcome] > _RANK[self._outcome]:
            self._outcome = outcome
        self.conclude()

    def conclude(self) -> None:
        """Settle the delivery unless a stanza of it waits: there was nothing to send, or the last
        one is settled.
        """
        if self._waiting:
            return
        self.state = self._outcome
        if self._changed is not None:
            self._changed.set()
            self._changed = None


def nothing_to_send() -> Delivery:
    """Return the delivery of a message that need not be sent."""
    delivery = Delivery()
    delivery.conclude()
    return delivery
