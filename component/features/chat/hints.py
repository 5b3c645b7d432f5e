"""Texts that somebody gets at most once an hour, so that two programs do not answer each other for
ever.
"""

from collections.abc import Callable
from typing import Final

from cachebox import LRUCache

from xep.jid import JID

_EVERY_S: Final = 3600.0
_REMEMBERED: Final = 4096


class Hints:
    """Remembers who has got a hint.

    Args:
        clock: seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._given: LRUCache[JID, float] = LRUCache(_REMEMBERED)

    def is_due(self, address: JID) -> bool:
        """Whether an address gets the hint now; if so, it gets no other one for an hour."""
        now, last = self._clock(), self._given.get(address)
        if last is not None and now - last < _EVERY_S:
            return False
        self._given[address] = now
        return True
