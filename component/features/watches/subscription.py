"""The subscription to one node, as a state machine without I/O.

In each session the subscription is requested again, which every known service answers with the
existing one: so it does not matter whether the service, its server or this process has forgotten
it. Then missed items are listed, and notifications are handled. From time to time this is repeated,
because a service can delete a node, and create it again, without a notification (ejabberd's default
for `pubsub#notify_delete`).
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

SubscriptionState: TypeAlias = Literal[
    "offline", "subscribing", "catching-up", "live", "pending", "missing", "refused", "failed"
]
"""`offline`: there is no session. `pending`: an owner has to approve it. `missing`: the
node does not exist. `refused`: the service denies it. `failed`: the service did not answer."""

Input: TypeAlias = Literal[
    "connected",
    "disconnected",
    "subscribed",
    "pending",
    "missing",
    "refused",
    "failed",
    "caught-up",
    "gone",
    "overflow",
    "due",
]
"""`gone`: a notification says that the node was deleted or the subscription ended. `overflow`: more
notifications came than can wait. `due`: the time of `Subscription.delay_s` has passed."""

_RESULTS: Final[Mapping[Input, SubscriptionState]] = {
    "pending": "pending",
    "missing": "missing",
    "refused": "refused",
    "failed": "failed",
}
_RETRIED: Final[Mapping[Input, SubscriptionState]] = {"due": "subscribing", "gone": "subscribing"}

TABLE: Final[Mapping[SubscriptionState, Mapping[Input, SubscriptionState]]] = {
    "offline": {"connected": "subscribing"},
    "subscribing": {"subscribed": "catching-up", **_RESULTS},
    "catching-up": {"caught-up": "live", "gone": "missing", **_RESULTS},
    "live": {"due": "subscribing", "gone": "missing", "overflow": "catching-up"},
    "pending": {"subscribed": "catching-up", **_RETRIED},
    "missing": _RETRIED,
    "refused": _RETRIED,
    "failed": _RETRIED,
}
"""The next state by state and input. An input that a state does not name changes nothing; in every
state `disconnected` leads to `offline`, and `connected` to `subscribing`."""

_FIRST_S: Final = 1.0


class Subscription:
    """The state of one subscription.

    Args:
        check_s: seconds after which a subscription is verified, and the longest time between two
            attempts.

    Attributes:
        state: the state.
        failures: attempts in a row that did not lead to a subscription.
    """

    def __init__(self, check_s: float) -> None:
        self._check_s = check_s
        self.state: SubscriptionState = "offline"
        self.failures = 0

    def advance(self, what: Input) -> SubscriptionState:
        """Process an input; return the new state."""
        if what == "disconnected":
            self.state = "offline"
        elif what == "connected":
            self.state, self.failures = "subscribing", 0
        else:
            after = TABLE[self.state].get(what)
            if after is None:
                return self.state
            if what == "caught-up":
                self.failures = 0
            elif what in _RESULTS or after == "missing":
                self.failures += 1
            self.state = after
        return self.state

    @property
    def delay_s(self) -> float | None:
        """Seconds until the input `due`; None if nothing is due in this state."""
        if self.state in ("live", "pending", "refused"):
            return self._check_s
        if self.state in ("missing", "failed"):
            return min(self._check_s, _FIRST_S * float(1 << min(max(self.failures, 1) - 1, 16)))
        return None
