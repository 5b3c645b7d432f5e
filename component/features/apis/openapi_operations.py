"""The operations of an OpenAPI document: what they take, their credentials, and their requests."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlencode

import msgspec

from component.features.apis.openapi_document import (
    JsonObject,
    OpenApiDocument,
    SchemaConverter,
    Unusable,
    array,
    bounded_text,
    mapping,
)
from component.http.gate import Headers, HttpRequest
from component.rest.template import (
    ACCEPT,
    checked_path,
    header_value,
    query_string,
    segment,
    value_text,
)
from component.skills.errors import InvalidParam
from component.skills.outputs import is_json
from component.skills.spec import Schema

ParameterPlace: TypeAlias = Literal["path", "query", "header", "json", "form", "text", "field"]

METHODS: Final = ("get", "head", "post", "put", "patch", "delete")
_PATH: Final = re.compile(r"/[^\s?#\\\x00-\x1f\x7f]{0,1000}")
_PLACEHOLDER: Final = re.compile(r"\{([^{}/]+)\}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A name of a header field (RFC 9110 §5.6.2)."""
_IGNORED_HEADERS: Final = frozenset({"accept", "content-type", "authorization"})
"""Header parameters that OpenAPI ignores: they are a matter of bodies and security."""
_FORBIDDEN_HEADERS: Final = re.compile(
    "connection|content-length|cookie|expect|forwarded|host|keep-alive|origin|proxy-authorization"
    "|te|trailer|transfer-encoding|upgrade|via"
)
_STYLES: Final = {
    "path": ("simple",),
    "header": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
}
_MOST_PARAMETERS: Final = 100
_BODY: Final = "body"
_OUTSIDE: Final = ("path", "query", "header")
_SEPARATORS: Final = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}


class Parameter(msgspec.Struct, frozen=True):
    """A parameter. `name` is that of the skill, `wire` that of the API.

    `place` is where it goes: `field` is a member of a JSON object or a form that the fields make
    together; `json`, `form` and `bounded_text` are the whole body.
    """

    name: str
    wire: str
    place: ParameterPlace
    required: bool
    schema: Any
    style: str = "form"
    explode: bool = True
    as_json: bool = False


class Operation(msgspec.Struct, frozen=True):
    """An operation. `security` are alternatives, each the names of the schemes that it needs."""

    id: str
    method: str
    path: str
    title: str
    description: str
    tags: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    definitions: dict[str, Schema]
    media_type: str
    security: tuple[tuple[str, ...], ...]
    servers: tuple[Any, ...]

    @property
    def schema(self) -> Schema:
        """The JSON Schema of the parameters of the skill."""
        schema: Schema = {
            "type": "object",
            "properties": {each.name: each.schema for each in self.parameters},
            "required": [each.name for each in self.parameters if each.required],
            "additionalProperties": False,
        }
        return schema | ({"$defs": self.definitions} if self.definitions else {})


class ListedOperation(msgspec.Struct, frozen=True):
    """An operation of a document. `shared` is what all operations of its path have in common."""

    id: str
    method: str
    path: str
    tags: tuple[str, ...]
    node: JsonObject
    shared: JsonObject


def entries_of(document: OpenApiDocument) -> Iterator[ListedOperation]:
    """Yield the operations that a document lists."""
    for path, shared in document.root["paths"].items():
        if not isinstance(shared, dict):
            continue
        for method in METHODS:
            node = shared.get(method)
            if isinstance(node, dict):
                tags = (bounded_text(tag, 64) for tag in array(node.get("tags")))
                said = tuple(filter(None, tags))
                yield ListedOperation(_id(node, method, path), method, path, said, node, shared)


def read_operation(document: OpenApiDocument, entry: ListedOperation) -> Operation:
    """Read an operation. Raises Unusable."""
    return _Reader(document, entry).operation()


