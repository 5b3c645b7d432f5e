"""The interface for metrics and traces of the loop."""

from contextlib import AbstractContextManager
from typing import Protocol

from component.metrics.traces import NOTHING, Span
from component.models.protocol import Usage


class Observer(Protocol):
    """Counts, measures and traces. No method waits or raises. Durations are in seconds."""

    def turn(self, agent: str, outcome: str, seconds: float) -> None:
        """Count a turn that has stopped running: answered, silent, delayed, excused, parked, asked,
        stopped, away, postponed, failed.
        """

    def model_call(self, model: str, outcome: str, seconds: float, usage: Usage) -> None:
        """Count a call of a model: done, dropped, overflow, unavailable, refused, broke."""

    def tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        """Count a tool call: done, failed, waits, unknown, malformed, storage, broke."""

    def span(self, name: str, **attributes: str) -> AbstractContextManager[Span]:
        """Open a span for the duration of the context: invoke_agent, chat, execute_tool."""


class NoObserver:
    """An observer that does nothing."""

    def turn(self, agent: str, outcome: str, seconds: float) -> None:
        """Do nothing."""

    def model_call(self, model: str, outcome: str, seconds: float, usage: Usage) -> None:
        """Do nothing."""

    def tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        """Do nothing."""

    def span(self, name: str, **attributes: str) -> AbstractContextManager[Span]:
        """Return a span that is not recorded."""
        return NOTHING
