"""Who may have how much work under way: a share for each principal and a bound for all."""

from collections.abc import Collection

import msgspec


class Shares(msgspec.Struct, frozen=True):
    """How many requests may be under way at once.

    Attributes:
        per_principal: of one principal.
        total: of all together.
        reserved: of `total`, those that only admins can have.
    """

    per_principal: int = 64
    total: int = 1024
    reserved: int = 0


class AdmissionGate:
    """Counts the requests under way. What is answered at once is never counted.

    A principal may have as many as are still free, and its share at most (dynamic thresholds: the
    less is free, the less one principal may hold). So those that hold most are refused first, and
    a principal that has nothing under way finds a place, even if others take all they can get.

    Args:
        shares: how many there may be.
        admins: bare addresses that may have the reserved ones too.

    Attributes:
        total: requests under way.
    """

    def __init__(self, shares: Shares, admins: Collection[str] = ()) -> None:
        self._shares = shares
        self._admins = frozenset(admins)
        self._under_way: dict[str, int] = {}
        self.total = 0

    def refusal(self, principal: str) -> str | None:
        """Why one more request of ``principal`` is refused now; None when it may enter."""
        shares = self._shares
        own = self._under_way.get(principal, 0)
        if own >= shares.per_principal:
            return (
                f"you have {shares.per_principal} requests under way, as many as one address "
                "may have; wait for one to be answered"
            )
        free = shares.total - self.total
        if principal in self._admins:
            return None if free > 0 else _FULL
        free -= shares.reserved
        if own < free:
            return None
        if own:
            return (
                f"the service is busy, and {own} of the requests under way are yours; wait for one "
                "to be answered"
            )
        return _FULL

    def enter(self, principal: str) -> None:
        """Count a request that starts."""
        self.total += 1
        self._under_way[principal] = self._under_way.get(principal, 0) + 1

    def leave(self, principal: str) -> None:
        """Count a request that has been answered."""
        self.total -= 1
        left = self._under_way[principal] - 1
        if left:
            self._under_way[principal] = left
        else:
            del self._under_way[principal]


_FULL = "the service has as many requests under way as it takes; try again later"
