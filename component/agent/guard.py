"""Detects when a model repeats itself, by comparing calls and their results. No clock, no I/O.

A call with a new result is progress, however often its tool is used. A call with the same result as
before is a repetition; from the third one on the model is warned, each time more explicitly. Only
the maximum number of model calls ends a turn.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from component.models.messages import ToolCall

_PATTERN: Final = (
    "You have called {name} {times} times with the same arguments and the same result."
)
_WARNINGS: Final = (
    "{pattern} That does not help. Try something different, or answer with what you have.",
    (
        "{pattern} You have been warned before. Do not make this call again: use another tool or"
        " other arguments, or answer the person now and say what is missing."
    ),
    (
        "{pattern} This is warning number {warnings}. Call no tool any more. Answer the person now"
        " with what you have, and say what you could not do. At most {left} calls of the model are"
        " left in this turn."
    ),
)


class Guard:
    """The calls of one turn.

    Args:
        max_iterations: maximum number of model calls.
        same_call: number of calls with the same arguments and result from which on it warns.

    Attributes:
        asked: how often the model was asked.
        warnings: how often it was warned.
    """

    def __init__(self, max_iterations: int, same_call: int) -> None:
        self.asked = 0
        self.warnings = 0
        self._max_iterations = max_iterations
        self._same_call = same_call
        self._seen: Counter[tuple[str, bytes, bytes]] = Counter()

    @property
    def last(self) -> bool:
        """Whether the next call of the model is the last one that is allowed in this turn."""
        return self.asked + 1 >= self._max_iterations

    def judge(self, calls: Sequence[ToolCall], results: Sequence[str | None]) -> str:
        """Count the calls of one answer with their results; None for a call without a result yet.

        Returns a warning for the model, or an empty string. Callers count `asked` themselves.
        """
        made = {
            (call.name, canonical(call.arguments), _digest(result))
            for call, result in zip(calls, results, strict=True)
            if result is not None
        }
        self._seen.update(made)
        repeated = [(self._seen[each], each[0]) for each in made]
        times, name = max(repeated, default=(0, ""))
        if times < self._same_call:
            return ""
        self.warnings += 1
        warning = _WARNINGS[min(self.warnings, len(_WARNINGS)) - 1]
        return warning.format(
            pattern=_PATTERN.format(name=name, times=times),
            warnings=self.warnings,
            left=max(0, self._max_iterations - self.asked),
        )


def canonical(arguments: str) -> bytes:
    """Return arguments in canonical JSON; unchanged if they are not JSON."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return arguments.strip().encode(errors="surrogatepass")


def _digest(result: str) -> bytes:
    return hashlib.blake2b(result.encode(errors="surrogatepass"), digest_size=16).digest()
