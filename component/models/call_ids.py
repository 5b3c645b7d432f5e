"""Ids of tool calls: unique ones, for models that omit or repeat them, and those that every API
takes.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from component import system
from component.models.messages import ToolCall
from component.models.protocol import ModelRequest

_PORTABLE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")


def is_portable(id_: str) -> bool:
    """Whether every API takes an id: OpenAI takes 40 characters, Anthropic no symbols."""
    return _PORTABLE.fullmatch(id_) is not None


def portable(id_: str) -> str:
    """Return an id that every API takes, the same for the same id."""
    if is_portable(id_):
        return id_
    return "call_" + hashlib.sha256(id_.encode(errors="replace")).hexdigest()[:24]


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
            id_ = f"call_{system.token_hex(8)}"
        used.add(id_)
        out.append(call if id_ == call.id else ToolCall(id_, call.name, call.arguments))
    return tuple(out)
