"""Whether peers can be reached, and how much is asked of each at a time.

Calls that are stored are repeated until `unreachable_s` or the deadline. When several attempts in a
row have got no answer, new calls fail at once for half a minute, and admins see a warning.
"""

from collections.abc import Callable, Sequence
from typing import Final

import anyio

from component import system
from component.breaker import Breaker
from component.skills.errors import RemoteError
from xep.fluux_agent import errors

_FAILURES: Final = 5
_PAUSE_S: Final = 30.0
_MOST_REQUESTS: Final = 32
"""The maximum number of requests to one peer that wait for an answer; other calls wait as rows.
Peers limit what they serve of one sender, and a peer that does not answer occupies nothing else.
"""


class Reach:
    """What is known of the peers, by their names.

    Attributes:
        is_connected: set while there is a session with the server.
        outdated: called with the name of a peer that does not know a skill which it has offered.
    """

    def __init__(self) -> None:
        self._breakers: dict[str, Breaker] = {}
        self._turns: dict[str, anyio.CapacityLimiter] = {}
        self.is_connected = anyio.Event()
        self.outdated: Callable[[str], None] = lambda _peer: None

    def disconnected(self) -> None:
        """Note that there is no session."""
        self.is_connected = anyio.Event()

    def turn(self, peer: str) -> anyio.CapacityLimiter:
        """Return what a call holds while it asks a peer."""
        return self._turns.setdefault(peer, anyio.CapacityLimiter(_MOST_REQUESTS))

    def check(self, peer: str) -> None:
        """Permit a new call. Raises RemoteError: the peer has not answered for some time."""
        breaker = self._breakers.get(peer)
        if breaker is None:
            return
        left = breaker.enter(system.monotonic())
        if left is None:
            # Calls may be cancelled before they are sent, so the first one is not waited for.
            breaker.abandoned()
            return
        error = errors.remote_failure(repeatable=True)
        error.text = f"{peer} does not answer. Try again in {left:.0f} seconds."
        raise RemoteError(error)

    def answered(self, peer: str) -> None:
        """Note that a peer has answered, also with an error."""
        self._breakers.pop(peer, None)

    def failed(self, peer: str) -> None:
        """Note that an attempt has got no answer of a peer."""
        breaker = self._breakers.setdefault(peer, Breaker(_FAILURES, _PAUSE_S))
        breaker.failed(system.monotonic())

    def missing(self) -> Sequence[str]:
        """Return the peers that do not answer."""
        return sorted(name for name, one in self._breakers.items() if one.state != "closed")

    def warnings(self) -> Sequence[str]:
        """Return a sentence if peers do not answer."""
        missing = self.missing()
        if not missing:
            return ()
        names = ", ".join(missing)
        return (f"Agents that do not answer now, so their skills fail: {names}.",)
