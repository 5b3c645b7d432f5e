"""Builds the request of an operation from the arguments of a call (OpenAPI 3.1 §4.8.12)."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from component.features.apis.openapi_document import Document, Unusable, mapping
from component.features.apis.openapi_operations import Operation, Parameter
from component.http.gate import Headers, HttpRequest
from component.rest.template import ACCEPT, checked_path, header_value, query_of, segment, text_of
from component.skills.errors import InvalidParam

Pairs = tuple[tuple[str, str], ...]
_NAMES: Final = frozenset(
    "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)


class Granted(msgspec.Struct, frozen=True):
    """The credentials that a request gets: header fields, and fields of the query."""

    headers: Pairs = ()
    query: Pairs = ()


def granted(
    document: Document, alternatives: Sequence[Sequence[str]], secrets: Mapping[str, str]
) -> Granted:
    """Return the credentials for an operation: those of the first alternative that the settings
    satisfy.

    Raises Unusable if they satisfy none.
    """
    if not alternatives:
        return Granted()
    # An empty alternative says that credentials are optional: those that there are are better.
    for needed in sorted(alternatives, key=lambda each: not each):
        if all(name in secrets for name in needed):
            schemes = mapping(mapping(document.root.get("components")).get("securitySchemes"))
            headers: Pairs = ()
            query: Pairs = ()
            for name in needed:
                one = _applied(document, schemes.get(name), name, secrets[name])
                headers, query = headers + one.headers, query + one.query
            return Granted(headers, query)
    names = " or ".join(" and ".join(each) for each in alternatives)
    raise Unusable(f"needs credentials for {names}, which the settings do not have")


def _applied(document: Document, node: object, name: str, secret: str) -> Granted:
    scheme = document.node(node)
    kind = str(scheme.get("type"))
    if kind == "apiKey":
        field, place = scheme.get("name"), scheme.get("in")
        if isinstance(field, str) and field:
            if place == "header" and set(field) <= _NAMES:
                return Granted(headers=((field, _value(name, secret)),))
            if place == "query":
                return Granted(query=((field, secret),))
    elif kind == "http" and str(scheme.get("scheme")).lower() == "basic":
        encoded = base64.b64encode(secret.encode()).decode()
        return Granted(headers=(("Authorization", f"Basic {encoded}"),))
    elif kind in ("oauth2", "openIdConnect") or str(scheme.get("scheme")).lower() == "bearer":
        return Granted(headers=(("Authorization", f"Bearer {_value(name, secret)}"),))
    raise Unusable(f"needs credentials of the kind of {name}, which are not supported")


def _value(name: str, secret: str) -> str:
    try:
        return header_value(name, secret)
    except InvalidParam:
        raise Unusable(f"needs {name}, whose value in the settings no header can have") from None


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
