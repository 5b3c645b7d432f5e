"""What is counted as it happens, cheaply: plain numbers, read when somebody asks for them."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

BOUNDS_S: Final = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
"""Upper bounds of what durations are sorted into, in seconds."""
_MOST_LABELS: Final = 1000
"""Labels told apart in one family. Who sends new names for ever must not fill the memory."""
OTHER: Final = "other"


class Usage(Protocol):
    """What a call of a model took."""

    @property
    def tokens_in(self) -> int:
        """Tokens that it was sent."""

    @property
    def tokens_out(self) -> int:
        """Tokens that it gave."""

    @property
    def cost_usd(self) -> float:
        """US dollars."""


Cell: TypeAlias = tuple[list[int], list[float]]
"""How many in each bucket, and one number: the sum in seconds."""


class Count:
    """A number that grows, for each set of labels."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        """Count something. Labels without bound are counted together, as `other`."""
        values = self._values
        if labels not in values and len(values) >= _MOST_LABELS:
            labels = (OTHER,) * len(labels)
        values[labels] = values.get(labels, 0) + by

    @property
    def values(self) -> Mapping[tuple[str, ...], float]:
        """The numbers, by labels."""
        return self._values


class Durations:
    """How long something took, for each set of labels."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Cell] = {}

    def add(self, seconds: float, *labels: str) -> None:
        """Count something that took so long."""
        counts, total = self._known.get(labels) or self.cell(labels)
        counts[bisect_left(BOUNDS_S, seconds)] += 1
        total[0] += seconds

    def cell(self, labels: tuple[str, ...]) -> Cell:
        """Where those with these labels are counted, for who counts very often."""
        known = self._known.get(labels)
        if known is None:
            if len(self._known) >= _MOST_LABELS:
                labels = (OTHER,) * len(labels)
            known = self._known.setdefault(labels, ([0] * (len(BOUNDS_S) + 1), [0.0]))
        return known

    @property
    def values(self) -> Mapping[tuple[str, ...], Cell]:
        """By labels: how many in each bucket, not cumulated, and the sum in seconds."""
        return self._known


class Counters:
    """What the rooms count. Nothing here waits or raises; seconds throughout.

    Attributes:
        stanzas_in: stanzas that came.
        executes: by skill and outcome.
        refusals: by reason.
        turns: by agent and outcome.
        model_calls: by model and outcome.
        tokens: by model and `in` or `out`.
        usd: by model.
        tool_calls: by tool and outcome.
        reconnects: streams that were lost.
    """

    def __init__(self) -> None:
        self.stanzas_in = 0
        self.reconnects = 0
        self.executes = Durations()
        self.refusals = Count()
        self.turns = Durations()
        self.model_calls = Durations()
        self.tokens = Count()
        self.usd = Count()
        self.tool_calls = Durations()

    def turn(self, agent: str, outcome: str, seconds: float) -> None:
        """A turn of an agent is over."""
        self.turns.add(seconds, agent, outcome)

    def model_call(self, model: str, outcome: str, seconds: float, usage: Usage) -> None:
        """A model was asked."""
        self.model_calls.add(seconds, model, outcome)
        if usage.tokens_in or usage.tokens_out:
            self.tokens.add(model, "in", by=usage.tokens_in)
            self.tokens.add(model, "out", by=usage.tokens_out)
        if usage.cost_usd:
            self.usd.add(model, by=usage.cost_usd)

    def tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        """A tool was called. Names that a model has made up are not told apart."""
        self.tool_calls.add(seconds, OTHER if outcome == "unknown" else tool, outcome)
