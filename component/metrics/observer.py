"""Reports of the agents' loop to the metrics and the traces."""

from component.metrics.counters import Counters
from component.metrics.traces import Tracer


class Observer:
    """Counts, measures and traces turns. No method waits or raises; durations are in seconds.

    Attributes:
        turn: counts a turn that has stopped running, with the kind of its outcome.
        model_call: counts a call of a model: done, dropped, overflow, unavailable, refused, broke.
        tool_call: counts a call of a tool: done, failed, waits, unknown, malformed, storage, broke.
        span: opens a span of a trace.
    """

    def __init__(self, counters: Counters, tracer: Tracer) -> None:
        self.turn = counters.turn
        self.model_call = counters.model_call
        self.tool_call = counters.tool_call
        self.span = tracer.span
