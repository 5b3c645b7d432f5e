"""What was just answered at once, so that it is answered again without running (RPL-015).

This is on the road of every short request, so nothing here hashes or parses: a repetition is found
by the texts that make its key, and its content compared only then.
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Final, TypeAlias

from component.tasks.replay import digest_of
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Execute, Result

Key: TypeAlias = tuple[str, str, str | None]
"""The full address of the caller, the one it turned to, and the id of its IQ (RPL-006)."""

_MOST_ENTRIES: Final = 10_000
_MOST_CHARACTERS: Final = 8 * 1024 * 1024
_ENTRY: Final = 512
"""About what an entry takes beside the answer's texts."""


class Recent:
    """Answers of the last while, bounded in number and size.

    Args:
        window_s: seconds for which an answer is kept, as advertised.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        window_s: float,
        *,
        entries: int = _MOST_ENTRIES,
        size: int = _MOST_CHARACTERS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._window_s = window_s
        self._most_entries = entries
        self._most_size = size
        self._clock = clock
        self._size = 0
        self._entries: OrderedDict[Key, tuple[Execute, Result, int, float]] = OrderedDict()

    def __len__(self) -> int:
        """How many answers are kept."""
        return len(self._entries)

    def get(self, key: Key, execute: Execute) -> Result | None:
        """The answer to a repetition; None if this is new work.

        Raises StanzaError: `conflict`, for other content under the same key (RPL-012).
        """
        entry = self._entries.get(key)
        if entry is None:
            return None
        recorded, result, _, until = entry
        if until <= self._clock():
            self._drop(key)
            return None
        if recorded != execute and digest_of(recorded) != digest_of(execute):
            raise errors.conflict("An earlier request had this identifier and other content.")
        return result

    def put(self, key: Key, execute: Execute, size: int, result: Result) -> None:
        """Keep an answer to a request of `size` bytes, and forget the oldest if it is too much."""
        size += _ENTRY
        for output in result.outputs:
            size += len(output.text)
        if size > self._most_size:
            return
        if key in self._entries:
            self._drop(key)
        self._entries[key] = (execute, result, size, self._clock() + self._window_s)
        self._size += size
        while self._size > self._most_size or len(self._entries) > self._most_entries:
            self._size -= self._entries.popitem(last=False)[1][2]

    def _drop(self, key: Key) -> None:
        self._size -= self._entries.pop(key)[2]