class _Reader:
    def __init__(self, document: OpenApiDocument, entry: ListedOperation) -> None:
        self._document = document
        self._entry = entry
        self._converter = SchemaConverter(document)
        self._taken: set[str] = set()
        """The names of parameters."""

    def operation(self) -> Operation:
        """Return the operation."""
        entry, node = self._entry, self._entry.node
        if not entry.id:
            raise Unusable("has an id without a letter")
        _check_path(entry.path)
        parameters = list(self._parameters())
        in_path = {each.wire for each in parameters if each.place == "path"}
        if missing := set(_PLACEHOLDER.findall(entry.path)) - in_path:
            raise Unusable(f"does not describe the parameter {min(missing)[:64]!r} of its path")
        media_type = ""
        if "requestBody" in node and entry.method not in ("get", "head"):
            media_type, found = self._body(self._document.node(node["requestBody"]))
            parameters += found
        if len(parameters) > _MOST_PARAMETERS:
            raise Unusable(f"has more than {_MOST_PARAMETERS} parameters")
        summary = bounded_text(node.get("summary"), 100)
        return Operation(
            id=entry.id,
            method=entry.method.upper(),
            path=entry.path,
            title=" ".join(summary.split()),
            description=bounded_text(node.get("description"), 1000) or summary,
            tags=entry.tags[:8],
            parameters=tuple(parameters),
            definitions=self._converter.definitions,
            media_type=media_type,
            security=self._security(),
            servers=tuple(array(node.get("servers")) or array(entry.shared.get("servers"))),
        )

    def _parameters(self) -> Iterator[Parameter]:
        entry = self._entry
        both = [*array(entry.shared.get("parameters")), *array(entry.node.get("parameters"))]
        if len(both) > 2 * _MOST_PARAMETERS:
            raise Unusable(f"has more than {_MOST_PARAMETERS} parameters")
        found: dict[tuple[str, str], JsonObject] = {}
        for each in both:
            node = self._document.node(each)
            name, place = node.get("name"), node.get("in")
            if not isinstance(name, str) or not isinstance(place, str) or not name:
                raise Unusable("has a parameter without a name or a place")
            found[place, name] = node  # one of the operation replaces one of its path
        for (place, wire), node in found.items():
            required = node.get("required") is True or place == "path"
            if place == "header" and wire.lower() in _IGNORED_HEADERS:
                continue
            if place in _STYLES:
                yield self._parameter(node, place, wire, required=required)
            elif required:
                raise Unusable(f"needs a parameter in {place[:20]!a}, which is not supported")

    def _parameter(self, node: JsonObject, place: str, wire: str, *, required: bool) -> Parameter:
        if place == "header" and (
            not _HEADER.fullmatch(wire) or _FORBIDDEN_HEADERS.fullmatch(wire.lower())
        ):
            raise Unusable(f"has a header parameter {wire[:64]!a}, which is not permitted")
        styles = _STYLES[place]
        style = node.get("style", styles[0])
        if style not in styles:
            raise Unusable(f"has a parameter in the style {str(style)[:20]!a}, which is not known")
        content = mapping(node.get("content"))
        as_json = "schema" not in node and bool(content)
        if as_json and not _is_json(next(iter(content))):
            raise Unusable("has a parameter whose content is not JSON")
        source = self._document.node(next(iter(content.values()))) if as_json else node
        schema = self._converter.convert(source.get("schema", {}))
        if isinstance(schema, dict) and (said := bounded_text(node.get("description"), 400)):
            schema = {**schema, "description": said}
        explode = node.get("explode")
        return Parameter(
            name=self._name(wire, place),
            wire=wire,
            place=place,  # type: ignore[arg-type]  # one of _STYLES
            required=required,
            schema=schema,
            style=style,
            explode=explode if isinstance(explode, bool) else style == "form",
            as_json=as_json,
        )

    def _body(self, node: JsonObject) -> tuple[str, list[Parameter]]:
        """Return the media type and the parameters that make the body."""
        content, required = mapping(node.get("content")), node.get("required") is True
        chosen = next(
            (kind for fits in (_is_json, _is_form, _is_text) for kind in content if fits(kind)),
            None,
        )
        if chosen is None:
            if required or not content:
                raise Unusable("needs a body of a type that is not supported")
            return "", []
        schema = self._converter.convert(self._document.node(content[chosen]).get("schema", {}))
        if not isinstance(schema, dict):
            schema = {}
        media_type = chosen if _is_json(chosen) else chosen.partition(";")[0].strip()
        if _is_text(chosen):
            return media_type, [Parameter(_BODY, "", "text", required, {"type": "string"})]
        whole = self._converter.resolved(schema)
        fields = mapping(whole.get("properties"))
        flat = not {"allOf", "anyOf", "oneOf", "additionalProperties"} & set(whole)
        if fields and flat and len(fields) + len(self._taken) <= _MOST_PARAMETERS:
            needed = set(array(whole.get("required")))
            return media_type, [
                Parameter(
                    self._name(wire, _BODY), wire, "field", required and wire in needed, field
                )
                for wire, field in fields.items()
            ]
        name = self._name(_BODY, "whole")
        place: ParameterPlace = "json" if _is_json(chosen) else "form"
        return media_type, [Parameter(name, "", place, required, schema)]

    def _name(self, wire: str, place: str) -> str:
        """Return the name of a parameter of the skill: one that models accept, and no other has."""
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", wire).strip("_")[:60] or "value"
        name, number = plain, 1
        while name in self._taken:
            number += 1
            name = f"{plain[:50]}_{place}" if number == 2 else f"{plain[:50]}_{number}"
        self._taken.add(name)
        return name

    def _security(self) -> tuple[tuple[str, ...], ...]:
        node = self._entry.node
        said = node["security"] if "security" in node else self._document.root.get("security")
        return tuple(tuple(map(str, each)) for each in array(said) if isinstance(each, dict))


