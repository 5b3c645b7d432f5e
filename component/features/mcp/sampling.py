"""Requests of a server to a language model (MCP 2025-11-25, Sampling)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from component.features.mcp.texts import clean

_LONGEST: Final = 20_000
_MOST_TOKENS: Final = 2048

ANSWER: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "The answer."}},
    "required": ["text"],
}
"""The JSON Schema of the model's answer."""


def prompt_of(request: Mapping[str, Any]) -> str:
    """Return the texts of a request as one prompt.

    Raises ValueError if it has anything but texts.
    """
    parts = []
    if isinstance(system := request.get("systemPrompt"), str):
        parts.append(system)
    for message in request.get("messages", ()):
        content = message.get("content")
        blocks = content if isinstance(content, Sequence) else (content,)
        for block in blocks:
            if not isinstance(block, Mapping) or block.get("type") != "text":
                raise ValueError("only texts can be given to the model")
            role = "Assistant" if message.get("role") == "assistant" else "User"
            parts.append(f"{role}: {block.get('text', '')}")
    return clean("\n\n".join(parts), _LONGEST)


def tokens_of(request: Mapping[str, Any]) -> int:
    """Return the maximum number of tokens of the answer."""
    wanted = request.get("maxTokens")
    return min(max(wanted, 1), _MOST_TOKENS) if isinstance(wanted, int) else _MOST_TOKENS


def reply_of(text: str) -> dict[str, Any]:
    """Return the answer in the form of the protocol."""
    return {
        "role": "assistant",
        "content": {"type": "text", "text": text},
        "model": "agent",
        "stopReason": "endTurn",
    }
