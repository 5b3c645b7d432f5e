"""What the loop tells about itself, for metrics and traces. Nobody has to listen."""

from contextlib import AbstractContextManager
from typing import Protocol

from component.metrics.traces import NOTHING, Span
from component.models.protocol import Usage


class Observer(Protocol):
    """Counts, measures and traces. Nothing here waits or raises. Seconds throughout."""

    def turn(self, agent: str, outcome: str, seconds: float) -> None:
        """A turn is over: answered, silent, delayed, excused, parked, stopped, away,
        postponed, failed."""

    def model_call(self, model: str, outcome: str, seconds: float, usage: Usage) -> None:
        """A model was asked: done, dropped, overflow, unavailable, refused, broke."""

    def tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        """A tool was called: done, failed, waits, unknown, malformed, storage, broke."""

    def span(self, name: str, **attributes: str) -> AbstractContextManager[Span]:
        """A part of a trace, for the time of the context: invoke_agent, chat, execute_tool."""


class NoObserver:
    """Nobody listens."""

    def turn(self, agent: str, outcome: str, seconds: float) -> None:
        """Nothing is counted."""

    def model_call(self, model: str, outcome: str, seconds: float, usage: Usage) -> None:
        """Nothing is counted."""

    def tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        """Nothing is counted."""

    def span(self, name: str, **attributes: str) -> AbstractContextManager[Span]:
        """Nothing is traced."""
        return NOTHING
