"""Parts of requests that contain values which callers and models chose.

A value never changes where a request goes: it is one segment of the path, a value in the query, or
one line of a header field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import msgspec

from component.skills.errors import InvalidParam

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HEADER_VALUE: Final = re.compile(r"([\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?)?")
_SLASHES: Final = re.compile(r"[/\\]")
_DOTS: Final = frozenset({".", ".."})


def text_of(value: Any) -> str:
    """Return a value as text: numbers and true or false as in JSON, arrays separated by commas,
    objects as JSON.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ",".join(map(text_of, value))
    return msgspec.json.encode(value).decode()


def segment(name: str, value: Any) -> str:
    """Return a value as a segment of a path, percent-encoded (RFC 3986 §3.3).

    Raises InvalidParam if it is empty, or if a server could read it as several segments of which
    one leads upwards.
    """
    text = text_of(value)
    if not text:
        raise InvalidParam(name, "is part of a path and must not be empty")
    if _CONTROL.search(text):
        raise InvalidParam(name, "is part of a path and must not have control characters")
    # Some servers decode %2F before they look for dots, and some decode twice.
    if any(part in _DOTS for part in _SLASHES.split(_decoded(text))):
        raise InvalidParam(name, "is part of a path and must not contain . or .. between slashes")
    return _encoded(name, text)


def checked_path(path: str) -> str:
    """Return a path that was put together. Raises InvalidParam if a segment of it leads upwards,
    which two values beside each other can cause.
    """
    if any(part in _DOTS for part in _SLASHES.split(_decoded(path))):
        raise InvalidParam(None, "the parameters make a path that leads upwards")
    return path


def query_of(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the query of a URL with its question mark, or an empty text."""
    try:
        query = urlencode(list(pairs), quote_via=quote)
    except UnicodeEncodeError:
        raise InvalidParam(None, "a text has half of a surrogate pair") from None
    return f"?{query}" if query else ""


def header_value(name: str, text: str) -> str:
    """Return a text that can be the value of a header field (RFC 9110 §5.5). Raises InvalidParam
    for other characters, such as the end of a line.
    """
    if not _HEADER_VALUE.fullmatch(text):
        raise InvalidParam(name, "has characters that a header field cannot have")
    return text


def _decoded(text: str) -> str:
    for _ in range(3):
        if "%" not in text:
            break
        text = unquote(text)
    return text


def _encoded(name: str, text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise InvalidParam(name, "has half of a surrogate pair") from None
