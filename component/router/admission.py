"""Who may have how much work under way: a share for each principal and a bound for all."""

import msgspec


class Shares(msgspec.Struct, frozen=True):
    """How many requests may be under way at once: of one principal, and of all together."""

    per_principal: int = 64
    total: int = 1024


class Admission:
    """Counts the requests under way. What is answered at once is never counted.

    Attributes:
        total: requests under way.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._under_way: dict[str, int] = {}
        self.total = 0

    def refusal(self, principal: str) -> str | None:
        """Why one more request of ``principal`` is refused now; None when it may enter."""
        if self.total >= self._shares.total:
            return "the service has as many requests under way as it takes; try again later"
        if self._under_way.get(principal, 0) >= self._shares.per_principal:
            return (
                f"you have {self._shares.per_principal} requests under way, as many as one address "
                "may have; wait for one to be answered"
            )
        return None

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
