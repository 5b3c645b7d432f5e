"""Requests that contain values which callers and models chose, and the effects of their methods.

A value never changes where a request goes: it is one segment of the path, a value in the query, or
one line of a header field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from component.config.rest import RestSkill, pieces_of
from component.config.skills import Effects
from component.http.gate import Headers, HttpRequest
from component.skills.errors import InvalidParam
from component.skills.spec import Annotations

Pieces: TypeAlias = tuple[tuple[str, str], ...]
JSON_BODY: Final[Headers] = (("Content-Type", "application/json"),)
ACCEPT: Final[Headers] = (("Accept", "application/json, */*;q=0.5"),)
_ABSENT: Final = object()
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HEADER_VALUE: Final = re.compile(r"([\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?)?")
_SLASHES: Final = re.compile(r"[/\\]")
_DOTS: Final = frozenset({".", ".."})


def value_text(value: Any) -> str:
    """Return a value as text: JSON, but for arrays, whose items are separated by commas."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ",".join(map(value_text, value))
    return msgspec.json.encode(value).decode()


def segment(name: str, value: Any) -> str:
    """Return a value as a segment of a path, percent-encoded (RFC 3986 §3.3).

    Raises InvalidParam if it is empty, or if a server could read it as several segments of which
    one leads upwards.
    """
    text = value_text(value)
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


def query_string(pairs: Iterable[tuple[str, str]]) -> str:
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


class RequestTemplate:
    """The template of a request."""

    def __init__(self, entry: RestSkill) -> None:
        parts = urlsplit(entry.url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self._method = entry.method
        self._path = pieces_of(entry.url[len(self.origin) :] or "/")
        self._query = {
            key: pieces_of(value.get_secret_value()) for key, value in entry.query.items()
        }
        self._headers = {
            key: pieces_of(value.get_secret_value()) for key, value in entry.headers.items()
        }
        self._body = entry.body

    def request(self, values: Mapping[str, Any]) -> HttpRequest:
        """Return the request for the arguments of a call; those that are None count as omitted.

        Raises InvalidParam for a value that cannot be where the template puts it.
        """
        given = {name: value for name, value in values.items() if value is not None}
        pairs = [
            (key, text)
            for key, pieces in self._query.items()
            if (text := _filled(pieces, given)) is not None
        ]
        headers = tuple(
            (key, header_value(key, text))
            for key, pieces in self._headers.items()
            if (text := _filled(pieces, given)) is not None
        )
        body = b"" if self._body is None else msgspec.json.encode(_json(self._body, given))
        return HttpRequest(
            url=self.origin + self._path_of(given) + query_string(pairs),
            method=self._method,
            headers=ACCEPT if self._body is None else (*ACCEPT, *JSON_BODY),
            body=body,
            secret_headers=headers,
        )

    def _path_of(self, given: Mapping[str, Any]) -> str:
        path = ""
        for literal, name in self._path:
            path += literal
            if name:
                if name not in given:
                    raise InvalidParam(name, "is part of the path and must be given")
                path += segment(name, given[name])
        return checked_path(path)


def _filled(pieces: Pieces, given: Mapping[str, Any]) -> str | None:
    """Return the text, or None if a parameter in it was omitted."""
    text = ""
    for literal, name in pieces:
        text += literal
        if name:
            if name not in given:
                return None
            text += value_text(given[name])
    return text


def _json(value: Any, given: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        pieces = pieces_of(value)
        if len(pieces) == 2 and pieces[0][0] == "" and pieces[1] == ("", ""):
            return given.get(pieces[0][1], _ABSENT)
        text = _filled(pieces, given)
        return _ABSENT if text is None else text
    if isinstance(value, Mapping):
        filled = {key: _json(each, given) for key, each in value.items()}
        return {key: each for key, each in filled.items() if each is not _ABSENT}
    if isinstance(value, list | tuple):
        members = [_json(each, given) for each in value]
        return [each for each in members if each is not _ABSENT]
    return value


def effects_of(method: str, said: Effects | None) -> Annotations:
    """Return the effects that an admin has said, or else those of the method (RFC 9110 §9.2)."""
    read_only = method in ("GET", "HEAD")
    idempotent = read_only or method in ("PUT", "DELETE")
    destructive = None
    if said is not None:
        read_only = read_only if said.read_only is None else said.read_only
        idempotent = idempotent if said.idempotent is None else said.idempotent
        destructive = said.destructive
        if destructive:
            read_only = False
    return Annotations.of(
        read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=True
    )
