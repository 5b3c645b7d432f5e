"""Recent answers to requests, and the requests in progress, in memory.

Skills that are read-only or idempotent may have no other record (RPL-015). For the others the cache
saves reading the record from disk.
"""

from collections.abc import Callable, Hashable
from typing import Final, TypeAlias

import anyio
from cachebox import FIFOCache

from component.storage.clock import seconds_since_boot
from component.tasks.idempotency import RecordedAnswer, check_same_content, return_or_raise, size_of
from component.tasks.request_keys import UNNAMED_WINDOW_S, RequestKey
from xep.fluux_agent.execute import Accepted, Result

_MOST_ENTRIES: Final = 10_000
_MOST_BYTES: Final = 16 * 1024 * 1024
_EXPIRED_AT_ONCE: Final = 2
"""More than one, so that the expired ones become fewer at any rate of requests."""
_ENTRY_BYTES: Final = 512
"""The approximate size of an entry without its texts."""


class Flight:
    """A request in progress. A repetition waits for the same answer.

    Attributes:
        key: the key of the request.
        until: the time, by the clock of the cache, until which a repetition of a request without a
            name is recognised.
        recorded: when its record on disk expires, in milliseconds of the steady clock; None without
            a record. It distinguishes the record from one that a later request made with the same
            key.
        answer: None until there is one, and afterwards if the request was refused and left nothing
            behind.
    """

    __slots__ = ("_cache", "_done", "answer", "key", "recorded", "until")

    def __init__(self, key: RequestKey, until: float, cache: "ReplayCache") -> None:
        self.key = key
        self.until = until
        self.recorded: int | None = None
        self.answer: RecordedAnswer | None = None
        self._cache = cache
        self._done = anyio.Event()

    @property
    def left_s(self) -> float:
        """Seconds for which a record of the request must be valid from now on."""
        return self._cache.left_s(self)

    def expires(self, steady: int) -> int:
        """Return when a record made at `steady` expires, in milliseconds of that clock."""
        return steady + round(self.left_s * 1000)

    @property
    def landed(self) -> bool:
        """Whether the request has ended."""
        return self._done.is_set()

    def land(self, answer: RecordedAnswer | None) -> None:
        """Set the answer; only the first call counts."""
        if not self._done.is_set():
            self.answer = answer
            self._cache.landed(self)
            self._done.set()

    async def wait(self) -> RecordedAnswer | None:
        """Wait for the answer."""
        await self._done.wait()
        return self.answer


_Entry: TypeAlias = tuple[str, RecordedAnswer, float, int]
"""The digest of the request, its answer, the time until which it is valid, and its size."""
_Entries: TypeAlias = "FIFOCache[Hashable, _Entry]"


def _size_of(_key: object, entry: _Entry) -> int:
    return entry[3]


class ReplayCache:
    """Recent answers, limited in number and bytes, and the requests in progress.

    Answers to named and unnamed requests have half of the room each. In either half, the oldest are
    dropped first, and each new answer drops up to two that have expired. (The library's caches with
    a time to live use a clock that stops while the machine is suspended.)

    Args:
        window_s: seconds for which the answer to a named request is cached, as advertised.
        entries: the maximum number of answers.
        size: their approximate maximum size in bytes.
        clock: seconds that do not jump, and continue while the machine is suspended.
    """

    def __init__(
        self,
        window_s: float,
        *,
        entries: int = _MOST_ENTRIES,
        size: int = _MOST_BYTES,
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._window_s = window_s
        self._most_bytes = size // 2
        self._least = size // entries
        """The minimum size of each entry, so that the limit on bytes also limits their number."""
        self._clock = clock
        self._named: _Entries = FIFOCache(self._most_bytes, getsizeof=_size_of)
        self._unnamed: _Entries = FIFOCache(self._most_bytes, getsizeof=_size_of)
        self._flights: dict[Hashable, Flight] = {}

    def __len__(self) -> int:
        """Return how many answers are kept."""
        return len(self._named) + len(self._unnamed)

    def get(self, key: RequestKey) -> Result | Accepted | None:
        """Return the answer to a repetition, if it is in memory.

        Raises StanzaError: the recorded error, or `conflict` for other content.
        """
        entries = self._entries_of(key)
        # The library's types do not say that `get` returns None for a missing key.
        entry: _Entry | None = entries.get(key.id)
        if entry is None:
            if self._flights:
                self.flight(key)
            return None
        digest, answer, until, _ = entry
        if until <= self._clock():
            del entries[key.id]
            return None
        check_same_content(digest, key.digest)
        return return_or_raise(answer)

    def knows(self, key: RequestKey) -> bool:
        """Return whether a request with this key is in progress, or its answer is in memory."""
        return self.flight(key) is not None or key.id in self._entries_of(key)

    def put(self, key: RequestKey, answer: RecordedAnswer, left_s: float | None = None) -> None:
        """Store an answer: for `left_s` seconds, or as long as a repetition is recognised.

        If the value is too large, no answer is stored for this request. (To make room for a larger
        value the library may drop the very key whose value it replaces.)
        """
        if left_s is None:
            left_s = self._window_s if key.named else UNNAMED_WINDOW_S
        size = _ENTRY_BYTES + key.size + size_of(answer)
        if size > self._most_bytes or left_s <= 0:
            return
        now = self._clock()
        entries = self._entries_of(key)
        for _ in range(_EXPIRED_AT_ONCE):
            if entries and entries[entries.first()][2] <= now:
                entries.popitem()
        entries[key.id] = key.digest, answer, now + left_s, max(size, self._least)

    def _entries_of(self, key: RequestKey) -> _Entries:
        return self._named if key.named else self._unnamed

    def flight(self, key: RequestKey) -> Flight | None:
        """Return the same request, if it is in progress. Raises StanzaError: `conflict`."""
        flight = self._flights.get(key.id)
        if flight is None:
            return None
        if not key.named and flight.until <= self._clock():
            return None
        check_same_content(flight.key.digest, key.digest)
        return flight

    def begin(self, key: RequestKey) -> Flight:
        """Register a request as in progress, until its flight lands."""
        until = self._clock() + UNNAMED_WINDOW_S
        flight = self._flights[key.id] = Flight(key, until, self)
        return flight

    def left_s(self, flight: Flight) -> float:
        """Return the seconds for which a record of a request in progress must be valid from now on.

        Without a name the time is counted from the start of the request.
        """
        if flight.key.named:
            return self._window_s
        return max(0.0, flight.until - self._clock())

    def landed(self, flight: Flight) -> None:
        """Unregister a flight that has ended."""
        text = flight.key.id
        if self._flights.get(text) is not flight:
            return  # a later request without a name has the same key
        del self._flights[text]
        if flight.answer is not None:
            self.put(flight.key, flight.answer, self.left_s(flight))
