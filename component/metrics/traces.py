"""Traces of what agents do, after the GenAI semantic conventions of OpenTelemetry.

A turn is the span `invoke_agent`, a call of a model in it `chat`, a call of a tool `execute_tool`.
What was said, asked or answered is in none of them.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Final, Protocol


class Span(Protocol):
    """One part of a trace, while it is open."""

    def tell(self, **attributes: str | int) -> None:
        """Add what is known by now, of `chat`: answered_by (a model), tokens_in, tokens_out."""


class Tracer(Protocol):
    """Makes spans."""

    def span(self, name: str, **attributes: str) -> AbstractContextManager[Span]:
        """A span for the time of the context, within the one that is open; an error ends it so.

        `name` is `invoke_agent` (agent, turn), `chat` (model) or `execute_tool` (tool, call).
        """

    async def close(self) -> None:
        """Send what is left. Never raises."""


class NoSpan:
    """What nobody traces."""

    def tell(self, **attributes: str | int) -> None:
        """Nothing is traced."""


NOTHING: Final[AbstractContextManager[Span]] = nullcontext(NoSpan())
"""The span of nothing; it holds nothing and serves any number of times."""


class NoTracer:
    """Traces nothing, and costs nothing."""

    def span(self, name: str, **attributes: str) -> AbstractContextManager[Span]:
        """Nothing is traced."""
        return NOTHING

    async def close(self) -> None:
        """Nothing is left."""


class TracesError(Exception):
    """Traces cannot be made; the message says what to install or to set."""


def make_tracer(
    endpoint: str,
    authorization: str,
    sample: float,
    version: str,
    providers: Mapping[str, str] = MappingProxyType({}),
) -> Tracer:
    """A tracer that sends to a collector (OTLP over HTTP), or one that does nothing if none is set.

    `endpoint` is the base address of the collector, `authorization` the header that it asks for if
    any, `sample` the part of the turns that is traced. `providers` has the provider of each model
    by its name, and that of all others under "". Raises TracesError if the extra is missing.
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
    return OTelTracer(endpoint, authorization, sample, version, providers)
