"""The types of the vendors' SDKs, which define valid requests and events."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import TypeAdapter


@cache
def _type(name: str) -> TypeAdapter[Any]:
    match name:
        case "messages request":
            from anthropic.types.message_create_params import MessageCreateParamsStreaming

            return TypeAdapter(MessageCreateParamsStreaming)
        case "messages event":
            from anthropic.types import RawMessageStreamEvent

            return TypeAdapter(RawMessageStreamEvent)
        case "messages document":
            from anthropic.types import Message

            return TypeAdapter(Message)
        case "responses request":
            from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

            return TypeAdapter(ResponseCreateParamsStreaming)
        case "responses event":
            from openai.types.responses import ResponseStreamEvent

            return TypeAdapter(ResponseStreamEvent)
        case "responses document":
            from openai.types.responses import Response

            return TypeAdapter(Response)
        case _:
            from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

            return TypeAdapter(CompletionCreateParamsStreaming)


def valid(name: str, value: Any) -> None:
    """Validate a value by a type; for a request, also check that the type has every key."""
    found = _whole(_type(name).validate_python(value))
    if name.endswith("request"):
        assert found == value


def _whole(value: Any) -> Any:
    """Iterables are validated while they are read."""
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_whole(each) for each in value]
    return value
