"""What was just answered at once, so that it is answered again without running (RPL-015).

This is on the road of every short request, so nothing here hashes or parses: a repetition is found
by what makes its key, and its content compared only then.
"""

from collections.abc import Callable
from time import monotonic
from typing import Final, Literal, TypeAlias

from component.tasks.replay import again, digest_of
from xep.binding import Encoded
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Execute, Result
from xep.jid import JID
from xep.stanza_error import StanzaError

Key: TypeAlias = tuple[JID, JID, str]
"""The full address of the caller, the one it turned to, and the id of its IQ (RPL-006)."""

Answer: TypeAlias = Encoded | Result | StanzaError
"""What was answered: a result as XML text or as it is, or an error."""

_Entry: TypeAlias = tuple[Execute, Answer, float] | Literal["elsewhere"]
"""The request, its answer, and until when it is kept; or that the durable work has them."""

_MOST_ENTRIES: Final = 10_000
_MOST_CHARACTERS: Final = 8 * 1024 * 1024
_ENTRY: Final = 512
"""About what an entry takes beside its texts."""


class Recent:
    """Answers of the last while, bounded in number and size.

    They are kept in two halves. When the younger one is full, the older one is forgotten as a
    whole and they change places: so that keeping an answer costs one entry in a dictionary.

    It also knows which requests it does not have because they went to the durable work: one that
    has the key of such a request has to be held against its record, which is there.

    Args:
        window_s: seconds for which an answer is kept, as advertised.
        entries: how many there may be.
        size: how much they may take together, about, in characters.
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
        self._half_of_entries = entries // 2
        self._half_of_size = size // 2
        self._clock = clock
        self._young: dict[Key, _Entry] = {}
        self._old: dict[Key, _Entry] = {}
        self._size = 0
        """Of the younger half."""

    def __len__(self) -> int:
        """How many requests are known."""
        return len(self._young.keys() | self._old.keys())

    def get(self, key: Key, execute: Execute) -> Encoded | Result | Literal["elsewhere"] | None:
        """The answer to a repetition, or that the durable work knows it; None if this is new work.

        Raises StanzaError: the recorded error, or `conflict` for other content under the same key
        (RPL-012).
        """
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.get(key)
        if entry is None or entry == "elsewhere":
            return entry
        recorded, answer, until = entry
        if until <= self._clock():
            return None
        if recorded != execute and digest_of(recorded) != digest_of(execute):
            raise errors.conflict("An earlier request had this identifier and other content.")
        if isinstance(answer, StanzaError):
            raise again(answer)
        return answer

    def put(self, key: Key, execute: Execute, size: int, answer: Answer) -> None:
        """Keep the answer to a request of `size` bytes, unless it alone is too much."""
        if type(answer) is Encoded:
            size += _ENTRY + len(answer.xml)
        elif isinstance(answer, Result):
            size += _ENTRY + sum([len(output.text) for output in answer.outputs])
        else:
            size += _ENTRY
        self._size += size
        if self._size > self._half_of_size or len(self._young) >= self._half_of_entries:
            if size > self._half_of_size:
                self._size -= size
                return
            self._turn(size)
        clock = self._clock
        self._young[key] = (execute, answer, clock() + self._window_s)

    def went_elsewhere(self, key: Key) -> None:
        """Remember that a request of this key goes to the durable work, which has its record."""
        self._size += _ENTRY
        if self._size > self._half_of_size or len(self._young) >= self._half_of_entries:
            self._turn(_ENTRY)
        self._young[key] = "elsewhere"

    def _turn(self, size: int) -> None:
        self._old, self._young, self._size = self._young, {}, size
