"""Why a model stopped, as providers write it, and what follows from it for the calls of an answer.

Chat completions and messages share the table, because gateways translate one into the other.
"""

from collections.abc import Mapping
from typing import Final

from component.models.answer_draft import AnswerDraft
from component.models.protocol import Finish

_COMPLETE: Final = frozenset(
    (
        *("stop", "tool_calls", "tool_call", "function_call", "tool_use", "end_turn", "eos"),
        *("eos_token", "stop_sequence", "pause_turn", "completed", "complete", "done"),
    )
)
"""The model was done, or calls tools."""
_INCOMPLETE: Final[Mapping[str, Finish]] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",  # Anthropic, Zhipu
    "context_length_exceeded": "length",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",  # Bedrock
    "refusal": "content_filter",
    "safety": "content_filter",
    "prohibited_content": "content_filter",  # Gemini, as the two below
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "sensitive": "content_filter",  # Zhipu
}
_FAILED: Final = frozenset(
    (
        "error",  # OpenRouter: a fault of the provider behind it
        *("abort", "aborted", "cancelled", "canceled"),  # vLLM, SGLang
        *("insufficient_system_resource", "network_error", "timeout"),  # DeepSeek, Zhipu
        *("engine_error", "internal_error"),
        "malformed_function_call",  # Gemini: the model has written a call that nobody can read
    )
)


def end(draft: AnswerDraft, reason: str) -> None:
    """Record why the model stopped.

    After a reason that is not known the text counts, and a call without arguments does not: they
    may be missing.
    """
    reason = reason.lower()
    draft.finish(_INCOMPLETE.get(reason), calls_whole=reason in _COMPLETE)
    draft.failed = reason in _FAILED
