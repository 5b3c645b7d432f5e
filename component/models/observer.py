"""Reports of the agents' loop to the metrics and the traces."""

from component.metrics.counters import Counters
from component.metrics.traces import Tracer
from component.models.protocol import Usage


class Observer:
    """Counts, measures and traces turns. No method waits or raises; durations are in seconds.

    Attributes:
        turn: counts a turn that has stopped running, with the kind of its outcome.
        tool_call: counts a call of a tool: done, failed, waits, unknown, malformed, storage, broke.
    """

    def __init__(self, counters: Counters, tracer: Tracer) -> None:
        self.turn = counters.turn
        self.tool_call = counters.tool_call
        self.span = tracer.span
        self._counters = counters

    def model_call(self, model: str, outcome: str, seconds: float, usage: Usage) -> None:
        """Count a call of a model: done, dropped, overflow, unavailable, refused, broke."""
        counters = self._counters
        counters.model_calls.add(seconds, model, outcome)
        if usage.tokens_in or usage.tokens_out:
            counters.tokens.add(model, "in", by=usage.tokens_in)
            counters.tokens.add(model, "out", by=usage.tokens_out)
        for kind in ("cache_read", "cache_write", "reasoning"):
            if tokens := getattr(usage, kind):
                counters.tokens.add(model, kind, by=tokens)
        if usage.cost_usd:
            counters.usd.add(model, by=usage.cost_usd)
