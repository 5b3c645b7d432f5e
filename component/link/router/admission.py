"""Limits the requests in progress: a share for each principal and a total."""

from collections.abc import Collection

import msgspec


class Shares(msgspec.Struct, frozen=True):
    """How many requests may be in progress at once.

    Attributes:
        per_principal: the maximum of one principal.
        total: the maximum of all together.
        reserved: the part of `total` that only admins can use.
    """

    per_principal: int = 64
    total: int = 1024
    reserved: int = 0


class AdmissionGate:
    """Counts the requests in progress. A request that is answered at once is never counted.

    A principal may have as many as are still free, and its share at most (dynamic thresholds: the
    fewer are free, the fewer one principal may have). So the principals with most requests are
    refused first, and a principal with none is admitted even if others use all they can get.

    Args:
        shares: the limits.
        admins: bare addresses that may use the reserved part too.

    Attributes:
        total: the number of requests in progress.
    """

    def __init__(self, shares: Shares, admins: Collection[str] = ()) -> None:
        self._shares = shares
        self._admins = frozenset(admins)
        self._under_way: dict[str, int] = {}
        self.total = 0

    def refusal(self, principal: str) -> str | None:
        """Return why another request of ``principal`` is refused now; None if it is admitted."""
        shares = self._shares
        own = self._under_way.get(principal, 0)
        if own >= shares.per_principal:
            return (
                f"you have {shares.per_principal} requests in progress, the maximum for one"
                " address; wait for an answer to one of them"
            )
        free = shares.total - self.total
        if principal in self._admins:
            return None if free > 0 else _FULL
        free -= shares.reserved
        if own < free:
            return None
        if own:
            return (
                f"the service is busy, and {own} of the requests in progress are yours; wait for an"
                " answer to one of them"
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


_FULL = "the service has reached its maximum number of requests; try again later"
