"""What a provider takes of a request, and how it calls it: some is known, some it has refused."""

from typing import Any, Final

import msgspec
import structlog

from component.models.catalog import Target
from component.models.chat_request import asked_to, led, message_of, wishes
from component.models.faults import Fault
from component.models.protocol import ModelRequest
from component.models.tool_names import ToolNames

_log = structlog.get_logger("component.models")

_SPARED: Final = ("stream_options", "temperature", "response_format")
"""What a request may be sent without."""


class Dialect:
    """Writes the requests for one model. What it has once refused it is not sent again."""

    def __init__(self, target: Target) -> None:
        self._choice = target.choice
        self._where = target.where
        self._left_out: set[str] = set()
        self._is_openai = target.official and target.choice.provider == "openai"
        self._max_tokens = "max_completion_tokens" if self._is_openai else "max_tokens"
        self._swapped = False
        if not target.preset.holds_schema:
            self._left_out.add("response_format")

    def body(self, request: ModelRequest, names: ToolNames) -> bytes:
        """The body of a request for a stream, as JSON."""
        choice = self._choice
        held = "response_format" not in self._left_out
        messages = request.messages if held else asked_to(request)
        body: dict[str, Any] = {
            "model": choice.model,
            "messages": [
                message_of(message, names)
                for message in (messages if self._is_openai else led(messages))
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
            self._max_tokens: min(request.max_tokens, choice.max_tokens_per_request),
            **wishes(request, names, choice.temperature),
        }
        for key in self._left_out:
            body.pop(key, None)
        return msgspec.json.encode(body)

    def leave_out(self, fault: Fault) -> bool:
        """Do without what the provider does not take; False if it is nothing that can be spared."""
        if not self._swapped and fault.blames(self._max_tokens):
            # Older servers know the one name only, newer models of OpenAI the other.
            self._swapped = True
            old = self._max_tokens == "max_tokens"
            self._max_tokens = "max_completion_tokens" if old else "max_tokens"
            return True
        for key in _SPARED:
            if key not in self._left_out and fault.blames(key):
                self._left_out.add(key)
                _log.warning(
                    "the model does without",
                    parameter=key,
                    model=self._choice.model,
                    url=self._where.url,
                )
                return True
        return False
