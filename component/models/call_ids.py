"""Ids of tool calls, where a model gives none or the same one twice."""

import secrets
from collections.abc import Iterable

from component.models.protocol import ModelRequest, ToolCall


def taken(request: ModelRequest) -> set[str]:
    """Give the ids that the conversation has already."""
    return {call.id for message in request.messages for call in message.tool_calls}


def distinct(calls: Iterable[ToolCall], used: set[str]) -> tuple[ToolCall, ...]:
    """Give the calls, each with an id of its own.

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
