"""The operations of an OpenAPI document: what each takes, and where it goes in the request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from component.features.apis.openapi_document import (
    Document,
    Node,
    SchemaConverter,
    Unusable,
    mapping,
    rows,
    text,
)
from component.skills.spec import Schema

Place: TypeAlias = Literal["path", "query", "header", "json", "form", "text", "field"]

METHODS: Final = ("get", "head", "post", "put", "patch", "delete")
_PATH: Final = re.compile(r"/[^\s?#\\\x00-\x1f\x7f]{0,1000}")
_PLACEHOLDER: Final = re.compile(r"\{([^{}/]+)\}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_IGNORED_HEADERS: Final = frozenset({"accept", "content-type", "authorization"})
"""Header parameters that OpenAPI ignores: they are a matter of bodies and security."""
_FORBIDDEN_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "origin",
    }
    | {"proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "via"}
)
_STYLES: Final = {
    "path": ("simple",),
    "header": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
}
_MOST_PARAMETERS: Final = 100
_BODY: Final = "body"


class Parameter(msgspec.Struct, frozen=True):
    """A parameter. `name` is that of the skill, `wire` that of the API.

    `place` is where it goes: `field` is a member of a JSON object or a form that the fields make
    together; `json`, `form` and `text` are the whole body.
    """

    name: str
    wire: str
    place: Place
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


class Entry(msgspec.Struct, frozen=True):
    """An operation as the document lists it, before it is read. `shared` is what all operations of
    its path have in common.
    """

    id: str
    method: str
    path: str
    tags: tuple[str, ...]
    node: Node
    shared: Node


def entries_of(document: Document) -> Iterator[Entry]:
    """Yield the operations that a document lists."""
    for path, shared in document.root["paths"].items():
        if not isinstance(shared, dict):
            continue
        for method in METHODS:
            node = shared.get(method)
            if isinstance(node, dict):
                tags = tuple(text(tag, 64) for tag in rows(node.get("tags")) if text(tag, 64))
                yield Entry(_id(node, method, path), method, path, tags, node, shared)


def read(document: Document, entry: Entry) -> Operation:
    """Read an operation. Raises Unusable."""
    if not entry.id:
        raise Unusable("has an id without a letter")
    _check_path(entry.path)
    node, converter = entry.node, SchemaConverter(document)
    parameters = list(_parameters(document, entry, converter))
    in_path = {each.wire for each in parameters if each.place == "path"}
    if missing := set(_PLACEHOLDER.findall(entry.path)) - in_path:
        raise Unusable(f"does not describe the parameter {min(missing)[:64]!r} of its path")
    media_type = ""
    if "requestBody" in node and entry.method not in ("get", "head"):
        body = document.node(node["requestBody"])
        media_type, found = _body(document, body, converter, {each.name for each in parameters})
        parameters += found
    if len(parameters) > _MOST_PARAMETERS:
        raise Unusable(f"has more than {_MOST_PARAMETERS} parameters")
    summary = text(node.get("summary"), 100)
    return Operation(
        id=entry.id,
        method=entry.method.upper(),
        path=entry.path,
        title=" ".join(summary.split()),
        description=text(node.get("description"), 1000) or summary,
        tags=entry.tags[:8],
        parameters=tuple(parameters),
        definitions=converter.definitions,
        media_type=media_type,
        security=_security(document, node),
        servers=tuple(rows(node.get("servers")) or rows(entry.shared.get("servers"))),
    )


def _id(node: Node, method: str, path: str) -> str:
    said = node.get("operationId")
    words = said if isinstance(said, str) and said else f"{method}_{path}"
    return re.sub(r"[^A-Za-z0-9_-]+", "_", words[:200]).lstrip("_-0123456789").rstrip("_")[:60]


def _check_path(path: str) -> None:
    literal = _PLACEHOLDER.sub("x", path)
    if not _PATH.fullmatch(path) or "{" in literal or "}" in literal or "%" in literal:
        raise Unusable(f"has the path {path[:100]!a}, which cannot be part of a URL")
    if {".", ".."} & set(literal.split("/")):
        raise Unusable("has a path that leads upwards")


def _parameters(
    document: Document, entry: Entry, converter: SchemaConverter
) -> Iterator[Parameter]:
    both = [*rows(entry.shared.get("parameters")), *rows(entry.node.get("parameters"))]
    if len(both) > 2 * _MOST_PARAMETERS:
        raise Unusable(f"has more than {_MOST_PARAMETERS} parameters")
    found: dict[tuple[str, str], Node] = {}
    for each in both:
        node = document.node(each)
        name, place = node.get("name"), node.get("in")
        if not isinstance(name, str) or not isinstance(place, str) or not name:
            raise Unusable("has a parameter without a name or a place")
        found[place, name] = node  # one of the operation replaces one of its path
    taken: set[str] = set()
    for (place, wire), node in found.items():
        required = node.get("required") is True or place == "path"
        if place == "header" and wire.lower() in _IGNORED_HEADERS:
            continue
        if place not in _STYLES:
            if required:
                raise Unusable(f"needs a parameter in {place[:20]!a}, which is not supported")
            continue
        if place == "header" and (
            not _HEADER.fullmatch(wire) or wire.lower() in _FORBIDDEN_HEADERS
        ):
            raise Unusable(f"has a header parameter {wire[:64]!a}, which is not permitted")
        yield _parameter(
            document, node, place, wire, _name(wire, place, taken), converter, required
        )


def _parameter(
    document: Document,
    node: Node,
    place: str,
    wire: str,
    name: str,
    converter: SchemaConverter,
    required: bool,
) -> Parameter:
    styles = _STYLES[place]
    style = node.get("style", styles[0])
    if style not in styles:
        raise Unusable(f"has a parameter in the style {str(style)[:20]!a}, which is not known")
    content = mapping(node.get("content"))
    as_json = "schema" not in node and bool(content)
    if as_json and not _is_json(next(iter(content))):
        raise Unusable("has a parameter whose content is not JSON")
    source = document.node(next(iter(content.values()))) if as_json else node
    schema = converter.convert(source.get("schema", {}))
    if isinstance(schema, dict) and (said := text(node.get("description"), 400)):
        schema = {**schema, "description": said}
    explode = node.get("explode")
    return Parameter(
        name=name,
        wire=wire,
        place=place,  # type: ignore[arg-type]  # one of _STYLES
        required=required,
        schema=schema,
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
        as_json=as_json,
    )


def _body(
    document: Document, node: Node, converter: SchemaConverter, taken: set[str]
) -> tuple[str, list[Parameter]]:
    """Return the media type and the parameters that make the body."""
    content, required = mapping(node.get("content")), node.get("required") is True
    chosen = next(
        (kind for fits in (_is_json, _is_form, _is_text) for kind in content if fits(kind)), None
    )
    if chosen is None:
        if required or not content:
            raise Unusable("needs a body of a type that is not supported")
        return "", []
    schema = converter.convert(document.node(content[chosen]).get("schema", {}))
    if not isinstance(schema, dict):
        schema = {}
    media_type = chosen if _is_json(chosen) else chosen.partition(";")[0].strip()
    if _is_text(chosen):
        return media_type, [Parameter(_BODY, "", "text", required, {"type": "string"})]
    whole = converter.resolved(schema)
    fields = mapping(whole.get("properties"))
    flat = bool(fields) and not {"allOf", "anyOf", "oneOf", "additionalProperties"} & set(whole)
    names = {wire: _name(wire, _BODY, taken) for wire in fields} if flat else {}
    if names and len(names) + len(taken) <= _MOST_PARAMETERS:
        needed = set(rows(whole.get("required")))
        return media_type, [
            Parameter(name, wire, "field", required and wire in needed, fields[wire])
            for wire, name in names.items()
        ]
    name = _name(_BODY, "whole", taken)
    place: Place = "json" if _is_json(chosen) else "form"
    return media_type, [Parameter(name, "", place, required, schema)]


def _name(wire: str, place: str, taken: set[str]) -> str:
    """Return the name of a parameter of the skill: one that models accept, and no other has."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", wire).strip("_")[:60] or "value"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain[:50]}_{place}" if number == 2 else f"{plain[:50]}_{number}"
    taken.add(name)
    return name


def _security(document: Document, node: Node) -> tuple[tuple[str, ...], ...]:
    said = node["security"] if "security" in node else document.root.get("security")
    return tuple(tuple(map(str, each)) for each in rows(said) if isinstance(each, dict))


def _is_json(media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip().lower()
    return (kind == "application/json" or kind.endswith("+json")) and _is_plain(media_type)


def _is_form(media_type: str) -> bool:
    return media_type.lower().startswith("application/x-www-form-urlencoded")


def _is_text(media_type: str) -> bool:
    return media_type.partition(";")[0].strip().lower() == "text/plain"


def _is_plain(media_type: str) -> bool:
    return media_type.isascii() and media_type.isprintable() and len(media_type) < 100