def _id(node: JsonObject, method: str, path: str) -> str:
    said = node.get("operationId")
    words = said if isinstance(said, str) and said else f"{method}_{path}"
    return re.sub(r"[^A-Za-z0-9_-]+", "_", words[:200]).lstrip("_-0123456789").rstrip("_")[:60]


def _check_path(path: str) -> None:
    literal = _PLACEHOLDER.sub("x", path)
    if not _PATH.fullmatch(path) or "{" in literal or "}" in literal or "%" in literal:
        raise Unusable(f"has the path {path[:100]!a}, which cannot be part of a URL")
    if {".", ".."} & set(literal.split("/")):
        raise Unusable("has a path that leads upwards")


def _is_json(media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip().lower()
    plain = media_type.isascii() and media_type.isprintable() and len(media_type) < 100
    return plain and is_json(kind)


def _is_form(media_type: str) -> bool:
    return media_type.lower().startswith("application/x-www-form-urlencoded")


def _is_text(media_type: str) -> bool:
    return media_type.partition(";")[0].strip().lower() == "text/plain"


class Granted(msgspec.Struct, frozen=True):
    """The credentials that a request gets: header fields, and fields of the query."""

    headers: Headers = ()
    query: Headers = ()


def granted(
    document: OpenApiDocument, alternatives: Sequence[Sequence[str]], secrets: Mapping[str, str]
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
            headers: Headers = ()
            query: Headers = ()
            for name in needed:
                one = _applied(document, schemes.get(name), name, secrets[name])
                headers, query = headers + one.headers, query + one.query
            return Granted(headers, query)
    names = " or ".join(" and ".join(each) for each in alternatives)
    raise Unusable(f"needs credentials for {names}, which the settings do not have")


def _applied(document: OpenApiDocument, node: object, name: str, secret: str) -> Granted:
    scheme = document.node(node)
    kind = str(scheme.get("type"))
    if kind == "apiKey":
        field, place = scheme.get("name"), scheme.get("in")
        if isinstance(field, str) and field:
            if place == "header" and _FIELD_NAME.fullmatch(field):
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


class RequestBuilder:
    """Builds the requests of an operation from the arguments of calls (OpenAPI 3.1 §4.8.12).

    Args:
        base: the URL of the server, without a slash at the end.
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
        own = [
            (each.wire, header_value(each.name, _text(each, value)))
            for each, value in given
            if each.place == "header"
        ]
        return HttpRequest(
            url=self._base + self._path(given) + query_string([*pairs, *self._credentials.query]),
            method=operation.method,
            headers=(*ACCEPT, *content, *own),
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
                yield from ((each.wire, value_text(member)) for member in value)
            elif value:
                yield each.wire, _SEPARATORS.get(each.style, ",").join(map(value_text, value))
        elif each.style == "deepObject":
            yield from (
                (f"{each.wire}[{key}]", value_text(member)) for key, member in value.items()
            )
        elif each.explode:
            for key, member in value.items():
                if key in self._reserved:
                    raise InvalidParam(each.name, f"must not have the member {key!r}")
                yield key, value_text(member)
        else:
            yield (
                each.wire,
                ",".join(part for key in value for part in (key, value_text(value[key]))),
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
        (key, value_text(member))
        for key, value in fields.items()
        for member in (value if isinstance(value, list) else [value])
        if member is not None
    ]
    return urlencode(pairs, errors="replace").encode()


def _text(each: Parameter, value: Any) -> str:
    return msgspec.json.encode(value).decode() if each.as_json else value_text(value)
