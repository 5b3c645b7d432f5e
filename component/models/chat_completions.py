"""The dialect of OpenAI's chat completions, which most providers and local servers understand."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from component.models.adapter import SDK
from component.models.catalog import Target
from component.models.chat_quirks import Quirks
from component.models.chat_request import (
    asked_to,
    chat_messages,
    join_adjacent,
    normalize_roles,
    optional_params,
)
from component.models.chat_text import Habits, TextReader, mixed_text
from component.models.contents import IMAGES, PDF, adapted
from component.models.faults import Fault
from component.models.gathering import Gathering
from component.models.options import LeftOut, merged
from component.models.protocol import ModelRequest, OnText
from component.models.tool_names import ToolNames

_OPTIONAL: Final = (
    "stream_options",
    "temperature",
    "response_format",
    "tool_choice",
    "reasoning_effort",
)


class ChatCompletions:
    """The chat completions of one model; see Adapter."""

    sdk: SDK = "openai"
    path = "/chat/completions"
    headers: Mapping[str, str] = {}

    def __init__(self, target: Target) -> None:
        self.origin = f"chat/{target.choice.model}"
        self._target = target
        self._left_out = LeftOut(target, _OPTIONAL)
        self._is_openai = target.official and target.choice.provider == "openai"
        self._max_tokens = "max_completion_tokens" if self._is_openai else "max_tokens"
        self._swapped = False
        self._habits = Habits(target.choice.model)
        self._quirks = Quirks()

    def body(self, request: ModelRequest, names: ToolNames) -> bytes:
        """The body of a request; see Adapter.body."""
        choice = self._target.choice
        in_words = "response_format" in self._left_out
        messages = asked_to(request) if in_words else request.messages
        if not self._is_openai:
            messages = self._quirks.arranged(join_adjacent(normalize_roles(messages)))
        messages = adapted(
            messages,
            self.origin,
            images=IMAGES if self._target.vision else (),
            files=PDF if self._is_openai else (),
        )
        body: dict[str, Any] = {
            "model": choice.model,
            "messages": self._quirks.written(chat_messages(messages, names)),
            "stream": True,
            "stream_options": {"include_usage": True},
            self._max_tokens: min(request.max_tokens, choice.max_tokens_per_request),
            **optional_params(request, names, choice.temperature),
        }
        if choice.reasoning_effort is not None:
            body["reasoning_effort"] = choice.reasoning_effort
        self._left_out.remove_from(body)
        return msgspec.json.encode(merged(body, choice.extra_body))

    def reader(self, request: ModelRequest, names: ToolNames, on_text: OnText | None) -> Gathering:
        """A reader of one answer."""
        text = self.text_reader(request, names)
        return Gathering(on_text, tells_cost=self._target.preset.tells_cost, text=text)

    def text_reader(self, request: ModelRequest, names: ToolNames) -> TextReader | None:
        """Make the reader for the text of an answer; None if it is plain text."""
        return None if self._is_openai else mixed_text(request, names, self._habits)

    def leave_out(self, fault: Fault) -> bool:
        """Stop sending what the provider rejects; see Adapter.leave_out."""
        if not self._swapped and fault.blames(self._max_tokens):
            # Older servers know the one name only, newer models of OpenAI the other.
            self._swapped = True
            old = self._max_tokens == "max_tokens"
            self._max_tokens = "max_completion_tokens" if old else "max_tokens"
            return True
        return self._quirks.learn(fault) or self._left_out.add(fault)
