"""Notices when a model goes round in circles. A table of what it called; no clock, no I/O.

Rounds are counted, not calls: eight pages fetched at once are one step, fetched one after another
they are eight.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from component.models.protocol import ToolCall

Verdict: TypeAlias = Literal["go on", "tell", "end"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """From when on it is a circle; see `Loop` in the settings."""

    max_iterations: int = 50
    same_tool: int = 8
    ping_pong: int = 4
    same_call: int = 3


class Judged(msgspec.Struct, frozen=True):
    """What to do after a round. `pattern` is a sentence on what was seen, for the model."""

    verdict: Verdict
    pattern: str = ""


GO_ON: Final = Judged("go on")


class Guard:
    """The rounds of one turn. The first circle is told to the model, the second ends the turn.

    Attributes:
        asked: how often the model was asked.
        told: whether the model has been told.
    """

    def __init__(self, limits: Limits) -> None:
        self.asked = 0
        self.told = False
        self._limits = limits
        # For each round the one tool that it called, or None when it called several.
        self._tools: list[str | None] = []
        self._seen: Counter[tuple[str, bytes]] = Counter()

    @property
    def last(self) -> bool:
        """Whether the next call of the model is the last one it may have in this turn."""
        return self.asked + 1 >= self._limits.max_iterations

    def judge(self, calls: Sequence[ToolCall]) -> Judged:
        """Take one round of calls, and say whether the turn goes on. `asked` is counted apart."""
        names = {call.name for call in calls}
        self._tools.append(names.pop() if len(names) == 1 else None)
        signatures = {(call.name, canonical(call.arguments)) for call in calls}
        self._seen.update(signatures)
        pattern = self._pattern(signatures)
        if not pattern:
            return GO_ON
        if self.told:
            return Judged("end", pattern)
        self.told = True
        return Judged("tell", pattern)

    def _pattern(self, signatures: set[tuple[str, bytes]]) -> str:
        limits, tools = self._limits, self._tools
        for name, arguments in sorted(signatures):
            times = self._seen[name, arguments]
            if times >= limits.same_call:
                return f"You have called {name} {times} times with the same arguments."
        latest = tools[-1]
        if latest is None:
            return ""
        streak = tools[-limits.same_tool :]
        if len(streak) == limits.same_tool and set(streak) == {latest}:
            return f"You have called {latest} {limits.same_tool} times in a row."
        pairs = tools[-2 * limits.ping_pong :]
        other = tools[-2] if len(tools) > 1 else None
        if (
            len(pairs) == 2 * limits.ping_pong
            and other not in (None, latest)
            and pairs == [other, latest] * limits.ping_pong
        ):
            return f"You have called {other} and {latest} in turn, {limits.ping_pong} times each."
        return ""


def canonical(arguments: str) -> bytes:
    """Arguments in a form that is the same however they were written, if they are JSON."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return arguments.strip().encode(errors="surrogatepass")
