"""Metrics: counters that are cheap to increase, and values that are read on request."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

BOUNDS_S: Final = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
"""Upper bounds of the histogram buckets for durations, in seconds."""
_MOST_LABELS: Final = 1000
"""Maximum number of label sets in one family, so that ever new names cannot fill the memory."""
OTHER: Final = "other"


Cell: TypeAlias = tuple[list[int], list[float]]
"""The count of each bucket, and a list of one number: the sum in seconds."""


class Count:
    """A counter for each set of labels."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        """Increase the counter of a set of labels. Sets above the limit count as `other`."""
        values = self._values
        if labels not in values and len(values) >= _MOST_LABELS:
            labels = (OTHER,) * len(labels)
        values[labels] = values.get(labels, 0) + by

    @property
    def values(self) -> Mapping[tuple[str, ...], float]:
        """The counts, by labels."""
        return self._values


class Durations:
    """A histogram of durations for each set of labels."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Cell] = {}

    def add(self, seconds: float, *labels: str) -> None:
        """Record a duration."""
        counts, total = self._known.get(labels) or self.cell(labels)
        counts[bisect_left(BOUNDS_S, seconds)] += 1
        total[0] += seconds

    def cell(self, labels: tuple[str, ...]) -> Cell:
        """The cell of a set of labels, for callers on hot paths."""
        known = self._known.get(labels)
        if known is None:
            if len(self._known) >= _MOST_LABELS:
                labels = (OTHER,) * len(labels)
            known = self._known.setdefault(labels, ([0] * (len(BOUNDS_S) + 1), [0.0]))
        return known

    @property
    def values(self) -> Mapping[tuple[str, ...], Cell]:
        """The counts of the buckets, not cumulative, and the sum in seconds, by labels."""
        return self._known


class Counters:
    """The counters of all packages. No method waits or raises; durations are in seconds.

    Attributes:
        stanzas_in: received stanzas.
        executes: by skill and outcome.
        refusals: by reason.
        turns: by agent and outcome.
        model_calls: by model and outcome.
        tokens: by model and `in` or `out`; `cache_read` and `cache_write` are those among `in`,
            `reasoning` those among `out`.
        usd: by model.
        tool_calls: by tool and outcome.
        reconnects: lost streams.
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
        """Count a turn that has ended."""
        self.turns.add(seconds, agent, outcome)

    def tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        """Count a tool call. Names that a model has invented count as `other`."""
        self.tool_calls.add(seconds, OTHER if outcome == "unknown" else tool, outcome)


class Gauge(msgspec.Struct, frozen=True):
    """A current value for each set of labels; the empty tuple if it has no labels.

    `total` says that it is a counter; its name then ends in `_total`.
    """

    name: str
    about: str
    values: Mapping[tuple[str, ...], float]
    labels: tuple[str, ...] = ()
    total: bool = False
