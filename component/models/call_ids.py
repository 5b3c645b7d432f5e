"""Unique ids of tool calls, for models that omit or repeat them."""

import secrets
from collections.abc import Iterable

from component.models.messages import ToolCall
from component.models.protocol import ModelRequest


def taken(request: ModelRequest) -> set[str]:
    """Return the ids in the conversation."""
    return {call.id for message in request.messages for call in message.tool_calls}


def distinct(calls: Iterable[ToolCall], used: set[str]) -> tuple[ToolCall, ...]:
    """Return the calls with unique ids.

    Servers number calls from 0 in every answer, or leave ids out. A result is joined to its call
    by the id alone, so one that is empty or in `used` is replaced by a random one.
    """
    out = []
    used = set(used)
    for call in calls:
        id_ = call.id
        while not id_ or id_ in used:
            id_ = f"call_{secrets.token_hex(8)}"
        used.add(id_)
        out.append(call if id_ == call.id else ToolCall(id_, call.name, call.arguments))
    return tuple(out)
