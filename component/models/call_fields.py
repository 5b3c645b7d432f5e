"""What a provider sends beside a tool call, and wants back with it: a signature, reasoning, an id
of its own form.

It is an opaque part before the call, `{"tool_call": {…}}`, so it goes back to the model that it
came from, and to no other.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from component.models.messages import OpaquePart, Part, ToolCall
from component.models.tolerant_json import BadJSONError, encode_any

_BEGINNING: Final = b'{"tool_call":'
_TEXT: Final = re.compile(r"reason|think|thought", re.IGNORECASE)
_SIGNED: Final = re.compile(r"signature|encrypted|_id$|^id$", re.IGNORECASE)


def encoded_fields(fields: Mapping[str, Any]) -> bytes | None:
    """Encode the fields of a call as the data of an opaque part; None if they cannot be sent."""
    try:
        data = encode_any({"tool_call": fields})
        msgspec.json.decode(data)
    except (BadJSONError, msgspec.DecodeError):
        return None  # halves of characters, or nested too deeply
    return data


def with_fields(parts: Iterable[Part]) -> Iterator[tuple[Part, Mapping[str, Any]]]:
    """Yield the parts of a message, each call with the fields that belong to it."""
    pending: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, OpaquePart) and bytes(part.data).startswith(_BEGINNING):
            found = msgspec.json.decode(part.data)["tool_call"]
            pending |= found if isinstance(found, dict) else {}
        elif isinstance(part, ToolCall):
            yield part, pending
            pending = {}
        else:
            yield part, {}


def add_fields(known: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add the fields of a piece of a stream: texts of reasoning grow, objects are merged, and of
    other values the latest counts.
    """
    for key, value in more.items():
        before = known.get(key)
        if isinstance(before, str) and isinstance(value, str) and _grows(key):
            known[key] = before + value
        elif isinstance(before, dict) and isinstance(value, dict):
            add_fields(before, value)
        elif isinstance(before, list) and isinstance(value, list) and value != before:
            known[key] = [*before, *value]
        elif value is not None:
            known[key] = value


def _grows(key: str) -> bool:
    return _TEXT.search(key) is not None and _SIGNED.search(key) is None
