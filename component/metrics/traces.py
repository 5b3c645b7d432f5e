"""Traces of turns, following the GenAI semantic conventions of OpenTelemetry.

A turn is the span `invoke_agent`, a model call in it `chat`, a tool call `execute_tool`. Spans do
not contain messages, prompts or results.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Final

from component.config.service import Traces


class Span:
    """An open span. This one is not recorded; `component.metrics.otel` has one that is."""

    def set_attributes(self, **attributes: str | int) -> None:
        """Add attributes; for `chat`: answered_by (a model), tokens_in, tokens_out,
        cache_read, cache_write, reasoning.
        """


class Tracer:
    """Creates spans. This one records nothing; `component.metrics.otel` has one that does."""

    def span(self, name: str, **attributes: str) -> AbstractContextManager[Span]:
        """Open a child of the current span for the duration of the context; an error marks it.

        `name` is `invoke_agent` (agent, turn), `chat` (model) or `execute_tool` (tool, call).
        """
        return _NOT_RECORDED

    async def close(self) -> None:
        """Send the remaining spans. Never raises."""


_NOT_RECORDED: Final[AbstractContextManager[Span]] = nullcontext(Span())
"""It can be used any number of times."""


class TracesError(Exception):
    """Traces cannot be sent; the message says what to install or to set."""


def make_tracer(
    settings: Traces, version: str, providers: Mapping[str, str] = MappingProxyType({})
) -> Tracer:
    """Create a tracer that sends by OTLP over HTTP, or does nothing without an endpoint.

    `version` is that of this release. `providers` has the provider of each model by its name, and
    that of all others under "". Raises TracesError if the extra is missing.
    """
    if not settings.endpoint:
        return Tracer()
    try:
        from component.metrics.otel import OTelTracer  # noqa: PLC0415 - only if it is enabled
    except ImportError as error:
        raise TracesError(
            f"traces.endpoint is set, but {error.name} is not installed: install the `otel` extra"
            " (pip install 'xmpp-agent-component[otel]'), or remove the key."
        ) from error
    return OTelTracer(settings, version, providers)
