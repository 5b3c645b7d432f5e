"""Ends exchanges of messages in which the other side is a program that answers every message.

Such a program need not know that it writes to another one: a text about an absence, an encryption
plugin that refuses, a bot. It answers at once, in any form, and would be answered for ever
(specification, FAC-015).
"""

from collections.abc import Callable
from typing import Final

import anyio
import msgspec
from cachebox import LRUCache

from xep.jid import JID

PERIOD_S: Final = 600.0
"""Seconds in which a sender who has used up the limit regains all of it."""
QUIET_S: Final = 60.0
"""Seconds without a message after which a sender is answered again."""
_PAUSE_S: Final = 2.0
_MOST_SENDERS: Final = 4096


class _Sender(msgspec.Struct):
    """What is left of the limit at a time; and the time of the last message, if it was reached."""

    left: float
    at: float
    stopped_at: float | None = None


class Admitted(msgspec.Struct, frozen=True):
    """A message may be handled, after a pause of `pause_s` seconds."""

    pause_s: float = 0.0


class Stopped(msgspec.Struct, frozen=True):
    """A message must not be handled; it is the `first` that reaches the limit."""

    first: bool


class ExchangeLimit:
    """Counts the messages of each sender, a bare JID.

    Each sender has `messages` at first and regains that many within ten minutes. When half of them
    are used, each message waits for two seconds; when all are used, the sender is stopped until
    they have written nothing for a minute, and then begins anew. Senders beyond the last 4,096 are
    forgotten.

    Args:
        messages: the maximum number of messages that are handled in quick succession.
        clock: seconds that only go forward; the event loop's by default.
    """

    def __init__(self, messages: int, clock: Callable[[], float] = anyio.current_time) -> None:
        self._messages = messages
        self._clock = clock
        self._senders: LRUCache[JID, _Sender] = LRUCache(_MOST_SENDERS)

    def next(self, who: JID) -> Admitted | Stopped:
        """Count a message of a sender, and return what happens to it."""
        now = self._clock()
        sender = self._senders.get(who)
        if sender is None or (sender.stopped_at is not None and now - sender.stopped_at >= QUIET_S):
            sender = self._senders[who] = _Sender(self._messages, now)
        if sender.stopped_at is not None:
            sender.stopped_at = now
            return Stopped(first=False)
        regained = (now - sender.at) * self._messages / PERIOD_S
        sender.left, sender.at = min(sender.left + regained, self._messages), now
        if sender.left < 1:
            sender.stopped_at = now
            return Stopped(first=True)
        sender.left -= 1
        return Admitted(_PAUSE_S if sender.left < self._messages / 2 else 0.0)
