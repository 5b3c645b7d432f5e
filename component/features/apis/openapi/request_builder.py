"""Builds the request of an operation from the arguments of a call (OpenAPI 3.1 §4.8.12)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from component.features.apis.openapi.operations import Operation, Parameter
from component.features.apis.openapi.security import Granted
from component.http.gate import Headers, HttpRequest
from component.rest.parts import checked_path, header_value, query_of, segment, text_of
from component.rest.template import ACCEPT
from component.skills.errors import InvalidParam

_PLACEHOLDER: Final = re.compile(r"\{([^{}/]+)\}")
_OUTSIDE: Final = ("path", "query", "header")
_SEPARATORS: Final = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}


class RequestBuilder:
    """Builds the requests of an operation.

    Args:
        base: the URL of the server, without a slash at the end.
        operation: the operation.
        credentials: what each request gets.
        headers: header fields that each request gets.
    """

    def __init__(
        self, base: str, operation: Operation, credentials: Granted, headers: Headers = ()
    ) -> None:
        self._base = base
        self._operation = operation
        self._credentials = credentials
        self._headers = headers
        reserved = [each.wire for each in operation.parameters if each.place == "query"]
        self._reserved = frozenset([*reserved, *(name for name, _ in credentials.query)])

    def request(self, values: Mapping[str, Any]) -> HttpRequest:
        """Return the request. Raises InvalidParam for a value that cannot be where it belongs."""
        operation = self._operation
        given = [
            (each, values[each.name])
            for each in operation.parameters
            if values.get(each.name) is not None
        ]
        pairs = [
            pair
            for each, value in given
            if each.place == "query"
            for pair in self._pairs(each, value)
        ]
        body = _body(operation, [pair for pair in given if pair[0].place not in _OUTSIDE])
        content: Headers = (("Content-Type", operation.media_type),) if body is not None else ()
        return HttpRequest(
            url=self._base + self._path(given) + query_of([*pairs, *self._credentials.query]),
            method=operation.method,
            headers=(*ACCEPT, *content, *_header_fields(given)),
            body=body or b"",
            secret_headers=(*self._headers, *self._credentials.headers),
        )

    def _path(self, given: list[tuple[Parameter, Any]]) -> str:
        values = {each.wire: (each, value) for each, value in given if each.place == "path"}

        def filled(found: re.Match[str]) -> str:
            if found[1] not in values:
                raise InvalidParam(None, "a parameter of the path is missing")
            each, value = values[found[1]]
            return segment(each.name, _text(each, value))

        return checked_path(_PLACEHOLDER.sub(filled, self._operation.path))

    def _pairs(self, each: Parameter, value: Any) -> Iterator[tuple[str, str]]:
        if each.as_json or not isinstance(value, list | dict):
            yield each.wire, _text(each, value)
        elif isinstance(value, list):
            if each.explode and each.style == "form":
                yield from ((each.wire, text_of(member)) for member in value)
            elif value:
                yield each.wire, _SEPARATORS.get(each.style, ",").join(map(text_of, value))
        elif each.style == "deepObject":
            yield from ((f"{each.wire}[{key}]", text_of(member)) for key, member in value.items())
        elif each.explode:
            for key, member in value.items():
                if key in self._reserved:
                    raise InvalidParam(each.name, f"must not have the member {key!r}")
                yield key, text_of(member)
        else:
            yield each.wire, ",".join(part for key in value for part in (key, text_of(value[key])))


def _header_fields(given: list[tuple[Parameter, Any]]) -> Headers:
    return tuple(
        (each.wire, header_value(each.name, _text(each, value)))
        for each, value in given
        if each.place == "header"
    )


def _body(operation: Operation, given: list[tuple[Parameter, Any]]) -> bytes | None:
    """Return the body, or None if none of its parameters is given."""
    if not given:
        return None
    fields = {each.wire: value for each, value in given if each.place == "field"}
    for each, value in given:
        if each.place == "text":
            return str(value).encode(errors="replace")
        if each.place in ("json", "form"):
            fields = value
    if "json" in operation.media_type:
        return msgspec.json.encode(fields)
    if not isinstance(fields, dict):
        raise InvalidParam(given[0][0].name, "must be an object")
    pairs = [
        (key, text_of(member))
        for key, value in fields.items()
        for member in (value if isinstance(value, list) else [value])
        if member is not None
    ]
    return urlencode(pairs, errors="replace").encode()


def _text(each: Parameter, value: Any) -> str:
    return msgspec.json.encode(value).decode() if each.as_json else text_of(value)
