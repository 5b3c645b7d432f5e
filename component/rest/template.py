"""The template of a skill's request, and the effects of its method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from component.rest.parts import checked_path, header_value, query_of, segment, text_of
from component.sandbox.http_gate import Headers, HttpRequest
from component.settings.rest import pieces_of
from component.skills.errors import InvalidParam
from component.skills.spec import Annotations

if TYPE_CHECKING:
    from component.settings.rest import RestSkill
    from component.settings.skills import Effects

Pieces: TypeAlias = tuple[tuple[str, str], ...]
JSON_BODY: Final[Headers] = (("Content-Type", "application/json"),)
ACCEPT: Final[Headers] = (("Accept", "application/json, */*;q=0.5"),)
_ABSENT: Final = object()


class RequestTemplate:
    """The template of a request.

    Args:
        entry: the section of the settings.
    """

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
            url=self.origin + self._path_of(given) + query_of(pairs),
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
            text += text_of(given[name])
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
    """Return the effects of a request: those that an admin has said, and for the others those of
    its method (RFC 9110 §9.2).
    """
    read_only = method in ("GET", "HEAD")
    idempotent = read_only or method in ("PUT", "DELETE")
    destructive = None
    if said is not None:
        read_only = read_only if said.read_only is None else said.read_only
        idempotent = idempotent if said.idempotent is None else said.idempotent
        destructive = said.destructive
        if destructive:
            read_only = False
    return Annotations(
        read_only=read_only,
        destructive=not read_only if destructive is None else destructive,
        idempotent=idempotent,
        open_world=True,
    )
