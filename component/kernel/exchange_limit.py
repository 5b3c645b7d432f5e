"""Ends exchanges of messages in which the other side is a program that answers every message.

Such a program need not know that it writes to another one: a text about an absence, an encryption
plugin that refuses, a bot. It answers at once, in any form, and would be answered for ever
(specification, FAC-015).
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import anyio
import msgspec

from component.caches import LRUCache
from xep.jid import JID

PERIOD_S: Final = 600.0
"""Seconds in which a sender who has used up the limit regains all of it."""
QUIET_S: Final = 60.0
"""Seconds without a message after which a sender is answered again."""
_PAUSE_S: Final = 2.0
_MOST_COUNTED: Final = 8192
_THREADS: Final = 10

_Key: TypeAlias = tuple[JID, str | None]


class _Sender(msgspec.Struct):
    """What is left of the limit at a time; and the time of the last message, if it was reached."""

    left: float
    at: float
    stopped_at: float | None = None


class Admitted(msgspec.Struct, frozen=True):
    """A message may be handled, after a pause of `pause_s` seconds."""

    pause_s: float = 0.0


class ExchangeStopped(msgspec.Struct, frozen=True):
    """A message must not be handled; it is the `first` that reaches the limit."""

    first: bool


class ExchangeLimit:
    """Counts the messages of each sender, a bare JID, in each thread and in all threads.

    A program that answers stays in the thread, or has none. Each thread of a sender has `messages`
    available at first, and all threads together have ten times as many. Both limits recover over
    ten minutes. Once half of a limit is used, each message waits for two seconds. Once all of it is
    used, messages of the sender are not handled until the sender has been silent for a minute; the
    full limit is available again after that. Only the 8,192 most recently used threads are counted.

    Args:
        messages: the maximum number of messages that are handled in quick succession.
        clock: seconds that only go forward; the event loop's by default.
    """

    def __init__(self, messages: int, clock: Callable[[], float] = anyio.current_time) -> None:
        self._in_thread = _Counts(messages)
        self._in_all = _Counts(_THREADS * messages)
        self._clock = clock

    def next(
        self, who: JID, thread: str | None = None, *, delayed: bool = False
    ) -> Admitted | ExchangeStopped:
        """Count a message of a sender, and return what happens to it.

        Delayed messages arrive at the same time although people wrote them over a longer time, but
        a program may also mark its answers as delayed. They count only towards the limit of all
        threads together.
        """
        now = self._clock()
        found = Admitted() if delayed else self._in_thread.next((who, thread), now)
        if isinstance(found, ExchangeStopped):
            return found
        of_all = self._in_all.next((who, None), now)
        return of_all if isinstance(of_all, ExchangeStopped) or of_all.pause_s else found


class _Counts:
    """Counts messages by their keys."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._senders: LRUCache[_Key, _Sender] = LRUCache(_MOST_COUNTED)

    def next(self, key: _Key, now: float) -> Admitted | ExchangeStopped:
        sender = self._senders.get(key)
        if sender is None or (sender.stopped_at is not None and now - sender.stopped_at >= QUIET_S):
            sender = self._senders[key] = _Sender(self._messages, now)
        if sender.stopped_at is not None:
            sender.stopped_at = now
            return ExchangeStopped(first=False)
        regained = (now - sender.at) * self._messages / PERIOD_S
        sender.left, sender.at = min(sender.left + regained, self._messages), now
        if sender.left < 1:
            sender.stopped_at = now
            return ExchangeStopped(first=True)
        sender.left -= 1
        return Admitted(_PAUSE_S if sender.left < self._messages / 2 else 0.0)
