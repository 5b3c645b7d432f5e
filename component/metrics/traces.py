"""Traces of what agents do, after the GenAI semantic conventions of OpenTelemetry.

A turn is the span `invoke_agent`, a call of a model in it `chat`, a call of a tool `execute_tool`.
What was said, asked or answered is in none of them.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Tracer(Protocol):
    """Makes spans."""

    def span(self, name: str, **attributes: str) -> AbstractContextManager[object]:
        """A span for the time of the context, within the one that is open; an error ends it so.

        `name` is `invoke_agent` (agent, turn), `chat` (model) or `execute_tool` (tool, call).
        """

    async def close(self) -> None:
        """Send what is left. Never raises."""


_NOTHING: AbstractContextManager[None] = nullcontext()


class NoTracer:
    """Traces nothing, and costs nothing."""

    def span(self, name: str, **attributes: str) -> AbstractContextManager[object]:
        """Nothing is traced."""
        return _NOTHING

    async def close(self) -> None:
        """Nothing is left."""


class TracesError(Exception):
    """Traces cannot be made; the message says what to install or to set."""


def make_tracer(endpoint: str, authorization: str, sample: float, version: str) -> Tracer:
    """A tracer that sends to a collector (OTLP over HTTP), or one that does nothing if none is set.

    `endpoint` is the base address of the collector, `authorization` the header that it asks for if
    any, `sample` the part of the turns that is traced. Raises TracesError if the extra is missing.
    """
    if not endpoint:
        return NoTracer()
    try:
        from component.metrics.otel import OTelTracer  # noqa: PLC0415 - only who asked for it
    except ImportError as error:
        raise TracesError(
            f"traces.endpoint is set, and {error.name} is not installed: install the `otel` extra"
            " (pip install 'xmpp-agent-component[otel]'), or remove the key."
        ) from error
    return OTelTracer(endpoint, authorization, sample, version)
